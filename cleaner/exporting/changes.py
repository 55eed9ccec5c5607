"""
What changed between two tables of a partition: rows to put, and keys to delete.

Both tables are read once, side by side, in the order of their offsets. A row that both have at one offset, with the
same content, has not changed. Of the others those of the new table are the upserts, and keys of the old table that have
no upsert are the deletes. So it does not matter why a key is gone: its tombstone may be gone too, the log may begin
later, or it may have been cut and written anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cleaner.exporting.forms import COLUMNS, SCHEMA, records_of
from cleaner.spark.source.arrow import ROWS

_Flags = npt.NDArray[np.bool_]


class InOrder:
    """Rows that ascend by offset, taken piece by piece."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def below(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows below an offset."""
        while (rows := self._rest if self._rest is not None else next(self._batches, None)) is not None:
            count = int(np.searchsorted(_offsets(rows), end))
            self._rest = rows.slice(count) if count < len(rows) else None
            if count:
                yield rows.slice(0, count)
            if self._rest is not None:
                return


class Changes:
    """
    The changes of one partition; keys of changed rows are kept in memory.

    Args:
        old: rows of the old table, ascending by offset.
    """

    def __init__(self, old: Iterator[pa.RecordBatch]) -> None:
        self._old = InOrder(old)
        self._gone: list[pa.Array] = []  # keys of rows that only the old table has
        self._come: list[pa.Array] = []  # keys of rows that only the new table has

    def upserts(self, new: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changed rows among the next ones of the new table."""
        offsets = _offsets(new)
        has_changed = np.ones(len(new), bool)
        for old in self._old.below(int(offsets[-1]) + 1):
            found = _offsets(old)
            at = np.minimum(np.searchsorted(offsets, found), len(offsets) - 1)
            is_here = offsets[at] == found
            rows, places = np.flatnonzero(is_here), at[is_here]
            is_same = _same(old.take(pa.array(rows)), new.take(pa.array(places)))
            has_changed[places[is_same]] = False
            is_here[rows[~is_same]] = False
            self._gone.append(old.column("key").filter(pa.array(~is_here)))
        changed = new.filter(pa.array(has_changed))
        self._come.append(changed.column("key"))
        return changed

    def deletes(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield a row for each key that is no longer in the table, when all of the new one was given."""
        self.go_on(iter(()))
        gone, come = (
            pa.chunked_array(parts, pa.binary()).cast(pa.large_binary()) for parts in (self._gone, self._come)
        )
        left = gone.combine_chunks()
        left = left.filter(pc.invert(pc.is_in(left, value_set=come.combine_chunks())))
        for first in range(0, len(left), ROWS):
            keys = left.slice(first, ROWS).cast(pa.binary())
            columns = {"key": keys, "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(keys))}
            nulls = (pa.nulls(len(keys), field.type) for field in SCHEMA)
            arrays = [columns.get(name, null) for name, null in zip(COLUMNS, nulls, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def go_on(self, old: Iterator[pa.RecordBatch]) -> None:
        """Go on with other rows of the old table; those that are left of the ones before have no new row."""
        self._gone += [rows.column("key") for rows in self._old.below(1 << 63)]
        self._old = InOrder(old)


def _offsets(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    offsets: npt.NDArray[np.int64] = np.asarray(rows.column("offset"))
    return offsets


def _same(old: pa.RecordBatch, new: pa.RecordBatch) -> _Flags:
    """Tell which rows are the same. Nearly always all are: another record at an offset is of a log that was cut."""
    if old.equals(new):
        return np.ones(len(old), bool)
    return np.array([first == second for first, second in zip(records_of(old), records_of(new), strict=True)], bool)
