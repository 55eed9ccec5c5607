"""
Which data belongs to transactions that were aborted, found by the markers themselves, and what became of the markers.

A producer's transactional batches up to its next marker are that marker's transaction. The transaction indexes of the
log after have to say the same: by them readers of committed records leave batches out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.format.control import ControlType
from cleaner.proof.findings import Findings, Kind
from cleaner.proof.rules import Rules

ABSENT, EMPTY, WITH_RECORDS = range(3)


class DataBatch(NamedTuple):
    """
    A transactional batch of the log before, and what became of it.

    `became` is one of ABSENT, EMPTY and WITH_RECORDS; `is_hidden`: by the transaction indexes of the log after;
    `has_lost`: records behind the cleaned range's end are missing; `is_expired`: its segment is gone, and may be.
    """

    base_offset: int
    last_offset: int
    path: Path
    position: int
    became: int
    is_hidden: bool
    has_lost: bool
    is_expired: bool


class Marker(NamedTuple):
    """
    A control batch of the log before, and what became of it.

    `type` is -1 without a record; `horizon_ms` and `new_horizon_ms` are those before and after, None for none.
    `has_to_stay`: for a producer's sake, or for the log's end. `path` and `position` are those of the batch after, if
    there is one.
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
        rules: what rounds there were.
        log_start_offset: of the log before; what was decided below it nobody goes by any more (R-535).
        recopied_end: where the segments end that rounds have recopied.
        findings: takes what is wrong.
    """

    def __init__(self, rules: Rules, log_start_offset: int, recopied_end: int, findings: Findings) -> None:
        self._rules = rules
        self._log_start_offset = log_start_offset
        self._recopied_end = recopied_end
        self._findings = findings
        self._open: dict[int, list[DataBatch]] = {}
        self._aborted: list[tuple[int, int]] = []

    def add_data(self, producer_id: int, batch: DataBatch) -> None:
        """Take in a transactional data batch."""
        self._open.setdefault(producer_id, []).append(batch)

    def add_marker(self, marker: Marker, *, was_recopied: bool) -> None:
        """Take in a control batch; `was_recopied`: a round may have changed it."""
        data: list[DataBatch] = []
        if marker.type in (ControlType.ABORT, ControlType.COMMIT):
            data = self._open.pop(marker.producer_id, [])
        if marker.type == ControlType.ABORT:
            self._end_aborted(data, marker.base_offset)
        else:
            self._end_committed(data)
        if was_recopied and marker.base_offset >= self._log_start_offset:
            self._judge(marker, data)

    def finish(self) -> None:
        """The log has ended; what is open still is as good as committed for whoever keeps it."""
        for data in self._open.values():
            self._end_committed(data)

    def aborted(self) -> npt.NDArray[np.int64]:
        """Return first and last offset of the aborted batches, ascending."""
        return np.array(sorted(self._aborted), np.int64).reshape(-1, 2)

    def _end_committed(self, data: list[DataBatch]) -> None:
        for batch in data:
            if batch.has_lost:
                self._tell(Kind.LOST, batch, "records behind the cleaned range are missing")
            if batch.is_hidden and batch.became == WITH_RECORDS:
                self._tell(Kind.TRANSACTION, batch, "committed, but a transaction index calls it aborted")

    def _end_aborted(self, data: list[DataBatch], marker_offset: int) -> None:
        for batch in data:
            self._aborted.append((batch.base_offset, batch.last_offset))
            if batch.became != WITH_RECORDS or marker_offset < self._log_start_offset:
                continue
            if batch.base_offset < self._recopied_end:
                self._tell(Kind.REVIVED, batch, "records of an aborted transaction are there")
            elif not batch.is_hidden:
                self._tell(Kind.TRANSACTION, batch, "aborted, but no transaction index says so: readers would see it")

    def _judge(self, marker: Marker, data: list[DataBatch]) -> None:
        rules = self._rules
        is_end = marker.type in (ControlType.ABORT, ControlType.COMMIT)
        was_seen = any(not batch.is_expired for batch in data)
        is_seen = any(batch.became != ABSENT for batch in data)
        has_passed = marker.horizon_ms is not None and marker.horizon_ms <= rules.now_ms
        may_go = marker.type < 0 or (
            is_end and ((has_passed and not was_seen) or (rules.lasted_retention and not is_seen))
        )
        if marker.became == ABSENT and marker.has_to_stay:
            return  # told of already
        if marker.became != WITH_RECORDS:
            if not may_go:
                reason = "its transaction still has data" if is_seen else "its horizon has not passed"
                self._tell_marker(marker, f"the marker is gone, but {reason}")
        elif rules.is_now_exact and is_end and has_passed and not data:
            self._tell_marker(marker, "the marker is there past its horizon", Kind.REVIVED)
        elif marker.horizon_ms is None and marker.new_horizon_ms is not None:
            had_data = rules.is_one_round and was_seen
            if is_seen or had_data or not is_end or not rules.allows_new_horizon(marker.new_horizon_ms):
                self._tell_marker(marker, "the marker has a horizon that no round has set", Kind.HORIZON)

    def _tell(self, kind: Kind, batch: DataBatch, reason: str) -> None:
        self._findings.add(kind, batch.path, batch.position, batch.base_offset, reason)

    def _tell_marker(self, marker: Marker, reason: str, kind: Kind = Kind.MARKER) -> None:
        self._findings.add(kind, marker.path, marker.position, marker.base_offset, reason)
