"""
Compares a segment's time index with its batches, chunk by chunk.

An entry (t, o) says that all records later than t come after offset o; a search by time begins there. So no batch that
ends at or below o may be later than t, o must be in the segment, and t must be the time of the batch that holds o
(R-302, R-322).

If an entry is missing, a search by time begins too early, which is harmless. But the last entry of a closed segment
gives its largest timestamp, which retention and compaction lag use (R-324): it must exist. And each entry of the offset
index was written together with one here, unless the time was already covered (R-320): up to each entry of the offset
index, the time index must cover all timestamps.
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
    Compares the entries with batches that are given in file order.

    Args:
        entries: TIME_ENTRY rows, ascending.
        path: the index file, for error messages.
        base_offset: of the segment.
        on_fault: called with bad entries.
        slots: the place of each entry in the file.
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
        # The largest timestamp up to each offset of the offset index that was reached.
        self._latest_at = np.full(len(indexed), -1, np.int64)
        self._next_indexed = 0
        self._is_of_batch = np.zeros(len(entries), bool)
        self._next = 0
        self._latest = -1
        self._last_offset = base_offset - 1

    def add(self, batches: Batches) -> None:
        """Add the next good batches, at least one."""
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
            self._report(before > self._timestamps[wanted], "a later timestamp lies at or before its offset")
            self._next = stop
        self._latest = int(latest[-1])
        self._last_offset = int(last_offsets[-1])

    def _find_batches(self, batches: Batches, last_offsets: npt.NDArray[np.int64]) -> None:
        """Find the entries that have the timestamp of the batch that holds their offset."""
        first = int(np.searchsorted(self._offsets, batches["base_offset"][0]))
        mine = slice(first, int(np.searchsorted(self._offsets, last_offsets[-1], side="right")))
        at = np.searchsorted(last_offsets, self._offsets[mine])
        holds = batches["base_offset"][at] <= self._offsets[mine]
        self._is_of_batch[mine] = holds & (batches["max_timestamp"][at] == self._timestamps[mine])

    def finish(self, *, is_whole: bool, is_complete: bool) -> None:
        """
        Check what is known only at the end.

        Args:
            is_whole: no batch is missing or damaged.
            is_complete: both indexes are sound, and the segment was closed: no entry may be missing.
        """
        rest = self._timestamps[self._next :]
        self._report(self._latest > rest, "a later timestamp lies at or before its offset")
        if is_whole:
            self._report(self._offsets[self._next :] > self._last_offset, "an offset beyond the segment's last")
            self._next = 0
            within = self._offsets <= self._last_offset
            too_late = within & (self._timestamps > self._latest)
            self._report(too_late, "a timestamp later than all in the segment")
            self._report(
                within & ~too_late & ~self._is_of_batch, "a timestamp that the batch at its offset does not have"
            )
            if is_complete:
                self._find_missing()

    def _find_missing(self) -> None:
        """Report timestamps that no entry covers, at the entry before which one is missing."""
        after = np.searchsorted(self._offsets, self._indexed[: self._next_indexed], side="right")
        covered = np.concatenate(([-1], np.maximum.accumulate(self._timestamps)))
        missing = covered[after] < self._latest_at[: self._next_indexed]
        if missing.any():
            offset = int(self._indexed[int(missing.argmax())])
            self._report_missing(
                int(after[int(missing.argmax())]), f"no entry for the timestamps up to offset {offset}"
            )
        elif covered[-1] < self._latest:
            self._report_missing(len(self._offsets), "no last entry with the segment's largest timestamp")

    def _report_missing(self, row: int, reason: str) -> None:
        slot = int(self._slots[row]) if row < len(self._slots) else len(self._slots)
        self._on_fault(CorruptIndexError(self._path, slot * TIME_ENTRY.itemsize, reason))

    def _report(self, bad: npt.NDArray[np.bool_], reason: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            position = int(self._slots[self._next + row]) * TIME_ENTRY.itemsize
            self._on_fault(CorruptIndexError(self._path, position, reason))
