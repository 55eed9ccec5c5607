"""
A reader that walks a `.log` file chunk by chunk and verifies the checksum of every batch (R-201..R-212).

A batch that the end of the file cuts off is damage to this reader; whoever expects a torn tail (recovery) catches the
`CorruptBatchError` and finds in its `position` how many good bytes there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import (
    BATCH_DTYPE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DEFAULT_CHUNK_BYTES,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    HEADER_FIELDS,
    LOG_OVERHEAD_BYTES,
    NO_ORDER_CHECK,
    REASONS,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    Batches,
    Bytes,
    Chunk,
    ReadableFile,
    ReadBuffer,
)
from cleaner.kernels import batches as kernel

# Those of `chunks.py` are handed on: whoever reads batches needs both.
__all__ = [
    "BATCH_DTYPE",
    "COMPRESSION_MASK",
    "CONTROL_FLAG",
    "DEFAULT_CHUNK_BYTES",
    "DELETE_HORIZON_FLAG",
    "HEADER_BYTES",
    "HEADER_FIELDS",
    "LOG_OVERHEAD_BYTES",
    "NO_ORDER_CHECK",
    "TIMESTAMP_TYPE_FLAG",
    "TRANSACTIONAL_FLAG",
    "Batches",
    "Bytes",
    "Chunk",
    "ReadBuffer",
    "ReadableFile",
    "SegmentReader",
]


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
        return f"{REASONS[status]} (batch of {size} bytes)"
