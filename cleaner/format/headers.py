"""
Walks a `.log` file by its batch headers, in plain Python: to read a log's end, where loading the kernels would take
longer than the reading itself.

Records are skipped, except control records, and no checksum is verified. The other checks of `batch.py` are made here,
too, so an invalid header gives the same error in both. Do not change anything on disk based on this reader.

Source: rules R-201, R-210, R-240.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import (
    BATCH_DTYPE,
    NO_ORDER_CHECK,
    REASONS,
    Chunk,
    ReadableFile,
)
from cleaner.kernels import scan_status as status
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEAD_BYTES,
    HEADER,
    HEADER_BYTES,
    LEGACY_HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MIN_BATCH_BYTES,
    size_of,
)
from cleaner.kernels.codec_table import LAST_CODEC, NONE

# A log's end is a few index intervals (4 KiB) and one batch.
_WINDOW_BYTES = 64 << 10
_MAX_ROWS = 4096
# An end-of-transaction marker has 17 bytes of records; larger ones, which no broker writes, need not be read whole.
_MAX_CONTROL_BYTES = 64 << 10

_MAX_LONG = 2**63 - 1

# In the order of BATCH_DTYPE.
_Row = tuple[int, ...]
_LAST_OFFSET = BATCH_DTYPE.names.index("last_offset") if BATCH_DTYPE.names else -1


class HeaderReader:
    """
    Walks the batches of a `.log` file in order; arguments and errors are those of `SegmentReader`.

    The chunks hold only the records of control batches: `body_start` and `body_end` of other rows are 0, and `start`
    has no meaning. `length` is the number of bytes of the file that the batches cover.

    Args:
        max_rows: the most batches of a chunk; few for who wants only the next batches of a long file.
    """

    def __init__(
        self,
        file: ReadableFile,
        *,
        size: int,
        start: int = 0,
        check_order_from: int | None = None,
        max_rows: int = _MAX_ROWS,
    ) -> None:
        self._file = file
        self._size = size
        self._position = start
        self._previous_offset = NO_ORDER_CHECK if check_order_from is None else check_order_from - 1
        self._window = memoryview(b"")
        self._window_position = 0
        self._max_rows = max_rows

    def __iter__(self) -> Iterator[Chunk]:
        while self._position < self._size:
            begin, bodies = self._position, bytearray()
            rows: list[_Row] = []
            damage = None
            while self._position < self._size and len(rows) < self._max_rows:
                try:
                    row = self._next_row(bodies)
                except CorruptBatchError as error:
                    damage = error
                    break
                rows.append(row)
            if rows:
                data = np.frombuffer(bytes(bodies), np.uint8)
                yield Chunk(data, self._position - begin, begin, np.array(rows, BATCH_DTYPE))
            if damage is not None:
                try:
                    raise damage
                finally:
                    damage = None  # its traceback has this frame, which has the file: a cycle would keep that open

    def _next_row(self, bodies: bytearray) -> _Row:
        """Return the next batch's row and step over the batch; the records of a control batch go to `bodies`."""
        head = self._read(HEADER_BYTES)
        size = self._whole_size(head)
        magic = head[MAGIC_AT]
        row = self._modern_row(head, size, bodies) if magic == 2 else self._legacy_row(head, size, magic)
        if self._previous_offset != NO_ORDER_CHECK:
            if row[3] <= self._previous_offset:
                raise self._damage(status.SCAN_OUT_OF_ORDER, size)
            self._previous_offset = row[_LAST_OFFSET]
        self._position += size
        return row

    def _whole_size(self, head: memoryview) -> int:
        """Return the size of the batch with this head; raise unless its magic is known and the file holds all of it."""
        left = self._size - self._position
        size = 0
        if len(head) >= LOG_OVERHEAD_BYTES:
            size = size_of(head)
            if size < MIN_BATCH_BYTES[0]:
                raise self._damage(status.SCAN_TOO_SHORT, size)
        if left >= HEAD_BYTES:
            if head[MAGIC_AT] > 2:
                raise self._damage(status.SCAN_BAD_MAGIC, size)
            if head[MAGIC_AT] == 2 and size < HEADER_BYTES:
                raise self._damage(status.SCAN_TOO_SHORT, size)
        if size > left or left < HEAD_BYTES:
            wanted = f"a batch of {size} bytes" if size else "a batch"
            raise CorruptBatchError(self._file.path, self._position, f"{wanted} where {left} bytes are left")
        return size

    def _modern_row(self, head: memoryview, size: int, bodies: bytearray) -> _Row:
        (base_offset, _, leader_epoch, magic, _, attributes, last_delta, *rest) = HEADER.unpack_from(head)
        attributes &= 0xFF  # only the low byte is interpreted
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count = rest
        if self._previous_offset != NO_ORDER_CHECK:
            if last_delta < 0 or base_offset >= _MAX_LONG - last_delta:
                raise self._damage(status.SCAN_BAD_LAST_OFFSET, size)
            if count < 0:
                raise self._damage(status.SCAN_BAD_COUNT, size)
            if count > last_delta + 1:
                raise self._damage(status.SCAN_COUNT_ABOVE_OFFSETS, size)
            self._check_codec(attributes, magic, size)
            fitting = (size - HEADER_BYTES) // status.SMALLEST_RECORD_BYTES
            if attributes & COMPRESSION_MASK == NONE and count > fitting:
                raise self._damage(status.SCAN_COUNT_ABOVE_BYTES, size)
        body_start = body_end = 0
        if attributes & CONTROL_FLAG:
            body_start = len(bodies)
            bodies += self._read(min(size, HEADER_BYTES + _MAX_CONTROL_BYTES))[HEADER_BYTES:]
            body_end = len(bodies)
        last_offset = _wrap(base_offset + last_delta)
        return (
            *(self._position, 0, size, base_offset, last_offset, base_timestamp, max_timestamp, attributes, magic),
            *(count, producer_id, producer_epoch, base_sequence, leader_epoch, body_start, body_end, 0),
        )

    def _legacy_row(self, head: memoryview, size: int, magic: int) -> _Row:
        if magic == 1 and size < MIN_BATCH_BYTES[1]:
            raise self._damage(status.SCAN_TOO_SHORT, size)
        offset, _, _, _, attributes, timestamp = LEGACY_HEADER.unpack_from(head)
        timestamp = timestamp if magic == 1 else -1
        if self._previous_offset != NO_ORDER_CHECK:
            if offset == _MAX_LONG:
                raise self._damage(status.SCAN_BAD_LAST_OFFSET, size)
            self._check_codec(attributes, magic, size)
        return (
            *(self._position, 0, size, offset, offset, timestamp, timestamp, attributes, magic),
            *(-1, -1, -1, -1, -1, 0, 0, 0),
        )

    def _check_codec(self, attributes: int, magic: int, size: int) -> None:
        if attributes & COMPRESSION_MASK > LAST_CODEC[magic]:
            raise self._damage(status.SCAN_BAD_CODEC, size)

    def _read(self, count: int) -> memoryview:
        """Return `count` bytes from the position on, fewer at the end of the file."""
        wanted = min(count, self._size - self._position)
        at = self._position - self._window_position
        if at + wanted > len(self._window):
            window = bytearray(min(max(_WINDOW_BYTES, wanted), self._size - self._position))
            got = self._file.read_into(memoryview(window), self._position)
            if got < len(window):
                reason = "the file became shorter while it was read"
                raise CorruptBatchError(self._file.path, self._position + got, reason)
            self._window, self._window_position, at = memoryview(window), self._position, 0
        return self._window[at : at + wanted]

    def _damage(self, code: int, size: int) -> CorruptBatchError:
        return CorruptBatchError(self._file.path, self._position, f"{REASONS[code]} (batch of {size} bytes)")


def _wrap(number: int) -> int:
    """Return a sum wrapped to 64 bits; it can be too large only if order is not checked."""
    return (number + 2**63) % 2**64 - 2**63
