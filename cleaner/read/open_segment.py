"""
One segment that a reader has open: its bytes stay the same even if the file is renamed or removed.

Index files are not read whole: a lookup is a binary search of a few reads. An index entry is only a place to start
from, and is compared with the batch found there, because the indexes of an active segment may be preallocated, torn or
missing.
"""

from __future__ import annotations

import contextlib
import copy
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cleaner.base.closing import Closing
from cleaner.storage.fs.readable import OpenedFile, ReadableFiles
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import OFFSET_ENTRY, TIME_ENTRY

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_BASE_OFFSET_BYTES = 8
_TAIL_ENTRIES = 4
_BLOCK_ENTRIES = 512  # read at once: a page
_LAST_OFFSET = 2**63 - 1

_NO_SUFFIXES: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SegmentFiles:
    """
    One segment.

    Attributes:
        directory: the partition's.
        base_offset: lower bound of its offsets.
        swapped: suffixes of its files whose names still end in `.swap`.
    """

    directory: Path
    base_offset: int
    swapped: frozenset[str] = _NO_SUFFIXES

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with one of `names.SEGMENT_SUFFIXES`."""
        temporary = names.SWAP if suffix in self.swapped else ""
        return self.directory / names.segment_file_name(self.base_offset, suffix, temporary)


class OpenSegment(Closing):
    """
    A segment's `.log`, open. Close it, or use it in a `with` block.

    Attributes:
        place: where it was when it was opened.
        base_offset: lower bound of its offsets.
        file: the `.log`.

    Raises:
        FileNotFoundError: it has gone.
    """

    def __init__(self, fs: ReadableFiles, place: SegmentFiles) -> None:
        self.place = place
        self.base_offset = place.base_offset
        self._fs = fs
        self._is_owner = True
        self.file: OpenedFile = fs.open(place.path(names.LOG))

    def borrowed(self) -> OpenSegment:
        """Return a segment on the same open file; closing it leaves the file open."""
        shared = copy.copy(self)
        shared._is_owner = False
        return shared

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._is_owner:
            self.file.close()

    def is_at(self, place: SegmentFiles) -> bool:
        """Tell whether this same file is at a place now."""
        try:
            there = self._fs.stat(place.path(names.LOG))
        except FileNotFoundError:
            return False
        mine = self.file.stat()
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def position_at(self, offset: int) -> int:
        """
        Return a batch position at or before the batch that holds `offset` (R-314); 0 if the index is of no use.

        Of a damaged index, only an entry that leads behind the offset is noticed here; other damage shows when the
        batches are read.
        """
        relative = offset - self.base_offset
        if relative <= 0:
            return 0
        with self._index(names.INDEX) as index:
            if index is None:
                return 0
            _, entry = _last_entry(
                index, OFFSET_ENTRY.itemsize, lambda entry: _OFFSET_ENTRY.unpack(entry)[0] <= relative
            )
        position = 0 if entry is None else int(_OFFSET_ENTRY.unpack(entry)[1])
        return position if self._may_hold(position, offset) else 0

    def offset_behind(self, position: int) -> int | None:
        """Return an offset above all batches that begin below a position, by the index; None if it does not tell."""
        with self._index(names.INDEX) as index:
            if index is None:
                return None
            last, _ = _last_entry(index, OFFSET_ENTRY.itemsize, lambda entry: _OFFSET_ENTRY.unpack(entry)[1] < position)
            following = index.read(OFFSET_ENTRY.itemsize, (last + 1) * OFFSET_ENTRY.itemsize)
        if len(following) < OFFSET_ENTRY.itemsize or not any(following):
            return None
        return self.base_offset + int(_OFFSET_ENTRY.unpack(following)[0])

    def tail_positions(self, size: int) -> Iterator[int]:
        """
        Yield positions from which to look for the segment's end: those of the last index entries, descending, then 0.

        Args:
            size: bytes of the file that count; an index that was cut less than its log has positions behind them.
        """
        with self._index(names.INDEX) as index:
            if index is not None:
                last, _ = _last_entry(index, OFFSET_ENTRY.itemsize, lambda each: _OFFSET_ENTRY.unpack(each)[1] < size)
                for row in range(last, max(-1, last - _TAIL_ENTRIES), -1):
                    entry = index.read(OFFSET_ENTRY.itemsize, row * OFFSET_ENTRY.itemsize)
                    position = _OFFSET_ENTRY.unpack(entry)[1] if len(entry) == OFFSET_ENTRY.itemsize else 0
                    if 0 < position < size and self._may_hold(position, _LAST_OFFSET):
                        yield position
        yield 0

    def _may_hold(self, position: int, offset: int) -> bool:
        """Tell whether the bytes at a position may be a batch of this segment that begins at or below an offset."""
        if not 0 <= position < self.file.size():
            return False
        head = self.file.read(_BASE_OFFSET_BYTES, position)
        return len(head) == _BASE_OFFSET_BYTES and self.base_offset <= _BASE_OFFSET.unpack(head)[0] <= offset

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset at or before the first record with this or a later timestamp, by the time index (R-314)."""
        with self._index(names.TIME_INDEX) as index:
            if index is None:
                return self.base_offset
            _, entry = _last_entry(
                index, TIME_ENTRY.itemsize, lambda entry: _TIME_ENTRY.unpack(entry)[0] < timestamp_ms
            )
        return self.base_offset if entry is None else self.base_offset + max(0, int(_TIME_ENTRY.unpack(entry)[1]))

    def largest_timestamp(self) -> int | None:
        """Return the largest timestamp, from the time index of a closed segment; None if it has none."""
        with self._index(names.TIME_INDEX) as index:
            if index is None or index.size() < TIME_ENTRY.itemsize:
                return None
            last = index.size() // TIME_ENTRY.itemsize - 1
            timestamp, relative = _TIME_ENTRY.unpack(index.read(TIME_ENTRY.itemsize, last * TIME_ENTRY.itemsize))
        # All zeros: preallocated, and not yet written.
        return None if timestamp <= 0 and relative == 0 else int(timestamp)

    @contextlib.contextmanager
    def _index(self, suffix: str) -> Iterator[OpenedFile | None]:
        try:
            file = self._fs.open(self.place.path(suffix))
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file


def _last_entry(index: OpenedFile, entry_bytes: int, is_wanted: Callable[[bytes], bool]) -> tuple[int, bytes | None]:
    """Return row and bytes of the last wanted entry; all wanted ones come first. Entries of zeros do not count."""
    low, high = 0, index.size() // entry_bytes
    best = None
    first, block = 0, b""
    while low < high:
        if not block and high - low <= _BLOCK_ENTRIES:
            first, block = low, index.read((high - low) * entry_bytes, low * entry_bytes)
        middle = (low + high) // 2
        at = (middle - first) * entry_bytes
        entry = block[at : at + entry_bytes] if block else index.read(entry_bytes, middle * entry_bytes)
        if len(entry) == entry_bytes and any(entry) and is_wanted(entry):
            low, best = middle + 1, entry
        else:
            high = middle
    return low - 1, best
