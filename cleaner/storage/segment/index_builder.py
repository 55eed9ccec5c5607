"""
Builds the offset and time index of a segment from its batches: the only place that decides about index entries.

    offset entry   for the first batch that begins more than `index.interval.bytes` after the last entry's batch
    time entry     with each offset entry, and when the segment is closed: the largest timestamp so far, if it is above
                   the last entry's

So the bytes depend only on the batches, not on the caller: recopying, Spark's sink, recovery, repair and a split build
the indexes of a whole segment, the active segment adds to the indexes it was loaded with. The loop over batches is in
`kernels/index.py`. For entries of the transaction index see `UnstableTransactions.aborted`.

Source: rules R-304, R-311 to R-313, R-320 to R-323; `LogSegment.java` (recover, append, onBecomeInactiveSegment).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.errors import OffsetsOutOfOrderError, UncleanableError
from cleaner.format.buffers import GrowingBuffer
from cleaner.kernels import index as kernel
from cleaner.storage.segment.indexes import OFFSET_ENTRY, TIME_ENTRY, Entries

BatchTable = npt.NDArray[np.void]
IndexMark = Sequence[int]
"""A state of an `IndexBuilder` to which it can go back."""

# Everything that index entries depend on, a row a batch. Tables may have more columns.
WRITTEN_DTYPE = np.dtype([("size", np.int64), ("last_offset", np.int64), ("max_timestamp", np.int64)])

_FIRST_BYTES = 64  # a writer keeps a builder for each of its logs
_NONE_AT_FIRST = [
    kernel.STATE_MAX_TIMESTAMP,
    kernel.STATE_MAX_TIMESTAMP_OFFSET,
    kernel.STATE_LAST_OFFSET,
    kernel.STATE_LAST_TIME,
    kernel.STATE_LAST_TIME_OFFSET,
]

_REASONS = {
    kernel.INDEX_OFFSET_FULL: "its offset index would be full (segment.index.bytes)",
    kernel.INDEX_TIME_FULL: "its time index would be full (segment.index.bytes)",
    kernel.INDEX_OVERFLOW: "an offset is more than 2**31 - 1 above the segment's base offset",
    kernel.INDEX_NOT_ASCENDING: "offsets go back, and index entries must ascend",
}


class OffsetOverflowError(ValueError):
    """
    A batch's last offset does not fit into an index entry of its segment (R-304).

    Attributes:
        row: the batch among those given to `append_checked`.
    """

    def __init__(self, row: int, last_offset: int) -> None:
        self.row = row
        super().__init__(f"offset {last_offset} is too far from the segment's base offset")


class IndexBuilder:
    """
    Builds the index entries of one segment; needs every batch in file order.

    Args:
        path: the `.log`, for error messages.
        base_offset: the segment's.
        interval_bytes: `index.interval.bytes`.
        max_index_bytes: `segment.index.bytes`.
    Attributes:
        interval_bytes, max_index_bytes: may be changed from batch to batch.
    """

    def __init__(self, path: Path, base_offset: int, *, interval_bytes: int, max_index_bytes: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.max_index_bytes = max_index_bytes
        self._offsets, self._times = GrowingBuffer(_FIRST_BYTES), GrowingBuffer(_FIRST_BYTES)
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)
        self._state[_NONE_AT_FIRST] = -1
        # The same numbers, which Python reads several times as fast; replaced after each change, never changed.
        self._cells: list[int] = self._state.tolist()

    def go_on(self, size: int, offsets: Entries, times: Entries) -> None:
        """
        Continue after a segment's existing batches; call it before the first `append`.

        After damage, entries of the time index may lie above the segment's records. No later one can follow them
        (R-313): `append` or `close` raises.

        Args:
            size: bytes of its `.log`.
            offsets, times: its index entries.
        """
        state = self._state
        state[kernel.STATE_POSITION] = size
        state[[kernel.STATE_OFFSET_BYTES, kernel.STATE_OFFSET_BYTES_TAKEN]] = offsets.nbytes
        state[[kernel.STATE_TIME_BYTES, kernel.STATE_TIME_BYTES_TAKEN]] = times.nbytes
        if len(times):
            state[[kernel.STATE_LAST_TIME, kernel.STATE_MAX_TIMESTAMP]] = times[-1]["timestamp"]
            state[kernel.STATE_LAST_TIME_OFFSET] = times[-1]["relative_offset"]
            state[kernel.STATE_MAX_TIMESTAMP_OFFSET] = self._base_offset + int(times[-1]["relative_offset"])
        self._cells = state.tolist()

    def append(self, batches: BatchTable) -> None:
        """
        Add the next batches (R-320).

        Args:
            batches: rows with the columns of WRITTEN_DTYPE.
        Raises:
            UncleanableError: an index is full (R-311, R-325), or an offset does not fit it (R-304).
            OffsetsOutOfOrderError: two entries would not ascend.
        """
        self._make_room(len(batches))
        begin = self.position
        status = kernel.index_batches(
            batches,
            self._base_offset,
            self.interval_bytes,
            self.max_index_bytes,
            self._offsets.array,
            self._times.array,
            self._state,
        )
        self._cells = self._state.tolist()
        if status != kernel.INDEX_DONE:
            row = int(np.searchsorted(np.cumsum(batches["size"]), self.position - begin, side="right"))
            self._fail(status, f"offset {batches['last_offset'][row]} at position {self.position}")

    def append_checked(self, batches: BatchTable) -> None:
        """
        Add unchecked batches: checks the offsets of all of them, not only of those with an entry.

        Raises:
            OffsetOverflowError: a last offset is below the base offset or more than 2**31 - 1 above it.
            UncleanableError, OffsetsOutOfOrderError: see `append`.
        """
        relative = batches["last_offset"] - self._base_offset
        outside = (relative < 0) | (relative > MAX_RELATIVE_OFFSET)
        if outside.any():
            row = int(outside.argmax())
            raise OffsetOverflowError(row, int(batches["last_offset"][row]))
        self.append(batches)

    def close(self) -> None:
        """Add the closing time entry of an inactive segment, even if the time index is full (R-322)."""
        self._make_room(0)
        status = kernel.append_time_entry(self._times.array, self._base_offset, self._state)
        self._cells = self._state.tolist()
        if status != kernel.INDEX_DONE:
            self._fail(status, f"offset {self._cells[kernel.STATE_MAX_TIMESTAMP_OFFSET]} of the largest timestamp")

    def _make_room(self, batches: int) -> None:
        offset_bytes, time_bytes = self._new_offset_bytes, self._new_time_bytes
        self._offsets.ensure(offset_bytes + (batches + 1) * OFFSET_ENTRY.itemsize, keep=offset_bytes)
        self._times.ensure(time_bytes + (batches + 1) * TIME_ENTRY.itemsize, keep=time_bytes)

    def _fail(self, status: int, entry: str) -> NoReturn:
        error = OffsetsOutOfOrderError if status == kernel.INDEX_NOT_ASCENDING else UncleanableError
        raise error(self._path, f"{_REASONS[status]}: {entry}")

    # ---- the result ------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Bytes of the `.log` so far."""
        return self._cells[kernel.STATE_POSITION]

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp so far, -1 without one."""
        return self._cells[kernel.STATE_MAX_TIMESTAMP]

    @property
    def offset_index_bytes(self) -> int:
        """Bytes of the offset index, including taken ones."""
        return self._cells[kernel.STATE_OFFSET_BYTES]

    @property
    def time_index_bytes(self) -> int:
        """Bytes of the time index, including taken ones."""
        return self._cells[kernel.STATE_TIME_BYTES]

    @property
    def offset_index(self) -> memoryview:
        """The bytes of the offset index that are not taken yet."""
        return self._offsets.view[: self._new_offset_bytes]

    @property
    def time_index(self) -> memoryview:
        """The bytes of the time index that are not taken yet."""
        return self._times.view[: self._new_time_bytes]

    @property
    def has_new_entries(self) -> bool:
        """Tell whether there are entries that are not taken yet."""
        return self._new_offset_bytes > 0 or self._new_time_bytes > 0

    @property
    def _new_offset_bytes(self) -> int:
        return self._cells[kernel.STATE_OFFSET_BYTES] - self._cells[kernel.STATE_OFFSET_BYTES_TAKEN]

    @property
    def _new_time_bytes(self) -> int:
        return self._cells[kernel.STATE_TIME_BYTES] - self._cells[kernel.STATE_TIME_BYTES_TAKEN]

    def taken(self) -> None:
        """Note that all entries so far were written: their bytes are no longer needed here."""
        state = self._state
        state[kernel.STATE_OFFSET_BYTES_TAKEN] = state[kernel.STATE_OFFSET_BYTES]
        state[kernel.STATE_TIME_BYTES_TAKEN] = state[kernel.STATE_TIME_BYTES]
        self._cells = state.tolist()

    def finish(self) -> tuple[Entries, Entries]:
        """Close the indexes and return the offset and the time entries."""
        self.close()
        return np.frombuffer(self.offset_index, OFFSET_ENTRY).copy(), np.frombuffer(self.time_index, TIME_ENTRY).copy()

    def is_full(self, max_index_bytes: int) -> bool:
        """Tell whether an index has no room for another entry; the time index reserves one for the last (R-311)."""
        return (
            self.offset_index_bytes // OFFSET_ENTRY.itemsize >= max_index_bytes // OFFSET_ENTRY.itemsize
            or self.time_index_bytes // TIME_ENTRY.itemsize >= max_index_bytes // TIME_ENTRY.itemsize - 1
        )

    def mark(self) -> IndexMark:
        """Return the current state; all entries must be taken."""
        return self._cells

    def go_back(self, mark: IndexMark) -> None:
        """Forget the batches added since a mark."""
        self._state[:] = mark
        self._cells = self._state.tolist()
