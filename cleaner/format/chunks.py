"""
Code that readers of batches share: the batch table, buffers and chunks (R-201..R-212), and numbers of the header.

`batch.py` verifies every checksum; `headers.py` reads only headers, without kernels. Both return `Chunk`s and report
damage in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import scan_status as status
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK as COMPRESSION_MASK,
)
from cleaner.kernels.batch_header import (
    CONTROL_FLAG as CONTROL_FLAG,
)
from cleaner.kernels.batch_header import (
    DELETE_HORIZON_FLAG as DELETE_HORIZON_FLAG,
)
from cleaner.kernels.batch_header import (
    HEADER_BYTES as HEADER_BYTES,
)
from cleaner.kernels.batch_header import (
    LOG_OVERHEAD_BYTES as LOG_OVERHEAD_BYTES,
)
from cleaner.kernels.batch_header import (
    TIMESTAMP_TYPE_FLAG as TIMESTAMP_TYPE_FLAG,
)
from cleaner.kernels.batch_header import (
    TRANSACTIONAL_FLAG as TRANSACTIONAL_FLAG,
)

# One row a batch, all 64 bits wide. `position` is in the file, `start` in the chunk; `attributes` is the low byte.
# Of magic 0 and 1: base and last offset are the entry's offset, count is -1 (unknown until it is unpacked).
# The records are at [body_start, body_end) of the chunk, or of the unpacked bytes if `unpacked` is 1 (`records.py`).
_BATCH_FIELDS = (
    "position",
    "start",
    "size",
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "attributes",
    "magic",
    "count",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
    "body_start",
    "body_end",
    "unpacked",
)
BATCH_DTYPE = np.dtype([(name, np.int64) for name in _BATCH_FIELDS])

DEFAULT_CHUNK_BYTES = 1 << 20  # about a core's second-level cache; larger chunks gain nothing
TABLE_ROWS = 8192
ANY_KIND = -1  # all bits: not examined
NO_ORDER_CHECK = -(2**63)

REASONS = {
    status.SCAN_TOO_SHORT: "a batch's length field is too small for its header",
    status.SCAN_BAD_MAGIC: "unknown magic",
    status.SCAN_BAD_CRC: "the CRC-32C does not match the batch's bytes",
    status.SCAN_BAD_COUNT: "a negative number of records",
    status.SCAN_BAD_LAST_OFFSET: "a last offset below the base offset, or above all that can be followed by another",
    status.SCAN_BAD_CODEC: "a compression type that does not exist",
    status.SCAN_OUT_OF_ORDER: "its offset is not above the one before",
    status.SCAN_COUNT_ABOVE_OFFSETS: "more records than offsets",
    status.SCAN_COUNT_ABOVE_BYTES: "more records than its bytes can hold",
}

Bytes = npt.NDArray[np.uint8]
Batches = npt.NDArray[np.void]
Flags = npt.NDArray[np.uint8]  # 1 or 0 for each batch or record, as kernels take them
Mask = npt.NDArray[np.bool_]  # the same for numpy


class ReadableFile(Protocol):
    """An open file, such as `storage.fs.File`: this package must not import the access to the disk."""

    path: Path

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes only at the end of the file."""


@runtime_checkable
class FileWithHoles(ReadableFile, Protocol):
    """A file of a local disk, which may be longer than the disk."""

    def data_from(self, position: int) -> int:
        """Return the first position from this one on that is in no hole; at least the file's length without one."""


class ReadBuffer:
    """A buffer and a batch table that a reader fills and its owner keeps for the next segment."""

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self.data: Bytes = np.zeros(chunk_bytes + PAD_BYTES, np.uint8)
        self.table: Batches = np.zeros(TABLE_ROWS, BATCH_DTYPE)

    def grow(self, chunk_bytes: int) -> None:
        """Make room for a batch of `chunk_bytes` bytes."""
        self.data = np.zeros(chunk_bytes + PAD_BYTES, np.uint8)

    def shrink(self) -> None:
        """Go back to the usual size after a large batch."""
        if self.data.size > self.chunk_bytes + PAD_BYTES:
            self.data = np.zeros(self.chunk_bytes + PAD_BYTES, np.uint8)

    @property
    def capacity(self) -> int:
        """Bytes of data that fit into the buffer."""
        return self.data.size - PAD_BYTES


@dataclass(frozen=True)
class Chunk:
    """
    Some whole batches of a segment, valid until the reader's next step.

    Attributes:
        data: uint8, the bytes from the first batch on (and spare bytes after the last).
        length: bytes the batches cover.
        position: byte position of `data[0]` in the file.
        batches: rows of BATCH_DTYPE, in file order.
        kinds: the batches' attributes joined by OR, with the KIND_ bits of `kernels/scan_status.py`.
        failure: the error after the last batch, if the reader does not raise it.
    """

    data: Bytes
    length: int
    position: int
    batches: Batches
    kinds: int = ANY_KIND
    failure: CorruptBatchError | None = None


def control_batches(batches: Batches) -> Mask:
    """Tell which batches hold a marker; magic 0 and 1 have none (R-230)."""
    found: Mask = (batches["magic"] == 2) & (batches["attributes"] & CONTROL_FLAG != 0)
    return found
