"""Collects the records of the log before, to be sorted by their keys, and checks what needs no sorting."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from cleaner.base.key_views import KeyView
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Mask
from cleaner.format.viewed_block import canonical_keys
from cleaner.kernels import proof as kernel
from cleaner.verification.proof.batches import has_horizon
from cleaner.verification.proof.findings import Findings, RefutationKind
from cleaner.verification.proof.key_rows import (
    DIGEST,
    DIGEST_REST,
    FLAGS,
    KEPT,
    MAY_GO,
    MUST_GO,
    NUMBER,
    OFFSET,
    KeyRows,
    Rows,
)
from cleaner.verification.proof.records import RecordBlock
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.side import LogSide
from cleaner.verification.proof.steps import ProofStep


@dataclass(frozen=True)
class StepFlags:
    """
    Flags of a step's batches before; the last six are set while records are read.

    Attributes:
        may_be_nulled, is_nulled: it has a record that may have lost its value for its age, and one that has.
    """

    is_judged: Mask
    is_expired: Mask
    is_control: Mask
    had_tombstone: Mask
    has_tombstone: Mask
    has_lost: Mask
    has_kept: Mask
    may_be_nulled: Mask
    is_nulled: Mask


class RecordCollector:
    """
    Args:
        before, after: the logs.
        rules: facts about the rounds.
        rows: filled here.
        findings: gets what is wrong with single records.
        view: which keys are the same key; None: those with the same bytes.

    Attributes:
        is_end_met: the cleaned range ends where a round can have ended: at a segment's start, after a batch, or after
            a record whose key it has mapped (R-513).
    """

    def __init__(
        self,
        before: LogSide,
        after: LogSide,
        rules: ProofRules,
        rows: KeyRows,
        findings: Findings,
        view: KeyView | None,
    ) -> None:
        self._before, self._rules, self._rows, self._findings, self._view = before, rules, rows, findings, view
        self.is_end_met = rules.end_offset in (*before.bases, *after.bases)
        self._keys = np.frombuffer(bytearray(os.urandom(16)), np.uint64)
        self._pending: list[Rows] = []
        # Legacy tombstones are judged by the mtime of their file.
        clean = [segment for segment in before.segments if segment.base_offset < rules.first_dirty_offset]
        self._legacy_horizon_ms = clean[-1].mtime_ms - rules.delete_retention_ms if clean else 0

    def begin(self) -> None:
        """Begin a step, or begin it again."""
        self._pending = []

    def end(self) -> None:
        """Keep what was noted in the step."""
        for rows in self._pending:
            self._rows.add(rows)

    def note(self, step: ProofStep, block: RecordBlock, found: StepFlags) -> None:
        """Collect the records of a block, and check those that need no sorting."""
        layout, rules = block.layout, self._rules
        rows = step.before.batches
        is_data = ~found.is_control[block.rows] & ~found.is_expired[block.rows]
        is_null = layout.value_sizes < 0
        found.had_tombstone[block.rows[is_data & is_null]] = True
        found.has_tombstone[block.rows[is_data & is_null & block.is_kept]] = True
        may_be_nulled = is_data & rules.may_be_nulled(layout)
        found.may_be_nulled[block.rows[may_be_nulled]] = True
        found.is_nulled[block.rows[block.is_nulled]] = True
        is_transactional = (rows["attributes"] & TRANSACTIONAL_FLAG != 0)[block.rows]
        found.has_kept[block.rows[block.is_kept]] = True
        # Without a round no record may be missing.
        below = (layout.offsets < rules.end_offset) & rules.has_rounds
        # After the range only aborted records may be missing.
        lost = is_data & ~below & ~block.is_kept
        found.has_lost[block.rows[lost & is_transactional]] = True
        for record in np.flatnonzero(lost & ~is_transactional).tolist():
            reason = "after the cleaned range, and missing"
            position = rows[block.rows[record]]["position"]
            self._findings.add(RefutationKind.LOST, step.before_path, position, layout.offsets[record], reason)
        is_keyed = layout.key_sizes >= 0
        self.is_end_met |= bool((is_data & is_keyed & (layout.offsets == rules.end_offset - 1)).any())
        for record in np.flatnonzero(is_data & below & ~is_keyed & block.is_kept & rules.has_rounds).tolist():
            position = step.after.batches[step.partners[block.rows[record]]]["position"]
            reason = "a record without a key in the cleaned range"
            self._findings.add(RefutationKind.REVIVED, step.after_path, position, layout.offsets[record], reason)
        # Below the log start transactions are unknown.
        is_known = ~is_transactional | (layout.offsets >= self._before.log_start_offset)
        wanted = is_data & below & is_keyed & is_known
        if wanted.any():
            self._write_down(step, block, wanted, is_null, may_be_nulled)

    def _write_down(
        self, step: ProofStep, block: RecordBlock, wanted: Mask, is_null: Mask, may_be_nulled: Mask
    ) -> None:
        layout, rules = block.layout, self._rules
        digests = np.zeros(kernel.DIGEST_WORDS * len(layout), np.uint64)
        keys = layout.data, layout.key_starts, layout.key_sizes
        if self._view is not None:
            keys = canonical_keys(*keys, self._view)
        kernel.digest_fields(*keys, self._keys, digests)
        flags = np.where(block.is_kept, KEPT, 0)
        if is_null.any():
            may_go, must_go = self._tombstones(step, block)
            flags |= np.where(is_null & may_go, MAY_GO, 0) | np.where(is_null & must_go, MUST_GO, 0)
        if may_be_nulled.any():
            flags |= np.where(rules.may_be_gone(layout) & may_be_nulled, MAY_GO, 0)
            flags |= np.where(may_be_nulled & ~block.is_nulled & rules.is_now_exact, MUST_GO, 0)
        rows = np.empty((int(wanted.sum()), self._rows.columns), np.uint64)
        rows[:, [DIGEST, DIGEST_REST]] = digests.reshape(-1, kernel.DIGEST_WORDS)[wanted]
        rows[:, OFFSET] = layout.offsets[wanted].astype(np.uint64)
        rows[:, FLAGS] = flags[wanted].astype(np.uint64)
        if rules.numbers is not None:
            rows[:, NUMBER] = rules.numbers.of_layout(layout)[wanted]
        self._pending.append(rows)

    def _tombstones(self, step: ProofStep, block: RecordBlock) -> tuple[Mask, Mask]:
        """Tell for each record with a null value whether it may be removed for that alone, and whether it must."""
        rules, rows = self._rules, step.before.batches
        had = has_horizon(rows)
        passed = had & (rows["base_timestamp"] <= rules.now_ms)
        may_go = passed | (~had & rules.lasted_retention)
        must_go = passed & rules.is_now_exact
        legacy = rows["magic"] < 2
        if legacy.any():
            mtime_ms = step.segment.mtime_ms
            is_old = mtime_ms <= self._legacy_horizon_ms
            may_go |= legacy & (is_old | rules.may_have_expired(mtime_ms))
            must_go |= legacy & is_old & rules.is_one_round
        return may_go[block.rows], must_go[block.rows]
