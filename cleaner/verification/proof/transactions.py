"""
Finds the data of aborted transactions by the markers themselves, and judges the markers.

A producer's transactional batches up to its next marker are that marker's transaction. The transaction indexes of the
log after must agree: readers of committed records skip batches by them. And they must have no more entries than those
of the log before, since an entry is removed with the last data of its transaction (R-533, R-534).
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.format.control import ControlType
from cleaner.storage.segment.indexes import LAST_OFFSET
from cleaner.storage.segment.names import TXN_INDEX
from cleaner.verification.proof.findings import Findings, RefutationKind
from cleaner.verification.proof.last_values import Uncounted
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.side import LogSide

ABSENT, EMPTY, WITH_RECORDS = range(3)
_PRODUCER = 0


class DataBatch(NamedTuple):
    """
    A transactional batch of the log before, and its state in the log after.

    `became` is one of ABSENT, EMPTY and WITH_RECORDS; `is_hidden`: by the transaction indexes of the log after;
    `has_lost`: records after the cleaned range's end are missing; `is_expired`: its segment is gone, which is allowed;
    `is_passed_over`: the first round's first pass took it as aborted.
    """

    base_offset: int
    last_offset: int
    path: Path
    position: int
    became: int
    is_hidden: bool
    has_lost: bool
    is_expired: bool
    is_passed_over: bool


class Marker(NamedTuple):
    """
    A control batch of the log before, and its state in the log after.

    `type` is -1 without a record; `horizon_ms` and `new_horizon_ms` are the horizons before and after, None for none.
    `has_to_stay`: a producer needs it, or it is the log's end. `path` and `position` are those of the batch after, if
    it exists.
    """

    base_offset: int
    producer_id: int
    type: int
    path: Path
    position: int
    became: int
    horizon_ms: int | None
    new_horizon_ms: int | None
    has_to_stay: bool


class Transactions:
    """
    Follows the transactions of the log before.

    Args:
        before, after: the logs.
        rules: facts about the rounds.
        recopied_end: end of the segments that rounds have recopied.
        is_first_pass_exact: it is certain which batches the first round's first pass took as aborted.
        findings: gets the errors.
    """

    def __init__(
        self,
        before: LogSide,
        after: LogSide,
        rules: ProofRules,
        recopied_end: int,
        findings: Findings,
        *,
        is_first_pass_exact: bool = True,
    ) -> None:
        self._rules = rules
        self._log_start_offset = before.log_start_offset
        self._recopied_end = recopied_end
        self._findings = findings
        self._after = after
        self._has_indexes = is_first_pass_exact
        self._is_exact = rules.is_one_round and is_first_pass_exact
        # Entries of the transaction indexes, by the marker's offset.
        self._entries_before = {int(entry[LAST_OFFSET]): entry.tolist() for entry in before.aborted()}
        self._entries_after = {int(entry[LAST_OFFSET]): entry.tolist() for entry in after.aborted()}
        self._aborts_before: dict[int, list[int]] = {}
        for at in sorted(self._entries_before):
            self._aborts_before.setdefault(self._entries_before[at][_PRODUCER], []).append(at)
        self._expected_entries: set[int] = set()
        self._possible_entries: set[int] = set()
        self._open: dict[int, list[DataBatch]] = {}
        self._aborted: list[tuple[int, int]] = []
        self._passed_over: list[tuple[int, int]] = []
        self._doubtful: list[tuple[int, int]] = []
        # Producers whose ABORT marker a later round's first pass may have missed.
        self._missed: set[int] = set()
        # Producers with aborted data that rounds do not know, since its marker is below the log start or in no
        # index: it counts as committed, and as data of their next COMMIT.
        self._unknown: set[int] = set()

    def add_data(self, producer_id: int, batch: DataBatch) -> None:
        """Add a transactional data batch."""
        self._open.setdefault(producer_id, []).append(batch)

    def add_marker(self, marker: Marker, *, was_recopied: bool) -> None:
        """Add a control batch; `was_recopied`: a round may have changed it."""
        data: list[DataBatch] = []
        if marker.type in (ControlType.ABORT, ControlType.COMMIT):
            data = self._open.pop(marker.producer_id, [])
        if marker.type == ControlType.ABORT:
            self._end_aborted(data, marker)
            self._missed.discard(marker.producer_id)
            if self._may_be_missed(marker, data):
                self._missed.add(marker.producer_id)
        else:
            self._end_committed(data, may_be_passed_over=marker.producer_id in self._missed)
        if was_recopied and marker.base_offset >= self._log_start_offset:
            self._judge(marker, data)
        if marker.type == ControlType.ABORT:
            self._expect_entry(marker, data, was_recopied)
        elif marker.type == ControlType.COMMIT:
            self._unknown.discard(marker.producer_id)

    def finish(self) -> None:
        """End the log; data of open transactions is kept, like committed data."""
        for data in self._open.values():
            self._end_committed(data, may_be_passed_over=False)
        self._compare_entries()

    def uncounted(self) -> Uncounted:
        """Return the batches whose records do not count, or may not."""
        found = (self._aborted, self._passed_over, self._doubtful)
        return Uncounted(*(np.array(sorted(some), np.int64).reshape(-1, 2) for some in found))

    def _end_committed(self, data: list[DataBatch], *, may_be_passed_over: bool) -> None:
        for batch in data:
            if batch.is_passed_over and self._is_exact:
                self._passed_over.append((batch.base_offset, batch.last_offset))
            elif batch.is_passed_over or may_be_passed_over:
                self._doubtful.append((batch.base_offset, batch.last_offset))
            if batch.has_lost:
                self._report(RefutationKind.LOST, batch, "records after the cleaned range are missing")
            if batch.is_hidden and batch.became == WITH_RECORDS:
                self._report(RefutationKind.TRANSACTION, batch, "committed, but a transaction index calls it aborted")

    def _may_be_missed(self, marker: Marker, data: list[DataBatch]) -> bool:
        """
        Tell whether a round may have begun after an ABORT marker, in the same segment, and found its entry there.

        The round before recopied the segment and still saw data of the transaction; this round saw none, so it gave the
        marker a horizon, or could remove it.
        """
        rules = self._rules
        begins_at = max(marker.base_offset, rules.first_dirty_offset) + 1
        if rules.is_one_round or begins_at >= rules.end_offset:
            return False
        is_untouched = marker.became == WITH_RECORDS and marker.new_horizon_ms is None
        if is_untouched and rules.sets_horizons and all(batch.became == ABSENT for batch in data):
            return False
        first, end = self._after.range_of(marker.base_offset)
        aborts = self._aborts_before.get(marker.producer_id, [])
        number = bisect_right(aborts, marker.base_offset)
        had_entry = not self._has_indexes or (number > 0 and aborts[number - 1] >= first)
        return begins_at < end and had_entry

    def _end_aborted(self, data: list[DataBatch], marker: Marker) -> None:
        is_unknown = marker.base_offset < self._log_start_offset
        if data and (is_unknown or marker.base_offset not in self._entries_before):
            self._unknown.add(marker.producer_id)
        for batch in data:
            self._aborted.append((batch.base_offset, batch.last_offset))
            if batch.became != WITH_RECORDS or is_unknown:
                continue
            if batch.base_offset < self._recopied_end:
                self._report(RefutationKind.REVIVED, batch, "records of an aborted transaction are kept")
            elif not batch.is_hidden:
                self._report(
                    RefutationKind.TRANSACTION, batch, "aborted, but no transaction index says so: readers would see it"
                )

    def _judge(self, marker: Marker, data: list[DataBatch]) -> None:
        rules = self._rules
        is_end = marker.type in (ControlType.ABORT, ControlType.COMMIT)
        # Rounds learn from the transaction indexes alone what a marker aborts: without an entry it has no data to them.
        is_known = marker.type != ControlType.ABORT or marker.base_offset in self._entries_before
        was_seen = is_known and any(not batch.is_expired for batch in data)
        is_seen = is_known and any(batch.became != ABSENT for batch in data)
        has_passed = marker.horizon_ms is not None and marker.horizon_ms <= rules.now_ms
        may_go = marker.type < 0 or (
            is_end and ((has_passed and not was_seen) or (rules.lasted_retention and not is_seen))
        )
        if marker.became == ABSENT and marker.has_to_stay:
            return  # reported already
        if marker.became != WITH_RECORDS:
            if not may_go:
                reason = "its transaction still has data" if is_seen else "its horizon has not passed"
                self._report_marker(marker, f"the marker is gone, but {reason}")
        elif rules.is_now_exact and is_end and has_passed and not data:
            self._report_marker(marker, "the marker is kept past its horizon", RefutationKind.REVIVED)
        elif marker.horizon_ms is not None:
            if marker.new_horizon_ms != marker.horizon_ms:
                self._report_marker(marker, "its delete horizon has changed", RefutationKind.HORIZON)
        elif marker.new_horizon_ms is not None:
            had_data = rules.is_one_round and was_seen
            if is_seen or had_data or not is_end or not rules.allows_new_horizon(marker.new_horizon_ms):
                self._report_marker(marker, "the marker has a horizon that no round has set", RefutationKind.HORIZON)
        elif is_end and not data and rules.sets_horizons and marker.producer_id not in self._unknown:
            self._report_marker(
                marker, "a marker that was cleaned without data has no delete horizon", RefutationKind.HORIZON
            )

    def _expect_entry(self, marker: Marker, data: list[DataBatch], was_recopied: bool) -> None:
        """
        Note whether the log after must have an ABORT marker's entry.

        In a recopied segment the entry is removed when the last data of its transaction is gone, in the round that
        gives the marker a horizon, or could remove it.
        """
        at = marker.base_offset
        if at < self._after.log_start_offset:
            self._possible_entries.add(at)
        elif was_recopied and (marker.became != WITH_RECORDS or (marker.horizon_ms is not None and not data)):
            return
        elif was_recopied and (marker.horizon_ms is not None or not self._rules.sets_horizons):
            self._possible_entries.add(at)
        elif not was_recopied or marker.new_horizon_ms is None:
            self._possible_entries.add(at)
            if at in self._entries_before:
                self._expected_entries.add(at)

    def _compare_entries(self) -> None:
        """Compare the transaction indexes of both logs with each other, and with the markers."""
        for at in sorted(self._expected_entries - self._entries_after.keys()):
            self._report_entry(at, "the transaction index has no entry for the transaction that a marker here aborts")
        for at, entry in sorted(self._entries_after.items()):
            before = self._entries_before.get(at)
            if at >= self._after.log_start_offset and at not in self._possible_entries:
                self._report_entry(at, "an entry of the transaction index without a transaction that was aborted")
            elif before is not None and entry != before:
                self._report_entry(at, "an entry of the transaction index has changed")

    def _report_entry(self, marker_offset: int, reason: str) -> None:
        path = self._after.segment_of(marker_offset).path(TXN_INDEX)
        self._findings.add(RefutationKind.TRANSACTION, path, 0, marker_offset, reason)

    def _report(self, kind: RefutationKind, batch: DataBatch, reason: str) -> None:
        self._findings.add(kind, batch.path, batch.position, batch.base_offset, reason)

    def _report_marker(self, marker: Marker, reason: str, kind: RefutationKind = RefutationKind.MARKER) -> None:
        self._findings.add(kind, marker.path, marker.position, marker.base_offset, reason)
