"""
Record batches on disk: the header table, and a reader that walks a `.log` file chunk by chunk (R-201..R-212).

A batch that the end of the file cuts off is damage to this reader; whoever expects a torn tail (recovery) catches the
`CorruptBatchError` and finds in its `position` how many good bytes there are. Every batch's checksum is verified.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import batches as kernel

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12

# (field, offset, width) of the magic-2 header, in file order; values on disk are fixed for ever.
HEADER_FIELDS = (
    ("baseOffset", 0, 8),
    ("length", 8, 4),
    ("partitionLeaderEpoch", 12, 4),
    ("magic", 16, 1),
    ("crc", 17, 4),
    ("attributes", 21, 2),
    ("lastOffsetDelta", 23, 4),
    ("baseTimestamp", 27, 8),
    ("maxTimestamp", 35, 8),
    ("producerId", 43, 8),
    ("producerEpoch", 51, 2),
    ("baseSequence", 53, 4),
    ("recordsCount", 57, 4),
)
if sum(width for _, _, width in HEADER_FIELDS) != HEADER_BYTES:
    raise AssertionError("the header table does not add up to 61 bytes")

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# One row a batch, all 64 bits wide. `position` counts in the file, `start` in the chunk; `attributes` is the low byte.
# Of magic 0 and 1: base and last offset are the entry's offset, count is -1 (unknown until it is unpacked).
# The records lie at [body_start, body_end) of the chunk, or of the unpacked bytes once `unpacked` is 1 (`records.py`).
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
_TABLE_ROWS = 8192
NO_ORDER_CHECK = -(2**63)

_REASONS = {
    kernel.SCAN_TOO_SHORT: "a batch's length field is too small for its header",
    kernel.SCAN_BAD_MAGIC: "unknown magic",
    kernel.SCAN_BAD_CRC: "the CRC-32C does not match the batch's bytes",
    kernel.SCAN_BAD_COUNT: "a negative number of records",
    kernel.SCAN_BAD_LAST_OFFSET: "a last offset below the base offset",
    kernel.SCAN_BAD_CODEC: "a compression type that does not exist",
    kernel.SCAN_OUT_OF_ORDER: "its offset is not above the one before",
    kernel.SCAN_COUNT_ABOVE_OFFSETS: "more records than offsets",
    kernel.SCAN_COUNT_ABOVE_BYTES: "more records than its bytes can hold",
}

Bytes = npt.NDArray[np.uint8]
Batches = npt.NDArray[np.void]


class ReadableFile(Protocol):
    """An open file, as `storage.fs.File` is one: this room must not know the door to the disk."""

    path: Path

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes only at the end of the file."""


class ReadBuffer:
    """A buffer and a batch table that a reader fills and its owner keeps for the next segment."""

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self.data: Bytes = np.zeros(chunk_bytes + PAD_BYTES, np.uint8)
        self.table: Batches = np.zeros(_TABLE_ROWS, BATCH_DTYPE)

    def grow(self, chunk_bytes: int) -> None:
        """Make room for a batch of `chunk_bytes` bytes."""
        self.data = np.zeros(chunk_bytes + PAD_BYTES, np.uint8)

    def shrink(self) -> None:
        """Go back to the usual size after a large batch."""
        if self.data.size > self.chunk_bytes + PAD_BYTES:
            self.data = np.zeros(self.chunk_bytes + PAD_BYTES, np.uint8)

    @property
    def capacity(self) -> int:
        """Bytes of data the buffer can take."""
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
    """

    data: Bytes
    length: int
    position: int
    batches: Batches


class SegmentReader:
    """
    Walks the batches of a `.log` file in order, verifying every checksum.

    Args:
        file: the open `.log`.
        size: bytes to read; whatever lies beyond is not looked at.
        start: position of the first batch to read.
        buffer: the buffer to read into; chunks borrow it.
        check_order_from: demand that the first batch's base offset is at least this and that offsets ascend, and
            check what Kafka checks only when it reads records (counts, codecs). None: the checks of Kafka's recovery.
    Raises:
        CorruptBatchError: while iterating; its `position` is where the first bad batch begins.
    """

    def __init__(
        self,
        file: ReadableFile,
        *,
        size: int,
        start: int = 0,
        buffer: ReadBuffer | None = None,
        check_order_from: int | None = None,
    ) -> None:
        self._file = file
        self._size = size
        self._position = start
        self._buffer = buffer or ReadBuffer()
        self._previous_offset = NO_ORDER_CHECK if check_order_from is None else check_order_from - 1

    def __iter__(self) -> Iterator[Chunk]:
        while self._position < self._size:
            filled = self._fill()
            used = 0
            while used < filled:
                chunk, status, needed = self._scan(used, filled)
                if chunk.length:
                    yield chunk
                used += chunk.length
                if status == kernel.SCAN_TABLE_FULL:
                    continue
                if status != kernel.SCAN_END:
                    raise CorruptBatchError(self._file.path, self._position, self._reason(status, needed))
                break
            if used == 0:
                self._make_room(filled, needed)
        self._buffer.shrink()

    def _fill(self) -> int:
        wanted = min(self._buffer.capacity, self._size - self._position)
        got = self._file.read_into(self._buffer.data.data[:wanted], self._position)
        if got < wanted:
            raise CorruptBatchError(self._file.path, self._position + got, "the file became shorter while it was read")
        return got

    def _scan(self, used: int, filled: int) -> tuple[Chunk, int, int]:
        data = self._buffer.data[used:]
        table = self._buffer.table
        count, covered, status, needed = kernel.scan_batches(
            data, filled - used, self._position, self._previous_offset, table
        )
        chunk = Chunk(data, int(covered), self._position, table[:count])
        self._check_legacy(chunk)
        if count and self._previous_offset != NO_ORDER_CHECK:
            self._previous_offset = int(table[count - 1]["last_offset"])
        self._position += int(covered)
        return chunk, status, int(needed)

    def _check_legacy(self, chunk: Chunk) -> None:
        """Verify the CRC-32 (IEEE, bytes 16 to the end) of batches of magic 0 and 1 (R-2.5)."""
        for row in chunk.batches[chunk.batches["magic"] < 2]:
            start, size = int(row["start"]), int(row["size"])
            stored = int.from_bytes(chunk.data[start + 12 : start + 16].tobytes(), "big")
            if zlib.crc32(chunk.data[start + 16 : start + size].data) != stored:
                raise CorruptBatchError(self._file.path, int(row["position"]), "the CRC-32 does not match the bytes")

    def _make_room(self, filled: int, needed: int) -> None:
        """The first batch is larger than what was read: grow the buffer, unless the file ends before the batch does."""
        left = self._size - self._position
        if needed > left or filled < 17:
            wanted = f"a batch of {needed} bytes" if needed else "a batch"
            raise CorruptBatchError(self._file.path, self._position, f"{wanted} where {left} bytes are left")
        self._buffer.grow(needed)

    def _reason(self, status: int, size: int) -> str:
        return f"{_REASONS[status]} (batch of {size} bytes)"
