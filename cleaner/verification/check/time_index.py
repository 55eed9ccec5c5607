"""
A segment's time index held against its batches, chunk by chunk.

An entry (t, o) says that everything later than t lies behind offset o; who seeks by time begins there. So no batch that
ends at or below o may be later than t, o must lie in the segment, and t must be the time of the batch that holds o
(R-302, R-322).

Where an entry is missing, a search by time begins too early, which harms nobody. But of a segment that is written no
more the last one tells its largest timestamp, by which retention and compaction lag go (R-324): it has to be there. And
each entry of the offset index was written together with one here, unless the time was known already (R-320): wherever
the offset index has an entry, the time index has to know all times up to there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptIndexError
from cleaner.format.chunks import Batches
from cleaner.storage.segment.indexes import TIME_ENTRY, Entries, OnFault


class TimeIndexCheck:
    """
    Holds the entries against batches that are given in file order.

    Args:
        entries: TIME_ENTRY rows, ascending.
        path: the index file, for error messages.
        base_offset: the segment's.
        on_fault: called with entries that are not good.
        slots: where in the file each entry stands.
        indexed: offsets of the entries of the offset index, ascending.
    """

    def __init__(
        self,
        entries: Entries,
        path: Path,
        base_offset: int,
        on_fault: OnFault,
        slots: npt.NDArray[np.intp],
        indexed: npt.NDArray[np.int64],
    ) -> None:
        self._path = path
        self._on_fault = on_fault
        self._slots = slots
        self._offsets = entries["relative_offset"].astype(np.int64) + base_offset
        self._timestamps = entries["timestamp"].astype(np.int64)
        self._indexed = indexed
        # The largest timestamp up to each offset of the offset index; those that were come to.
        self._latest_at = np.full(len(indexed), -1, np.int64)
        self._next_indexed = 0
        self._is_of_batch = np.zeros(len(entries), bool)
        self._next = 0
        self._latest = -1
        self._last_offset = base_offset - 1

    def add(self, batches: Batches) -> None:
        """Take in the next good batches, at least one."""
        last_offsets = np.ascontiguousarray(batches["last_offset"])
        latest = np.maximum.accumulate(np.maximum(batches["max_timestamp"], self._latest))
        self._find_batches(batches, last_offsets)
        known = np.concatenate(([self._latest], latest))
        stop = int(np.searchsorted(self._indexed, last_offsets[-1], side="right"))
        wanted = slice(self._next_indexed, stop)
        self._latest_at[wanted] = known[np.searchsorted(last_offsets, self._indexed[wanted], side="right")]
        self._next_indexed = max(self._next_indexed, stop)
        stop = int(np.searchsorted(self._offsets, last_offsets[-1]))
        if stop > self._next:
            wanted = slice(self._next, stop)
            ended = np.searchsorted(last_offsets, self._offsets[wanted], side="right")
            before = known[ended]
            self._tell(before > self._timestamps[wanted], "a later timestamp lies at or before its offset")
            self._next = stop
        self._latest = int(latest[-1])
        self._last_offset = int(last_offsets[-1])

    def _find_batches(self, batches: Batches, last_offsets: npt.NDArray[np.int64]) -> None:
        """See which entries have the timestamp of the batch that holds their offset."""
        first = int(np.searchsorted(self._offsets, batches["base_offset"][0]))
        mine = slice(first, int(np.searchsorted(self._offsets, last_offsets[-1], side="right")))
        at = np.searchsorted(last_offsets, self._offsets[mine])
        holds = batches["base_offset"][at] <= self._offsets[mine]
        self._is_of_batch[mine] = holds & (batches["max_timestamp"][at] == self._timestamps[mine])

    def finish(self, *, is_whole: bool, is_complete: bool) -> None:
        """
        Check what could not be told before the end.

        Args:
            is_whole: no batch is missing or damaged.
            is_complete: so are both indexes, and the segment was closed: all entries have to be there.
        """
        rest = self._timestamps[self._next :]
        self._tell(self._latest > rest, "a later timestamp lies at or before its offset")
        if is_whole:
            self._tell(self._offsets[self._next :] > self._last_offset, "an offset beyond the segment's last")
            self._next = 0
            within = self._offsets <= self._last_offset
            too_late = within & (self._timestamps > self._latest)
            self._tell(too_late, "a timestamp later than all in the segment")
            self._tell(
                within & ~too_late & ~self._is_of_batch, "a timestamp that the batch at its offset does not have"
            )
            if is_complete:
                self._find_missing()

    def _find_missing(self) -> None:
        """Tell of times that no entry tells; each is found at the entry that should have come before."""
        after = np.searchsorted(self._offsets, self._indexed[: self._next_indexed], side="right")
        told = np.concatenate(([-1], np.maximum.accumulate(self._timestamps)))
        missing = told[after] < self._latest_at[: self._next_indexed]
        if missing.any():
            offset = int(self._indexed[int(missing.argmax())])
            self._tell_missing(int(after[int(missing.argmax())]), f"no entry for the timestamps up to offset {offset}")
        elif told[-1] < self._latest:
            self._tell_missing(len(self._offsets), "no last entry with the segment's largest timestamp")

    def _tell_missing(self, row: int, reason: str) -> None:
        slot = int(self._slots[row]) if row < len(self._slots) else len(self._slots)
        self._on_fault(CorruptIndexError(self._path, slot * TIME_ENTRY.itemsize, reason))

    def _tell(self, bad: npt.NDArray[np.bool_], reason: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            position = int(self._slots[self._next + row]) * TIME_ENTRY.itemsize
            self._on_fault(CorruptIndexError(self._path, position, reason))
