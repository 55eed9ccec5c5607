"""
Builds a segment's offset and time index from its batches.

For a segment that one process wrote from empty, this gives the same bytes as the writer's own indexes (R-320, R-323):
an entry for the first batch that begins more than `index.interval.bytes` after the last entry's batch.

Source: rules R-304, R-311 to R-313, R-320 to R-323; `LogSegment.java` (recover, append, onBecomeInactiveSegment).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cleaner.errors import UncleanableError
from cleaner.format.chunks import Batches
from cleaner.storage.segment.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    Entries,
    offset_entries,
    time_entries,
)

NO_TIMESTAMP = -1


class OffsetsOutOfOrderError(ValueError):
    """An index entry would not be above the previous one (R-312)."""


class OffsetOverflowError(ValueError):
    """
    A batch's last offset does not fit into an index entry of its segment (R-304).

    Attributes:
        row: the batch among those given to `add`.
    """

    def __init__(self, row: int, last_offset: int) -> None:
        self.row = row
        super().__init__(f"offset {last_offset} is too far from the segment's base offset")


class IndexBuilder:
    """
    Collects the index entries of one segment; feed it every batch in file order, then take the entries.

    Args:
        path: the `.log`, for error messages.
        base_offset: the segment's.
        interval_bytes: `index.interval.bytes`.
        max_index_bytes: `segment.index.bytes`.
    """

    def __init__(self, path: Path, base_offset: int, *, interval_bytes: int, max_index_bytes: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._max_offset_entries = max_index_bytes // OFFSET_ENTRY.itemsize
        self._max_time_entries = max_index_bytes // TIME_ENTRY.itemsize
        self._last_entry_position = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max = base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._times: list[int] = []
        self._time_offsets: list[int] = []

    def add(self, batches: Batches) -> None:
        """
        Add the next batches.

        Raises:
            OffsetOverflowError: a last offset is below the base offset or more than 2**31 - 1 above it.
            OffsetsOutOfOrderError: two entries would not ascend.
            UncleanableError: an index is full (R-311).
        """
        if not len(batches):
            return
        last_offsets = np.ascontiguousarray(batches["last_offset"])
        relative = last_offsets - self._base_offset
        outside = (relative < 0) | (relative > MAX_RELATIVE_OFFSET)
        if outside.any():
            row = int(outside.argmax())
            raise OffsetOverflowError(row, int(last_offsets[row]))
        timestamps = np.ascontiguousarray(batches["max_timestamp"])
        maxima = np.maximum.accumulate(np.maximum(timestamps, self._max_timestamp))
        # The row that raised the maximum for the last time, at each row; -1: none in this chunk.
        raised = timestamps > np.concatenate(([self._max_timestamp], maxima[:-1]))
        raisers = np.maximum.accumulate(np.where(raised, np.arange(len(batches)), -1))
        for row in self._entry_rows(np.ascontiguousarray(batches["position"])):
            raiser = int(raisers[row])
            if raiser >= 0:
                self._offset_of_max = int(last_offsets[raiser])
            self._max_timestamp = int(maxima[row])
            self._append(int(relative[row]), int(batches["position"][row]))
        if raisers[-1] >= 0:
            self._offset_of_max = int(last_offsets[raisers[-1]])
        self._max_timestamp = int(maxima[-1])

    def _entry_rows(self, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
        rows: list[int] = []
        while True:
            row = int(np.searchsorted(positions, self._last_entry_position + self._interval_bytes, side="right"))
            if row == len(positions):
                return rows
            self._last_entry_position = int(positions[row])
            rows.append(row)

    def _append(self, relative_offset: int, position: int) -> None:
        if len(self._offsets) >= self._max_offset_entries:
            raise UncleanableError(self._path, f"its offset index is full at {self._max_offset_entries} entries")
        if self._offsets and relative_offset <= self._offsets[-1]:
            raise OffsetsOutOfOrderError(f"offset {relative_offset + self._base_offset} at position {position}")
        self._offsets.append(relative_offset)
        self._positions.append(position)
        # As in Kafka, checked for a full index even if there is no entry to write.
        if len(self._times) >= self._max_time_entries - 1:
            raise UncleanableError(self._path, f"its time index is full at {self._max_time_entries - 1} entries")
        self._append_time()

    def _append_time(self) -> None:
        relative_offset = self._offset_of_max - self._base_offset
        if self._times and relative_offset < self._time_offsets[-1]:
            raise OffsetsOutOfOrderError(f"offset {self._offset_of_max} of the largest timestamp")
        if self._max_timestamp > (self._times[-1] if self._times else NO_TIMESTAMP):
            self._times.append(self._max_timestamp)
            self._time_offsets.append(relative_offset)

    def finish(self) -> tuple[Entries, Entries]:
        """Return offset and time entries, with the closing time entry of an inactive segment (R-322)."""
        self._append_time()
        return offset_entries(self._offsets, self._positions), time_entries(self._times, self._time_offsets)
