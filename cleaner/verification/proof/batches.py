"""Checks of whole batches: their headers and their delete horizons."""

from __future__ import annotations

import numpy as np

from cleaner.format.chunks import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    Batches,
    Mask,
)
from cleaner.kernels.batch_header import ATTRIBUTES_AT
from cleaner.verification.proof.findings import Findings, RefutationKind
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.steps import ProofStep

_KINDS = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
_KNOWN = COMPRESSION_MASK | _KINDS | DELETE_HORIZON_FLAG
_NO_TIMESTAMP = -1
# Fields that a rebuilt batch copies from its source, and their values if the source had magic 0 or 1.
_COPIED_FIELDS = (
    ("last_offset", "lastOffsetDelta", None),
    ("leader_epoch", "partitionLeaderEpoch", -1),
    ("producer_id", "producerId", -1),
    ("producer_epoch", "producerEpoch", -1),
    ("base_sequence", "baseSequence", -1),
)


def horizon_of(row: np.void) -> int | None:
    """Return a batch's delete horizon, None without one."""
    has_horizon = row["magic"] == 2 and row["attributes"] & DELETE_HORIZON_FLAG
    return int(row["base_timestamp"]) if has_horizon else None


def has_horizon(rows: Batches) -> Mask:
    """Tell which batches have a delete horizon, which is their `base_timestamp`."""
    flags: Mask = (rows["magic"] == 2) & (rows["attributes"] & DELETE_HORIZON_FLAG != 0)
    return flags


def check_headers(step: ProofStep, rebuilt: Mask, is_nulled: Mask, rules: ProofRules, findings: Findings) -> None:
    """
    Compare the headers of rebuilt batches with their sources.

    Args:
        rebuilt: batches before whose partner has other bytes.
        is_nulled: batches before with a record that has lost its value for its age.
    """
    rows = step.before.batches[rebuilt]
    others = step.after.batches[step.partners[rebuilt]]
    was_legacy = rows["magic"] < 2
    wrong = [("magic", others["magic"] != 2)]
    for field, name, of_legacy in _COPIED_FIELDS:
        expected = rows[field]
        if of_legacy is not None:
            expected = np.where(was_legacy, of_legacy, expected)
        wrong.append((name, (others[field] != expected) & ~(was_legacy & (of_legacy is None))))
    mask = np.where(was_legacy, TIMESTAMP_TYPE_FLAG | CONTROL_FLAG | TRANSACTIONAL_FLAG, _KINDS)
    kinds = np.where(was_legacy, rows["attributes"] & TIMESTAMP_TYPE_FLAG, rows["attributes"] & _KINDS)
    kinds = np.where(rows["magic"] == 0, 0, kinds)
    wrong.append(("attributes", others["attributes"] & mask != kinds))
    # Undefined bits are not copied.
    high_bytes = step.after.data[others["start"] + ATTRIBUTES_AT]
    has_odd_bits = (others["attributes"] & ~_KNOWN != 0) | (high_bytes != 0)
    if rules.recompressed:
        # A batch that was only packed keeps its header.
        had_bytes = step.before.data[rows["start"] + ATTRIBUTES_AT]
        has_odd_bits &= ((others["attributes"] ^ rows["attributes"]) & ~_KNOWN != 0) | (high_bytes != had_bytes)
    wrong.append(("attributes", has_odd_bits))
    is_empty = others["count"] == 0
    # A batch without records has a new header.
    codecs = np.where(is_empty, 0, rows["attributes"] & COMPRESSION_MASK)
    if not rules.recompressed:
        wrong.append(("compression", others["attributes"] & COMPRESSION_MASK != codecs))
    wrong.append(("deleteHorizon", is_empty & (others["attributes"] & DELETE_HORIZON_FLAG != 0)))
    wrong.append(("baseTimestamp", is_empty & (others["base_timestamp"] != _NO_TIMESTAMP)))
    is_append_time = rows["attributes"] & TIMESTAMP_TYPE_FLAG != 0
    was_empty = rows["count"] == 0
    # In several rounds it may have lost its records one after the other.
    keeps_time = is_empty & (was_empty | is_append_time | rules.is_one_round)
    wrong.append(("maxTimestamp", keeps_time & (others["max_timestamp"] != rows["max_timestamp"])))
    for name, is_wrong in wrong:
        for other in others[is_wrong]:
            reason = f"{name} is not that of the batch it was made from"
            findings.add(RefutationKind.CHANGED, step.after_path, other["position"], other["base_offset"], reason)
    if rules.recompressed:
        return
    # A batch with all its records is copied unchanged, except for a new horizon.
    has_all = ~was_legacy & ~is_empty & (others["count"] == rows["count"])
    is_whole = has_all & rules.writes_horizons & ~is_nulled[rebuilt]
    for other in others[is_whole & (has_horizon(others) == has_horizon(rows))]:
        reason = "its bytes have changed, though it has all its records"
        findings.add(RefutationKind.CHANGED, step.after_path, other["position"], other["base_offset"], reason)


def check_horizons(
    step: ProofStep,
    judged: Mask,
    had_tombstone: Mask,
    has_tombstone: Mask,
    may_be_nulled: Mask,
    is_nulled: Mask,
    rules: ProofRules,
    findings: Findings,
) -> None:
    """
    Check the horizons of data batches: a horizon is kept, and is set when a tombstone is retained for the first time,
    or made of a record for its age.

    Args:
        judged: data batches before that a round has recopied and that have a partner.
        had_tombstone, has_tombstone: batches that had a tombstone before, and that still have one.
        may_be_nulled, is_nulled: batches with a record that may have lost its value for its age, and with one that has.
    """
    at = np.flatnonzero(judged)
    rows, others = step.before.batches[at], step.after.batches[step.partners[at]]
    has_records = others["count"] > 0
    had, has = has_horizon(rows), has_horizon(others)
    may_move = (is_nulled if rules.is_one_round else may_be_nulled)[at]
    is_moved = had & has_records & (~has | (rows["base_timestamp"] != others["base_timestamp"]))
    moved = is_moved & ~may_move
    is_new = has & (~had | is_nulled[at] | (is_moved & may_move))
    # A horizon stays when a later round removes the tombstone that it was set for.
    may_be_new = (has_tombstone if rules.is_one_round else had_tombstone)[at] | may_move
    missing = ~has & ((~had & has_tombstone[at]) | is_nulled[at]) & rules.sets_horizons
    for is_wrong, reason in (
        (moved, "its delete horizon has changed"),
        # Which of the batches that were joined had the tombstone, another step may know.
        (is_new & ~may_be_new & ~step.joined[at], "a delete horizon without a tombstone"),
        (missing, "a tombstone that was cleaned has no delete horizon"),
    ):
        for other in others[is_wrong]:
            findings.add(RefutationKind.HORIZON, step.after_path, other["position"], other["base_offset"], reason)
    for other in others[is_new]:
        if not rules.allows_new_horizon(int(other["base_timestamp"])):
            reason = "no round can have set its delete horizon to that moment"
            findings.add(RefutationKind.HORIZON, step.after_path, other["position"], other["base_offset"], reason)
