"""
What a reader has seen of a scripted log, held against the script.

A record may be missing only for what cleaning is for, and only below the active segment, which no round reads: it was
superseded below there, it was aborted, or it is a tombstone that has stayed as long as it must.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cleaner.log.columns import Columns
from cleaner.log.record import Record
from tests.coexistence.script import KEYS, Offsets, Script, State

_EIGHT = np.arange(8)


class Seen(NamedTuple):
    """Some records that came one after the other; `numbers` are what their values begin with, -1 for none."""

    offsets: Offsets
    timestamps_ms: Offsets
    keys: Offsets
    value_sizes: Offsets
    numbers: Offsets

    @staticmethod
    def of_columns(columns: Columns) -> Seen:
        """Take columns apart, without an object a record."""
        assert (columns.key_sizes == 8).all()
        keys = columns.data[columns.key_starts[:, None] + _EIGHT].view(">i8")[:, 0].astype(np.int64)
        numbers = np.full(len(columns), -1)
        has_value = columns.value_sizes >= 8
        starts = columns.value_starts[has_value]
        numbers[has_value] = columns.data[starts[:, None] + _EIGHT].view(">i8")[:, 0]
        return Seen(columns.offsets, columns.timestamps_ms, keys, columns.value_sizes.astype(np.int64), numbers)

    @staticmethod
    def of_records(records: Sequence[Record]) -> Seen:
        """Take objects apart."""
        return Seen(
            np.array([record.offset for record in records]),
            np.array([record.timestamp_ms for record in records]),
            np.array([int.from_bytes(record.key or b"") for record in records]),
            np.array([-1 if record.value is None else len(record.value) for record in records]),
            np.array([-1 if record.value is None else int.from_bytes(record.value[:8]) for record in records]),
        )


class Witness:
    """
    One reader's view of a scripted log.

    Args:
        script: what has to be there.
        committed: it does not see aborted records.
        active_base: tells the base offset of the log's last segment.
        tombstones_stay_ms: `delete.retention.ms`.

    Attributes:
        next_offset: behind the last record that came.
        count: how many came.
        gaps: how many of the records that it could have seen had been cleaned away.
    """

    def __init__(
        self, script: Script, *, committed: bool, active_base: Callable[[], int], tombstones_stay_ms: int
    ) -> None:
        self.next_offset = self.count = self.gaps = 0
        self._script = script
        self._committed = committed
        self._active_base = active_base
        self._tombstones_stay_ms = tombstones_stay_ms
        self._last = np.full(KEYS, -1)

    def start_at(self, offset: int) -> None:
        """Begin to read anew from an offset; what was seen is kept."""
        self.next_offset = offset

    def take(self, seen: Seen) -> None:
        """Judge the next records."""
        if not len(seen.offsets):
            return
        offsets, script = seen.offsets, self._script
        assert offsets[0] >= self.next_offset, f"offset {offsets[0]} after {self.next_offset - 1}"
        assert (np.diff(offsets) > 0).all(), "offsets do not ascend"
        may_come = script.counts(offsets) if self._committed else script.is_record(offsets)
        assert may_come.all(), f"{offsets[~may_come][:5]} should not be seen"
        assert (seen.keys == script.keys(offsets)).all()
        assert (seen.value_sizes == script.value_sizes(offsets)).all()
        assert (seen.numbers == np.where(script.is_tombstone(offsets), -1, offsets)).all()
        self._judge_gaps(seen)
        mine = offsets[script.counts(offsets)]
        np.maximum.at(self._last, script.keys(mine), mine)
        self.next_offset = int(offsets[-1]) + 1
        self.count += len(offsets)

    def _judge_gaps(self, seen: Seen) -> None:
        script = self._script
        between = np.arange(self.next_offset, int(seen.offsets[-1]))
        wanted = script.counts(between) if self._committed else script.is_record(between)
        missing = np.setdiff1d(between[wanted], seen.offsets, assume_unique=True)
        if not len(missing):
            return
        # Asked for behind the reading: what was cleaned away by then had been below.
        base = self._active_base()
        assert missing[-1] < base, f"{missing[missing >= base][:5]} are missing from {base} on, which nobody cleans"
        lost = missing[script.counts(missing)]
        lost = lost[script.next_of_key(lost) >= base]
        assert script.is_tombstone(lost).all(), (
            f"{lost[~script.is_tombstone(lost)][:5]} are missing: last of their keys"
        )
        before = np.searchsorted(seen.offsets, lost) - 1
        written_ms = seen.timestamps_ms[before[before >= 0]]  # at the latest: times ascend here
        age_ms = time.time() * 1000 - written_ms.max(initial=0)
        assert age_ms >= self._tombstones_stay_ms, f"a tombstone of {age_ms:.0f} ms ago has gone"
        self.gaps += len(missing)

    def finish(self, end: int, state: State) -> None:
        """Judge what this reader has made of the whole log, which ends here."""
        last = state.at(end)
        is_right = self._last == last
        # Of a key that was deleted before this reader came nothing has to be left.
        has_gone = (self._last == -1) & self._script.is_tombstone(last)
        assert (is_right | has_gone).all(), (
            f"keys {np.flatnonzero(~(is_right | has_gone))[:5]} are not what they should be"
        )
