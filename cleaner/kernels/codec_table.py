"""
The codecs a batch may be packed with, one row each: everything that lists codecs does so by this table.

What packs and unpacks them is `format/compression.py`, a row each there, too. Loads no numba.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cleaner.kernels.batch_header import MAGIC


class Codec(NamedTuple):
    """
    A codec.

    Attributes:
        id: the low three bits of a batch's attributes (R-210); on disk, fixed for ever.
        name: Kafka's, as in `compression.type`.
        least_magic: batches of lower magics cannot have it (R-241).
        has_kernel: `kernels/codecs.py` packs and unpacks it, too.
    """

    id: int
    name: str
    least_magic: int
    has_kernel: bool


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: Final = (
    Codec(NONE, "none", 0, False),
    Codec(GZIP, "gzip", 0, False),
    Codec(SNAPPY, "snappy", 0, True),
    Codec(LZ4, "lz4", 0, True),
    Codec(ZSTD, "zstd", MAGIC, False),
)
CODEC_NAMES: Final = tuple(codec.name for codec in CODECS)  # by id

# The largest id by magic: what is above it does not exist.
LAST_CODEC: Final = tuple(max(codec.id for codec in CODECS if codec.least_magic <= magic) for magic in range(MAGIC + 1))
KERNEL_CODECS: Final = sum(1 << codec.id for codec in CODECS if codec.has_kernel)  # a bit each
