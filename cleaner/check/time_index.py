"""
A segment's time index held against its batches, chunk by chunk.

An entry (t, o) says that everything later than t lies behind offset o; who seeks by time begins there. So no batch that
ends at or below o may be later than t, o must lie in the segment, and t must be the time of some batch (R-302, R-322).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptIndexError
from cleaner.format.chunks import Batches
from cleaner.storage.indexes import TIME_ENTRY, Entries, OnFault


class TimeIndexCheck:
    """
    Holds the entries against batches that are given in file order.

    Args:
        entries: TIME_ENTRY rows, ascending.
        path: the index file, for error messages.
        base_offset: the segment's.
        on_fault: told of entries that are not good.
        slots: where in the file each entry stands.
    """

    def __init__(
        self, entries: Entries, path: Path, base_offset: int, on_fault: OnFault, slots: npt.NDArray[np.intp]
    ) -> None:
        self._path = path
        self._on_fault = on_fault
        self._slots = slots
        self._offsets = entries["relative_offset"].astype(np.int64) + base_offset
        self._timestamps = entries["timestamp"].astype(np.int64)
        self._next = 0
        self._latest = -1
        self._last_offset = base_offset - 1

    def add(self, batches: Batches) -> None:
        """Take in the next good batches, at least one."""
        last_offsets = np.ascontiguousarray(batches["last_offset"])
        latest = np.maximum.accumulate(np.maximum(batches["max_timestamp"], self._latest))
        stop = int(np.searchsorted(self._offsets, last_offsets[-1]))
        if stop > self._next:
            wanted = slice(self._next, stop)
            ended = np.searchsorted(last_offsets, self._offsets[wanted], side="right")
            before = np.concatenate(([self._latest], latest))[ended]
            self._tell(before > self._timestamps[wanted], "a later timestamp lies at or before its offset")
            self._next = stop
        self._latest = int(latest[-1])
        self._last_offset = int(last_offsets[-1])

    def finish(self, *, is_whole: bool) -> None:
        """Check what could not be told before the end; `is_whole`: no batch is missing or damaged."""
        rest = self._timestamps[self._next :]
        self._tell(self._latest > rest, "a later timestamp lies at or before its offset")
        if is_whole:
            self._tell(self._offsets[self._next :] > self._last_offset, "an offset beyond the segment's last")
            self._next = 0
            within = self._offsets <= self._last_offset
            self._tell(within & (self._timestamps > self._latest), "a timestamp later than all in the segment")

    def _tell(self, bad: npt.NDArray[np.bool_], reason: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            position = int(self._slots[self._next + row]) * TIME_ENTRY.itemsize
            self._on_fault(CorruptIndexError(self._path, position, reason))
