"""
The proof: one walk through both logs side by side, then the sorting.

    walk    each batch after is a copy of a batch before, or rebuilt from it; each record is unchanged; after the
            cleaned range everything is the same. For each record in the range, collect the digest of its key, its
            offset and whether it is kept
    sort    the last record of each key is kept, or was a tombstone that might go; no superseded record is kept

Transactions are judged in between: which data is aborted is known only after the last marker is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cleaner.base.key_views import KeyView
from cleaner.errors import CorruptBatchError, CorruptLogError
from cleaner.format.chunks import COMPRESSION_MASK, CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches, Mask, control_batches
from cleaner.format.control import ControlType
from cleaner.format.records import leave_out
from cleaner.kernels import proof as kernel
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.segment.aborted import hidden_batches
from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET, Aborts
from cleaner.verification.proof.batches import check_headers, check_horizons, horizon_of
from cleaner.verification.proof.collector import RecordCollector, StepFlags
from cleaner.verification.proof.files import check_files
from cleaner.verification.proof.findings import Findings, Refutation, RefutationKind
from cleaner.verification.proof.first_pass import ProofFirstPass
from cleaner.verification.proof.key_rows import (
    KeyRows,
)
from cleaner.verification.proof.last_values import judge
from cleaner.verification.proof.producers import ProtectedBatches
from cleaner.verification.proof.records import RecordReader
from cleaner.verification.proof.required import RequiredBatches
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.side import BatchStream, LogSide
from cleaner.verification.proof.steps import ProofStep, side_by_side
from cleaner.verification.proof.transactions import ABSENT, EMPTY, WITH_RECORDS, DataBatch, Marker, Transactions


@dataclass(frozen=True)
class Proof:
    """
    The result of a proof.

    Attributes:
        findings: by offset, at most a thousand.
        total_findings: number of all findings.
        records, keys: of the cleaned range before.
        bytes_before, bytes_after: bytes read.
        log_start_offset, log_end_offset: of the log after.
        damaged: number of batches that are damaged in both logs, with the same bytes.
        fits: names of the Kafka versions whose rules the log fits; none if there are findings.
        repacked: batches before that have another codec after, or became part of another batch.
    """

    findings: tuple[Refutation, ...]
    total_findings: int
    records: int
    keys: int
    bytes_before: int
    bytes_after: int
    log_start_offset: int
    log_end_offset: int
    damaged: int
    fits: tuple[str, ...]
    repacked: int = 0


class Prover:
    """
    Compares two logs.

    Args:
        before, after: the logs.
        rules: facts about the rounds.
        producers: active producers in the log before.
        rows: empty; filled and sorted here.
        limit_bytes: most bytes one batch may unpack to.
        before_step: called with the bytes read with each step; may raise to stop.
        view: which keys are the same key; None: those with the same bytes.
    """

    def __init__(
        self,
        before: LogSide,
        after: LogSide,
        rules: ProofRules,
        producers: ProtectedBatches,
        rows: KeyRows,
        *,
        limit_bytes: int,
        before_step: Callable[[int], None],
        view: KeyView | None = None,
    ) -> None:
        self._before, self._after, self._rules, self._rows = before, after, rules, rows
        self._producers = producers
        self._before_step = before_step
        self._findings = Findings()
        # Findings that count only if this version cleaned the log, besides those in `_findings`.
        self._findings_of = {version: Findings() for version in rules.versions}
        self._recopied_end = before.end_of_recopied(rules.end_offset) if rules.has_rounds else -(2**63)
        # What was only packed has all its records.
        self._packed_end = before.end_of_recopied(rules.end_offset) if rules.recompressed else self._recopied_end
        # Segments below it are gone, which is allowed.
        self._floor = after.bases[0] if rules.may_expire else -(2**63)
        self._first_pass = ProofFirstPass(before, rules.first_dirty_offset) if rules.has_rounds else None
        is_exact = self._first_pass is None or self._first_pass.is_exact
        self._transactions = Transactions(
            before, after, rules, self._recopied_end, self._findings, is_first_pass_exact=is_exact
        )
        self._reader = RecordReader(limit_bytes, self._findings, rules)
        self._aborts = after.aborted()
        self._damaged = self._repacked = 0
        self._collector = RecordCollector(before, after, rules, rows, self._findings, view)
        self._required = RequiredBatches(before, rules, producers, self._findings, self._findings_of)

    def prove(self) -> Proof:
        """
        Compare the logs.

        Raises:
            CorruptLogError: the log before is damaged, so it cannot prove anything.
        """
        with self._before.batches() as before, self._after.batches() as after:
            try:
                self._walk(before, after)
            except CorruptLogError as error:
                if error.path.parent != self._after.directory:
                    raise
                self._findings.add(RefutationKind.DAMAGED, error.path, error.position, after.next_offset, error.reason)
                keys = 0
            else:
                keys = self._sort()
        # Of several versions that do not fit, the one with the fewest findings is the likeliest.
        version = min(self._findings_of, key=lambda each: self._findings_of[each].total)
        found = self._findings.joined(self._findings_of[version])
        fits = [each.name for each, own in self._findings_of.items() if not self._findings.total + own.total]
        return Proof(
            found.in_order(),
            found.total,
            self._rows.count,
            keys,
            before.read_bytes,
            after.read_bytes,
            self._after.log_start_offset,
            after.next_offset,
            self._damaged,
            tuple(fits),
            self._repacked,
        )

    def _walk(self, before: BatchStream, after: BatchStream) -> None:
        read_bytes = 0
        for step in side_by_side(before, after, joins=self._rules.recompressed):
            self._before_step(before.read_bytes + after.read_bytes - read_bytes)
            read_bytes = before.read_bytes + after.read_bytes
            self._take(step)
        self._check_ends(before.next_offset, after.next_offset)
        self._check_checkpoint(before.next_offset)
        self._transactions.finish()
        self._required.finish()
        check_files(self._before, self._after, self._rules, after.next_offset, self._findings)

    def _take(self, step: ProofStep) -> None:
        for row in step.after.batches[step.unmatched]:
            reason = "no batch of the log before is at these offsets"
            self._findings.add(RefutationKind.INVENTED, step.after_path, row["position"], row["base_offset"], reason)
        rows = step.before.batches
        if not len(rows):
            return
        self._producers.see(rows)
        same = np.zeros(len(rows), np.uint8)
        kernel.find_same_batches(step.before.data, rows, step.after.data, step.after.batches, step.partners, same)
        is_same = same != 0
        self._check_damage(step, is_same)
        # Reading records finds the base offsets of batches of magic 0 and 1, and changes these columns.
        is_head = rows["base_offset"] >= self._packed_end
        is_expired = rows["last_offset"] < self._floor
        is_judged = ~is_head & ~is_expired
        is_control = control_batches(rows)
        self._check_head(step, is_head & ~is_expired & ~is_same)
        is_read = is_judged & ((rows["base_offset"] < self._rules.end_offset) | ~is_same)
        found = StepFlags(is_judged, is_expired, is_control, *np.zeros((6, len(rows)), np.bool_))
        types = self._read(step, is_read | is_control, is_same, found)
        self._note_range_end(rows, is_read)
        if step.joined.any():
            self._reader.end_joined(step)
            # Of the others nothing is in the joined batch.
            step.partners[step.joined & ~found.has_kept] = -1
        self._repacked += self._count_repacked(step, is_same)
        rebuilt = is_judged & ~is_same & ~step.joined & (step.partners >= 0)
        check_headers(step, rebuilt, found.is_nulled, self._rules, self._findings)
        has_partner = is_judged & ~is_control & (step.partners >= 0)
        check_horizons(
            *(step, has_partner, found.had_tombstone, found.has_tombstone, found.may_be_nulled, found.is_nulled),
            *(self._rules, self._findings),
        )
        has_to_stay = self._required.check(step, found, self._recopied_end)
        self._follow_transactions(step, found, types, has_to_stay)

    def _check_damage(self, step: ProofStep, is_same: Mask) -> None:
        """Accept damage that is the same in both logs, as `--damaged keep` leaves it; raise other damage."""
        if step.after_damage is not None and not is_same[step.partners >= 0].all():
            raise step.after_damage
        if step.before_damage is not None:
            if not is_same.all():
                raise step.before_damage
            self._damaged += 1

    def _read(self, step: ProofStep, is_read: Mask, is_same: Mask, found: StepFlags) -> dict[int, int]:
        """
        Read and collect a step's records; returns the types of its control batches by row.

        A batch whose records cannot be read is accepted if it has the same bytes after: it is left out, and the others
        are read again.
        """
        unread = ~is_read | (step.before_damage is not None)
        mark = self._findings.mark()
        while True:
            types: dict[int, int] = {}
            self._collector.begin()
            try:
                for block in self._reader.blocks(step, ~unread, is_same):
                    for record in np.flatnonzero(found.is_control[block.rows]).tolist():
                        types[int(block.rows[record])] = block.control_type(record)
                    self._collector.note(step, block, found)
            except CorruptBatchError as error:
                if error.path != step.before_path:
                    raise
                row = leave_out(step.before.batches, unread, error)
                batch = step.before.batches[row]
                # Its transaction flags cannot be trusted; in magic 0 and 1 they have no meaning.
                has_kind = batch["magic"] == 2 and batch["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0
                if not is_same[row] or has_kind:
                    raise
                self._damaged += 1
                self._findings.go_back(mark)
                continue
            self._collector.end()
            return types

    @staticmethod
    def _count_repacked(step: ProofStep, is_same: Mask) -> int:
        """Return how many batches have another codec than before, or became part of another."""
        at = np.flatnonzero(~is_same & (step.partners >= 0))
        rows, others = step.before.batches[at], step.after.batches[step.partners[at]]
        has_other = (rows["attributes"] ^ others["attributes"]) & COMPRESSION_MASK != 0
        return int((step.joined[at] | (has_other & (others["count"] > 0) & (rows["magic"] == 2))).sum())

    def _check_head(self, step: ProofStep, is_wrong: Mask) -> None:
        for at in np.flatnonzero(is_wrong).tolist():
            row, partner = step.before.batches[at], int(step.partners[at])
            if partner < 0:
                reason = "after the cleaned range, and missing"
                self._findings.add(RefutationKind.HEAD, step.before_path, row["position"], row["base_offset"], reason)
            else:
                other = step.after.batches[partner]
                reason = "after the cleaned range, and its bytes have changed"
                self._findings.add(
                    RefutationKind.HEAD, step.after_path, other["position"], other["base_offset"], reason
                )

    def _follow_transactions(self, step: ProofStep, found: StepFlags, types: dict[int, int], has_to_stay: Mask) -> None:
        rows, others = step.before.batches, step.after.batches
        concerned = (rows["magic"] == 2) & (rows["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0)
        if not concerned.any():
            return
        hidden = hidden_batches(others, self._reaching_into(step))
        for at in np.flatnonzero(concerned).tolist():
            row, partner = rows[at], int(step.partners[at])
            place = (step.before_path, int(row["position"]))
            became = ABSENT
            if partner >= 0:
                place = (step.after_path, int(others[partner]["position"]))
                became = WITH_RECORDS if others[partner]["count"] > 0 else EMPTY
            base, producer_id = int(row["base_offset"]), int(row["producer_id"])
            first_pass = self._first_pass
            if first_pass is not None and not first_pass.reads(step.segment.base_offset, row):
                first_pass = None
            if found.is_control[at]:
                if first_pass is not None:
                    first_pass.add_marker(row, is_abort=types.get(at) == ControlType.ABORT)
                new_horizon = horizon_of(others[partner]) if partner >= 0 else None
                marker = Marker(
                    base,
                    producer_id,
                    types.get(at, -1),
                    *place,
                    became,
                    horizon_of(row),
                    new_horizon,
                    bool(has_to_stay[at]),
                )
                self._transactions.add_marker(marker, was_recopied=bool(found.is_judged[at]) and self._rules.has_rounds)
            else:
                is_hidden = partner >= 0 and bool(hidden[partner])
                batch = DataBatch(
                    base,
                    int(row["last_offset"]),
                    *place,
                    became,
                    is_hidden,
                    has_lost=bool(found.has_lost[at]),
                    is_expired=bool(found.is_expired[at]),
                    is_passed_over=first_pass is not None and first_pass.passes_over(row),
                )
                self._transactions.add_data(producer_id, batch)

    def _reaching_into(self, step: ProofStep) -> Aborts:
        """Return the aborted transactions of the log after that may contain one of a step's batches."""
        others = step.after.batches
        if not len(others):
            return self._aborts[:0]
        first, last = int(others["base_offset"][0]), int(others["last_offset"][-1])
        return self._aborts[(self._aborts[:, LAST_OFFSET] >= first) & (self._aborts[:, FIRST_OFFSET] <= last)]

    def _check_ends(self, end_before: int, end_after: int) -> None:
        before, after = self._before, self._after
        first, last = after.segments[0].log_path, after.segments[-1].log_path
        start = after.log_start_offset
        if start < before.log_start_offset or (start > before.log_start_offset and not self._rules.may_expire):
            reason = f"the log starts at offset {start}, before at {before.log_start_offset}"
            self._findings.add(RefutationKind.LOG_START, first, 0, start, reason)
        if end_after != end_before:
            reason = f"the log ends at offset {end_after}, before at {end_before}"
            self._findings.add(RefutationKind.LOG_END, last, after.segments[-1].size, end_after, reason)

    def _note_range_end(self, rows: Batches, is_read: Mask) -> None:
        """Note whether a round can have ended with one of these batches; one that was not read may be such a batch."""
        end = self._rules.end_offset
        holds_end = (rows["base_offset"] < end) & (end <= rows["last_offset"] + 1)
        self._collector.is_end_met |= bool((holds_end & (~is_read | (rows["last_offset"] + 1 == end))).any())

    def _check_checkpoint(self, log_end_offset: int) -> None:
        """Report a checkpoint where no round can have ended (R-406, R-407, R-513)."""
        rules, producers = self._rules, self._producers
        if not rules.has_rounds or not rules.is_end_recorded or rules.end_offset <= self._after.log_start_offset:
            return
        path, end = self._after.directory.parent / OffsetKind.CLEANER.value, rules.end_offset
        open_from = producers.first_open_offset if producers.snapshot_offset == log_end_offset else None
        if end > self._after.bases[-1]:
            self._findings.add(RefutationKind.CHECKPOINT, path, 0, end, "the checkpoint lies within the active segment")
        elif open_from is not None and end > open_from:
            self._findings.add(
                RefutationKind.CHECKPOINT, path, 0, end, "the checkpoint lies after the start of an open transaction"
            )
        elif not self._collector.is_end_met:
            self._findings.add(
                RefutationKind.CHECKPOINT, path, 0, end, "the checkpoint lies where no round can have ended"
            )

    def _sort(self) -> int:
        """Judge all records by their keys; returns the number of keys."""
        rules, uncounted = self._rules, self._transactions.uncounted()
        judged = judge(self._rows, rules.first_dirty_offset, uncounted, is_one_round=rules.is_one_round)
        for kind, side, refuted, reason in (
            (RefutationKind.LOST, self._before, judged.lost, "the last record of its key, and missing"),
            (
                RefutationKind.REVIVED,
                self._after,
                judged.superseded,
                "a later record of its key is in the cleaned range",
            ),
            (
                RefutationKind.REVIVED,
                self._after,
                judged.expired,
                "kept past its horizon, or past the age at which it expires",
            ),
        ):
            offsets = np.sort(refuted.lowest).tolist()
            for offset, place in zip(offsets, side.find(offsets), strict=False):
                self._findings.add(kind, place.path, place.position, offset, reason)
            self._findings.total += refuted.total - len(offsets)
        return judged.keys
