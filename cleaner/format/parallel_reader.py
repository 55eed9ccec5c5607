"""
Reads a `.log` file with several threads in parallel (R-201..R-212).

The start of a batch is known only after the batch before it, but any thread can read the file's bytes at any position,
and reading and checking them is most of the work. So each thread *claims* a window of the file, *fills* its buffer with
it, waits for its turn to *arrange* the batches in it, by their headers alone, and *verifies* their checksums while
other threads arrange. If a window cuts a batch in two, its first part is carried over to the next window.

The chunks have the same batches as those of `SegmentReader`, cut at other places, with the same errors in the same
order. Only the checksum of a control batch is verified while arranging, because its content is needed in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cleaner.base.table_memory import zero_pages
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import BATCH_DTYPE, NO_ORDER_CHECK, REASONS, TABLE_ROWS, Batches, Bytes, Chunk, ReadableFile
from cleaner.format.legacy_checksums import BAD_LEGACY_CHECKSUM, first_bad_legacy_checksum
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import batches as kernel
from cleaner.kernels import scan_status as status
from cleaner.kernels.batch_header import HEAD_BYTES

# Each window costs about 0.1 ms, whatever its size; larger ones gain nothing, and exceed the second-level cache.
DEFAULT_WINDOW_BYTES = 2 << 20
# Enough for a window of batches with one small record each.
_USUAL_ROWS = 4 * TABLE_ROWS


@dataclass(frozen=True)
class Window:
    """A part of a file: bytes from `position` on, `size` of them."""

    position: int
    size: int


class WindowBuffer:
    """
    A thread's memory for one window and the bytes carried over to it, and the table of its batches.

    Args:
        window_bytes: the size of a window. The same size is reserved before it: less than a window is carried over.

    Attributes:
        table: rows of BATCH_DTYPE.
    """

    def __init__(self, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        # Untouched pages take no memory: usually little is carried over, and most logs are small.
        self._data: Bytes = np.frombuffer(zero_pages(2 * window_bytes + PAD_BYTES, huge=False), np.uint8)
        self.table = _table(_USUAL_ROWS)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Its memory, valid until it grows or shrinks."""
        return self._data, self.table

    def window(self, size: int) -> Bytes:
        """Return the memory of the window."""
        return self._data[self.window_bytes : self.window_bytes + size]

    def joined(self, carried: Bytes) -> Bytes:
        """Put carried bytes right before the window; returns them with the window and the memory after it."""
        first = self.window_bytes - len(carried)
        self._data[first : self.window_bytes] = carried
        return self._data[first:]

    def behind(self, passed: int) -> Bytes:
        """Return the window without its first `passed` bytes, and the memory after it."""
        return self._data[self.window_bytes + passed :]

    def grow_table(self) -> None:
        """Make room for more batches; the table's content is lost."""
        self.table = _table(4 * len(self.table))

    def shrink(self) -> None:
        """Go back to the usual size after a window of very many batches."""
        if len(self.table) > _USUAL_ROWS:
            self.table = _table(_USUAL_ROWS)


def _table(rows: int) -> Batches:
    """Return a table of batches; rows that are never filled take no memory."""
    return np.frombuffer(zero_pages(rows * BATCH_DTYPE.itemsize, huge=False), BATCH_DTYPE)


class ParallelSegmentReader:
    """
    Reads the batches of one file.

    Args:
        file: the open `.log`.
        size: bytes to read; later bytes are ignored.
        start: position of the first batch to read.
        window_bytes: the size of a window; a batch's HEAD_BYTES must fit.
        check_order_from: require that the first batch's base offset is at least this and that offsets ascend, and also
            check what Kafka checks only when it reads records (counts, codecs). None: leave both to the caller; then
            only damage that hides the start of the next batch, and a control batch's checksum, is a failure.
    """

    def __init__(
        self, file: ReadableFile, *, size: int, start: int, window_bytes: int, check_order_from: int | None
    ) -> None:
        self._file = file
        self._size = size
        self._window_bytes = window_bytes
        self._claimed = start
        # The rest belongs to the thread whose turn it is to arrange.
        self._position = start
        self._previous_offset = NO_ORDER_CHECK if check_order_from is None else check_order_from - 1
        self._carried: Bytes = np.zeros(0, np.uint8)
        self._has_failed = False

    @property
    def is_arranged(self) -> bool:
        """Whether nothing is left to arrange: the end was reached, or damage."""
        return self._has_failed or self._position >= self._size

    def claim(self) -> Window | None:
        """Return the next window, None if there is none. Must not be called by two threads at once."""
        if self.is_arranged:
            return None
        # The thread that found a batch larger than a window has read it; its windows need not be read again. The next
        # window does not begin where that batch ends: then chunks would depend on which thread was faster, and so would
        # everything that ends with a chunk (the map, if the caller limits it).
        passed = max(0, self._position - self._claimed) // self._window_bytes
        position = self._claimed + passed * self._window_bytes
        if position >= self._size:
            return None
        size = min(self._window_bytes, self._size - position)
        self._claimed = position + size
        return Window(position, size)

    def fill(self, window: Window, buffer: WindowBuffer) -> None:
        """
        Read a window into a buffer. Several threads may do so at once.

        Raises:
            CorruptBatchError: the file became shorter.
        """
        self._read(buffer.window(window.size), window.position)

    def _read(self, target: Bytes, position: int) -> None:
        got = self._file.read_into(target.data, position)
        if got < len(target):
            raise CorruptBatchError(self._file.path, position + got, "the file became shorter while it was read")

    def arrange(self, window: Window, buffer: WindowBuffer) -> Chunk:
        """
        List the batches that begin in a filled window or before it. Call in the order of the claims.

        Returns:
            A chunk in `buffer`; it may have no batches. Damage after its last batch is its `failure`, and then all
            later windows are empty.
        """
        data, length = buffer.window(0), 0
        if not self._has_failed:  # else the carried bytes are useless, and may be more than there is room for
            data, length = self._join(window, buffer)
        if not length:
            return Chunk(data, 0, self._position, buffer.table[:0], 0)
        chunk, code, needed = self._list(data, length, buffer)
        end = self._position + length
        failure = None
        if code == status.SCAN_END and not chunk.length and length < needed <= self._size - self._position:
            try:
                data = self._whole_batch(data[:length], needed)
                end = self._position + needed
                chunk, code, needed = self._list(data, needed, buffer)
            except CorruptBatchError as error:
                failure = error
        self._position += chunk.length
        failure = failure or self._failure(code, needed, end)
        self._has_failed = failure is not None
        self._carried = data[chunk.length : chunk.length + end - self._position].copy()
        return chunk if failure is None else replace(chunk, failure=failure)

    def abandon(self) -> None:
        """Stop arranging, because a window could not be filled; call instead of `arrange`."""
        self._has_failed = True

    def _join(self, window: Window, buffer: WindowBuffer) -> tuple[Bytes, int]:
        """Put the carried bytes before a window's bytes; returns them with the memory after, and their length."""
        passed = max(0, self._position - window.position)
        if passed:
            # After a batch larger than a window: nothing is carried, and a part of the window is already done.
            return buffer.behind(passed), max(0, window.size - passed)
        return buffer.joined(self._carried), len(self._carried) + window.size

    def _list(self, data: Bytes, length: int, buffer: WindowBuffer) -> tuple[Chunk, int, int]:
        while True:
            count, covered, code, needed, kinds = kernel.scan_batches(
                data, length, self._position, self._previous_offset, False, buffer.table
            )
            if code != status.SCAN_TABLE_FULL:
                break
            buffer.grow_table()
        if count and self._previous_offset != NO_ORDER_CHECK:
            self._previous_offset = int(buffer.table[count - 1]["last_offset"])
        chunk = Chunk(data, int(covered), self._position, buffer.table[:count], int(kinds))
        return chunk, int(code), int(needed)

    def _whole_batch(self, head: Bytes, size: int) -> Bytes:
        """Read the rest of a batch that does not fit a window and its carried bytes; other threads wait for this."""
        data = np.zeros(size + PAD_BYTES, np.uint8)
        data[: len(head)] = head
        self._read(data[len(head) : size], self._position + len(head))
        return data

    def _failure(self, code: int, needed: int, end: int) -> CorruptBatchError | None:
        """Return the error at the place where listing ended, if any."""
        if code != status.SCAN_END:
            return CorruptBatchError(self._file.path, self._position, f"{REASONS[code]} (batch of {needed} bytes)")
        left = self._size - self._position
        # If the magic of a batch was not read yet, more than its size may be wrong.
        is_cut_off = needed > left and end - self._position >= HEAD_BYTES
        if left and (is_cut_off or end == self._size):
            wanted = f"a batch of {needed} bytes" if needed else "a batch"
            return CorruptBatchError(self._file.path, self._position, f"{wanted} where {left} bytes are left")
        return None


def verify_checksums(path: Path, chunk: Chunk, is_excused: Callable[[np.void], bool] | None = None) -> Chunk:
    """
    Verify the checksums of an arranged chunk.

    Args:
        path: of the chunk's file, for the error.
        is_excused: called for a batch of magic 2 with a wrong checksum; True accepts it.
    Returns:
        The chunk, or its part before the first bad batch, which is then its `failure`.
    """
    good = int(kernel.count_good_checksums(chunk.data, chunk.batches))
    while is_excused is not None and good < len(chunk.batches) and is_excused(chunk.batches[good]):
        good += 1 + int(kernel.count_good_checksums(chunk.data, chunk.batches[good + 1 :]))
    legacy = None
    if chunk.kinds & status.KIND_LEGACY:
        legacy = first_bad_legacy_checksum(chunk.data, chunk.batches[:good])
    if legacy is None and good == len(chunk.batches):
        return chunk
    row = chunk.batches[good if legacy is None else legacy]
    reason = BAD_LEGACY_CHECKSUM
    if legacy is None:
        reason = f"{REASONS[status.SCAN_BAD_CRC]} (batch of {row['size']} bytes)"
    failure = CorruptBatchError(path, int(row["position"]), reason)
    start = int(row["start"])
    return replace(chunk, length=start, batches=chunk.batches[: good if legacy is None else legacy], failure=failure)


def bad_checksums(path: Path, chunk: Chunk) -> Iterator[tuple[int, CorruptBatchError]]:
    """Yield every batch of an arranged chunk whose checksum is wrong: its row, and the error."""
    first = 0
    while first < len(chunk.batches):
        verified = verify_checksums(path, replace(chunk, batches=chunk.batches[first:], failure=None))
        if verified.failure is None:
            return
        first += len(verified.batches)
        yield first, verified.failure
        first += 1
