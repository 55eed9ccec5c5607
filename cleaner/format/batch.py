"""
A reader that walks a `.log` file chunk by chunk and verifies the checksum of every batch (R-201..R-212, D-09).

For this reader a batch that is cut off by the end of the file is damage; a caller that expects a torn tail (recovery)
catches the `CorruptBatchError`, whose `position` is the number of good bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import (
    BATCH_DTYPE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DEFAULT_CHUNK_BYTES,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
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
from cleaner.format.legacy_checksums import BAD_LEGACY_CHECKSUM, first_bad_legacy_checksum
from cleaner.kernels import batches as kernel
from cleaner.kernels.batch_header import HEAD_BYTES

# Names of `chunks.py` are re-exported: readers of batches need both.
__all__ = [
    "BATCH_DTYPE",
    "COMPRESSION_MASK",
    "CONTROL_FLAG",
    "DEFAULT_CHUNK_BYTES",
    "DELETE_HORIZON_FLAG",
    "HEADER_BYTES",
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
        size: bytes to read; later bytes are ignored.
        start: position of the first batch to read.
        buffer: the buffer to read into; chunks borrow it.
        check_order_from: require that the first batch's base offset is at least this and that offsets ascend, and
            also check what Kafka checks only when it reads records (counts, codecs). None: the checks of Kafka's
            recovery.
    Raises:
        CorruptBatchError: while iterating; its `position` is the start of the first bad batch.
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
        # Where, and why. Not the error: raised from here it would know this object, which would know it.
        self._failure: tuple[int, str] | None = None
        self._previous_offset = NO_ORDER_CHECK if check_order_from is None else check_order_from - 1

    def __iter__(self) -> Iterator[Chunk]:
        while (chunk := self.next_chunk(self._buffer)) is not None:
            yield chunk
        self._buffer.shrink()

    def next_chunk(self, buffer: ReadBuffer) -> Chunk | None:
        """
        Read the next chunk into `buffer`, which it borrows until the buffer's next use; None at the end.

        Raises:
            CorruptBatchError: damage; the good batches before it were part of earlier chunks.
        """
        if self._failure is not None:
            raise CorruptBatchError(self._file.path, *self._failure)
        while self._position < self._size:
            filled = self._fill(buffer)
            chunk, status, needed = self._scan(buffer, filled)
            if status > 0 and self._failure is None:
                self._failure = self._position, self._reason(status, needed)
            if chunk.length:
                return chunk
            if self._failure is not None:
                raise CorruptBatchError(self._file.path, *self._failure)
            self._make_room(buffer, filled, needed)
        return None

    def _fill(self, buffer: ReadBuffer) -> int:
        wanted = min(buffer.capacity, self._size - self._position)
        got = self._file.read_into(buffer.data.data[:wanted], self._position)
        if got < wanted:
            raise CorruptBatchError(self._file.path, self._position + got, "the file became shorter while it was read")
        return got

    def _scan(self, buffer: ReadBuffer, filled: int) -> tuple[Chunk, int, int]:
        count, covered, status, needed, kinds = kernel.scan_batches(
            buffer.data, filled, self._position, self._previous_offset, True, buffer.table
        )
        bad = first_bad_legacy_checksum(buffer.data, buffer.table[:count])
        if bad is not None:
            count, covered = bad, int(buffer.table[bad]["position"]) - self._position
            self._failure = self._position + covered, BAD_LEGACY_CHECKSUM
        chunk = Chunk(buffer.data, int(covered), self._position, buffer.table[:count], int(kinds))
        if count and self._previous_offset != NO_ORDER_CHECK:
            self._previous_offset = int(buffer.table[count - 1]["last_offset"])
        self._position += int(covered)
        return chunk, int(status), int(needed)

    def _make_room(self, buffer: ReadBuffer, filled: int, needed: int) -> None:
        """Grow the buffer for a first batch larger than the bytes read, unless the file ends before the batch."""
        left = self._size - self._position
        if needed > left or filled < HEAD_BYTES:
            wanted = f"a batch of {needed} bytes" if needed else "a batch"
            raise CorruptBatchError(self._file.path, self._position, f"{wanted} where {left} bytes are left")
        buffer.grow(needed)

    def _reason(self, status: int, size: int) -> str:
        return f"{REASONS[status]} (batch of {size} bytes)"
