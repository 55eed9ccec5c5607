"""Batches that have to be there, if only as headers: for producers, and for the end of the cleaned range (R-541)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cleaner.format.chunks import Mask
from cleaner.verification.proof.collector import StepFlags
from cleaner.verification.proof.findings import Findings, Refutation, RefutationKind
from cleaner.verification.proof.producers import ProtectedBatches
from cleaner.verification.proof.rules import ProofRules, ProofVersion
from cleaner.verification.proof.side import LogSide
from cleaner.verification.proof.steps import ProofStep


class RequiredBatches:
    """
    Args:
        before: the log before.
        rules: facts about the rounds.
        producers: active producers in it.
        findings: gets what is wrong by every version's rules.
        findings_of: of each version, what is wrong by its rules alone.
    """

    def __init__(
        self,
        before: LogSide,
        rules: ProofRules,
        producers: ProtectedBatches,
        findings: Findings,
        findings_of: Mapping[ProofVersion, Findings],
    ) -> None:
        self._before, self._rules, self._producers = before, rules, producers
        self._findings, self._findings_of = findings, findings_of
        # With the versions whose rules do not allow the batch.
        self._empty: list[tuple[np.void, Refutation, tuple[ProofVersion, ...]]] = []
        self._missing_producers: list[tuple[int, Refutation]] = []

    def check(self, step: ProofStep, found: StepFlags, recopied_end: int) -> Mask:
        """
        Check a step; returns which of its batches before are required.

        Args:
            recopied_end: base offset of the first segment that no round has recopied.
        """
        has_to_stay = self._check_missing(step, found)
        self._check_empty(step, found, recopied_end)
        return has_to_stay

    def finish(self) -> None:
        """Report what only the end of the log tells: which producers were active."""
        for producer_id, finding in self._missing_producers:
            if self._producers.has_latest_state_of(producer_id):
                self._findings.add(*vars(finding).values())
        for batch, finding, versions in self._empty:
            if not self._producers.may_need(batch):
                self._add(finding, versions)

    def _check_missing(self, step: ProofStep, found: StepFlags) -> Mask:
        """
        Check that required batches are there, perhaps without records; returns which are required.

        The batch that ends the cleanable range is one of them, by the rule of the version (R-541). The cleanable range
        may be longer than the cleaned one, which is unknown here; but if the cleaned range reaches the active segment,
        both end there.
        """
        rows = step.before.batches
        is_missing = found.is_judged & (step.partners < 0)
        protected = self._producers.protects(rows) & found.is_judged
        ends_range = np.zeros(len(rows), np.bool_)
        if self._rules.end_offset == self._before.bases[-1]:
            ends_range = found.is_judged & (rows["last_offset"] == self._rules.end_offset - 1)
        for at in np.flatnonzero(is_missing & protected).tolist():
            reason = f"the last batch of producer {rows[at]['producer_id']} is missing, and it is active"
            finding = self._finding(RefutationKind.PRODUCER, step, rows[at], reason)
            self._missing_producers.append((int(rows[at]["producer_id"]), finding))
        is_log_end = not self._before.segments[-1].size
        keeping = [each for each in self._findings_of if self._rules.has_to_keep_range_end(each, is_log_end=is_log_end)]
        for row in rows[is_missing & ends_range]:
            reason = "the batch that ends the cleaned range is missing; without it the log's end may move back"
            self._add(self._finding(RefutationKind.LOG_END, step, row, reason), keeping)
        return protected | ends_range if len(keeping) == len(self._findings_of) else protected

    def _check_empty(self, step: ProofStep, found: StepFlags, recopied_end: int) -> None:
        """
        Find batches without records that are not needed (R-541, R-564): apart from batches for producers, only the one
        that ends the range of the last round, and so the recopied segments, may exist, by the rule of the version.
        """
        if not self._rules.has_rounds:
            return
        at = np.flatnonzero(found.is_judged & (step.partners >= 0))
        others = step.after.batches[step.partners[at]]
        end, every = recopied_end, tuple(self._findings_of)
        at_end = tuple(each for each in every if not self._rules.may_keep_range_end_empty(each, end))
        for other in others[others["count"] == 0]:
            versions = at_end if other["last_offset"] + 1 == end else every
            if versions:
                reason = "a batch without records that no producer needs"
                place = (str(step.after_path), int(other["position"]), int(other["base_offset"]))
                self._empty.append((other.copy(), Refutation(RefutationKind.REVIVED, *place, reason), versions))

    def _add(self, finding: Refutation, versions: Sequence[ProofVersion]) -> None:
        """Note a finding that refutes the log only if one of these versions cleaned it."""
        for version in versions:
            self._findings_of[version].add(*vars(finding).values())

    @staticmethod
    def _finding(kind: RefutationKind, step: ProofStep, row: np.void, reason: str) -> Refutation:
        return Refutation(kind, str(step.before_path), int(row["position"]), int(row["base_offset"]), reason)
