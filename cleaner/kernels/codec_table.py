"""
The codecs of batches, one row each: all lists of codecs come from this table.

`format/compression.py` packs and unpacks them, and also has a row for each. Does not load numba.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cleaner.kernels.batch_header import MAGIC


class Codec(NamedTuple):
    """
    A codec.

    Attributes:
        id: the low three bits of a batch's attributes (R-210); on disk, never changes.
        name: Kafka's, as in `compression.type`.
        min_magic: batches with a lower magic cannot have it (R-241).
        has_kernel: `kernels/codecs.py` packs and unpacks it too.
    """

    id: int
    name: str
    min_magic: int
    has_kernel: bool


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: Final = (
    Codec(NONE, "none", 0, False),
    Codec(GZIP, "gzip", 0, False),
    Codec(SNAPPY, "snappy", 0, True),
    Codec(LZ4, "lz4", 0, True),
    Codec(ZSTD, "zstd", MAGIC, True),
)
CODEC_NAMES: Final = tuple(codec.name for codec in CODECS)  # by id

# The largest id by magic: higher ids do not exist.
LAST_CODEC: Final = tuple(max(codec.id for codec in CODECS if codec.min_magic <= magic) for magic in range(MAGIC + 1))
KERNEL_CODECS: Final = sum(1 << codec.id for codec in CODECS if codec.has_kernel)  # a bit each
