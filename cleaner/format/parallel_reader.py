"""
A `.log` file read by several threads side by side (R-201..R-212).

Where a batch begins is known only when the one before it has been looked at, but a file's bytes can be read by anybody
at any place, and reading and checking them is most of the work. So each thread *claims* a window of the file, *fills*
its buffer with it, waits for its turn to *arrange* the batches in it, by their headers alone, and *verifies* their
checksums when others are arranging already. A batch that a window cuts in two is carried over to the next one.

The chunks are those `SegmentReader` would give, cut at other places, with the same errors in the same order; only the
checksum of a control batch is verified while arranging, because what it says is needed in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cleaner.base.table_memory import zero_pages
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import BATCH_DTYPE, NO_ORDER_CHECK, REASONS, TABLE_ROWS, Bytes, Chunk, ReadableFile
from cleaner.format.legacy_checksums import BAD_LEGACY_CHECKSUM, first_bad_legacy_checksum
from cleaner.kernels import PAD_BYTES
from cleaner.kernels import batches as kernel
from cleaner.kernels import scan_status as status
from cleaner.kernels.batch_header import HEAD_BYTES

# Each window costs some 0.1 ms whatever its size; larger ones gain nothing more, and leave the second-level cache.
DEFAULT_WINDOW_BYTES = 2 << 20


@dataclass(frozen=True)
class Window:
    """A part of a file: bytes from `position` on, `size` of them."""

    position: int
    size: int


class WindowBuffer:
    """
    A thread's memory for one window and what was carried over to it, and the table of its batches.

    Args:
        window_bytes: the size of a window. As many more bytes are reserved before it: less than a window is carried.

    Attributes:
        table: rows of BATCH_DTYPE.
    """

    def __init__(self, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        # Memory that is never touched is never there: usually little is carried, and most logs are small.
        self._data: Bytes = np.frombuffer(zero_pages(2 * window_bytes + PAD_BYTES, huge=False), np.uint8)
        self.table = np.zeros(TABLE_ROWS, BATCH_DTYPE)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Its memory, as it is until it grows or shrinks."""
        return self._data, self.table

    def window(self, size: int) -> Bytes:
        """Return the window's place."""
        return self._data[self.window_bytes : self.window_bytes + size]

    def joined(self, carried: Bytes) -> Bytes:
        """Put carried bytes right before the window; returns them, the window and all behind it."""
        first = self.window_bytes - len(carried)
        self._data[first : self.window_bytes] = carried
        return self._data[first:]

    def behind(self, passed: int) -> Bytes:
        """Return the window and all behind it without its first bytes."""
        return self._data[self.window_bytes + passed :]

    def grow_table(self) -> None:
        """Make room for more batches; what the table lists is lost."""
        self.table = np.zeros(4 * len(self.table), BATCH_DTYPE)

    def shrink(self) -> None:
        """Go back to the usual size after a window of very many batches."""
        if len(self.table) > TABLE_ROWS:
            self.table = np.zeros(TABLE_ROWS, BATCH_DTYPE)


class ParallelSegmentReader:
    """
    Reads the batches of one file.

    Args:
        file: the open `.log`.
        size: bytes to read; whatever lies beyond is not looked at.
        start: position of the first batch to read.
        window_bytes: the size of a window; a batch's HEAD_BYTES must fit.
        check_order_from: demand that the first batch's base offset is at least this and that offsets ascend, and
            check what Kafka checks only when it reads records (counts, codecs). None: leave both to the caller; only
            what hides where the next batch begins, and a control batch's checksum, is a failure then.
    """

    def __init__(
        self, file: ReadableFile, *, size: int, start: int, window_bytes: int, check_order_from: int | None
    ) -> None:
        self._file = file
        self._size = size
        self._window_bytes = window_bytes
        self._claimed = start
        # From here on: what belongs to the thread whose turn it is to arrange.
        self._position = start
        self._previous_offset = NO_ORDER_CHECK if check_order_from is None else check_order_from - 1
        self._carried: Bytes = np.zeros(0, np.uint8)
        self._has_failed = False

    @property
    def is_arranged(self) -> bool:
        """Whether nothing is left to arrange: the end was reached, or damage."""
        return self._has_failed or self._position >= self._size

    def claim(self) -> Window | None:
        """Return the next window, None when there is no more. Never to be called by two threads at once."""
        if self.is_arranged:
            return None
        # A batch larger than a window has been read by whoever met it; its windows need not be read again. The next one
        # does not begin where that batch ends: chunks would be cut by who was faster, and what ends with a chunk (the
        # map, where the caller limits it) would end by chance.
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
        List the batches that begin in a filled window or before it. To be called in the order of the claims.

        Returns:
            A chunk in `buffer`; it may have no batches. Damage behind its last batch is its `failure`, and then all
            later windows are empty.
        """
        data, length = buffer.window(0), 0
        if not self._has_failed:  # what was carried is then of no use, and it may be more than there is room for
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
        """Arrange nothing any more, because a window could not be filled; in place of arranging it."""
        self._has_failed = True

    def _join(self, window: Window, buffer: WindowBuffer) -> tuple[Bytes, int]:
        """Put what was carried over before a window's bytes; returns them with the room behind, and their length."""
        passed = max(0, self._position - window.position)
        if passed:
            # Behind a batch that was larger than a window: nothing is carried, some of the window is past.
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
        """Read the rest of a batch that does not fit a window and what is carried to it; others wait meanwhile."""
        data = np.zeros(size + PAD_BYTES, np.uint8)
        data[: len(head)] = head
        self._read(data[len(head) : size], self._position + len(head))
        return data

    def _failure(self, code: int, needed: int, end: int) -> CorruptBatchError | None:
        """Say what is wrong at the place where listing ended, if anything is."""
        if code != status.SCAN_END:
            return CorruptBatchError(self._file.path, self._position, f"{REASONS[code]} (batch of {needed} bytes)")
        left = self._size - self._position
        # Of a batch whose magic is not seen yet, more may be wrong than its size.
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
        is_excused: asked about a batch of magic 2 with a wrong checksum; True passes over it.
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
    """Yield every batch of an arranged chunk whose checksum is wrong: its row, and what to say of it."""
    first = 0
    while first < len(chunk.batches):
        verified = verify_checksums(path, replace(chunk, batches=chunk.batches[first:], failure=None))
        if verified.failure is None:
            return
        first += len(verified.batches)
        yield first, verified.failure
        first += 1
