"""
Walks the batches of both logs together, in the order of their offsets.

The partner of a batch is its copy or rebuilt version in the other log, with the same base offset. A batch of magic 0 or
1 becomes one of magic 2 that begins at its first retained record and ends at the last.

Where batches may have been joined (`--recompressed`), a batch after may be the partner of several adjacent ones before.
It is shown in each step that has some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import CONTROL_FLAG, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, Batches, Chunk, Mask
from cleaner.storage.segment.segment import Segment
from cleaner.verification.proof.side import BatchStream

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProofStep:
    """
    Some adjacent batches of the log before, and all batches of the log after in the same range of offsets.

    Attributes:
        before, after: the batches.
        segment: of `before`.
        before_path, after_path: the files.
        partners: for each batch before its row after, or -1.
        unmatched: rows after without a partner before.
        joined: for each batch before whether it and others may have become one.
        goes_on: the last row after is shown again in the next step.
        before_damage, after_damage: the error in the single batch of that log; None if the batches are sound.
    """

    before: Chunk
    after: Chunk
    segment: Segment
    before_path: Path
    after_path: Path
    partners: Longs
    unmatched: Longs
    joined: Mask
    goes_on: bool = False
    before_damage: CorruptBatchError | None = None
    after_damage: CorruptBatchError | None = None


def side_by_side(before: BatchStream, after: BatchStream, *, joins: bool = False) -> Iterator[ProofStep]:
    """
    Walk both logs to their ends.

    Args:
        before, after: the logs.
        joins: a batch after may be the partner of several.
    Raises:
        CorruptBatchError: damage in either log.
    """
    is_begun = False
    while True:
        has_before, has_after = before.fill(), after.fill()
        if not has_before and not has_after:
            return
        taken_before, taken_after = _share(before, after, has_before, has_after)
        goes_on = joins and _goes_on(before, after, taken_before, taken_after)
        first, second = before.take(taken_before), after.take(taken_after, keeps_last=goes_on)
        partners, unmatched = _partners(first, second, is_begun)
        joined = np.zeros(len(partners), np.bool_)
        if joins and len(unmatched):
            unmatched = _join(first.batches, second.batches, partners, unmatched, joined, is_begun, goes_on=goes_on)
        is_begun = goes_on
        yield ProofStep(
            first,
            second,
            before.segment,
            before.segment.log_path,
            after.segment.log_path,
            partners,
            unmatched,
            joined,
            goes_on,
            before.damage,
            after.damage if len(second.batches) else None,
        )


def _share(before: BatchStream, after: BatchStream, has_before: bool, has_after: bool) -> tuple[int, int]:
    """Return how many rows of each to take, so that no batch is separated from its partner."""
    if not has_before or not has_after:
        return len(before.rows), len(after.rows)
    last_before, last_after = int(before.rows["last_offset"][-1]), int(after.rows["last_offset"][-1])
    if last_after <= last_before:
        return int(np.searchsorted(before.rows["last_offset"], last_after)) + 1, len(after.rows)
    return len(before.rows), int(np.searchsorted(after.rows["base_offset"], last_before, side="right"))


def _partners(before: Chunk, after: Chunk, is_begun: bool) -> tuple[Longs, Longs]:
    rows, others = before.batches, after.batches
    partners = np.full(len(rows), -1, np.int64)
    if not len(rows):
        return partners, np.arange(len(others))
    at = np.searchsorted(rows["last_offset"], others["base_offset"])
    found = rows[np.minimum(at, len(rows) - 1)]
    is_partner = (at < len(rows)) & (others["last_offset"] <= found["last_offset"])
    # Only its records give the base offset of a compressed batch of magic 0 or 1.
    is_partner &= (found["magic"] < 2) | (others["base_offset"] == found["base_offset"])
    is_partner[1:] &= at[1:] != at[:-1]
    is_partner[:1] &= not is_begun  # of what the step before has shown, batches there are a part
    partners[at[is_partner]] = np.flatnonzero(is_partner)
    return partners, np.flatnonzero(~is_partner)


def _goes_on(before: BatchStream, after: BatchStream, taken_before: int, taken_after: int) -> bool:
    """Tell whether the last batch after reaches beyond the batches before that are at hand."""
    if not taken_before or not taken_after:
        return False
    last = after.rows[taken_after - 1]
    return bool(last["last_offset"] > before.rows["last_offset"][taken_before - 1]) and bool(may_be_joined(last))


def may_be_joined(rows: Batches | np.void) -> Mask:
    """
    Tell which batches may be several that became one: nobody needs their bounds. A later round may have left it empty.
    """
    bits = TRANSACTIONAL_FLAG | CONTROL_FLAG
    is_nobodys: Mask = (rows["magic"] == 2) & (rows["attributes"] & bits == 0)
    is_nobodys &= (rows["producer_id"] == -1) & (rows["producer_epoch"] == -1) & (rows["base_sequence"] == -1)
    return is_nobodys


def _join(
    rows: Batches, others: Batches, partners: Longs, unmatched: Longs, joined: Mask, is_begun: bool, *, goes_on: bool
) -> Longs:
    """Find the batches before that a row after may be made of; returns the rows that are made of none."""
    left = []
    for number in unmatched.tolist():
        other = others[number]
        first = int(np.searchsorted(rows["last_offset"], other["base_offset"]))
        end = min(int(np.searchsorted(rows["last_offset"], other["last_offset"])) + 1, len(rows))
        # A batch of magic 0 or 1 has other bounds once it is rebuilt. Of one that several steps show, the first and the
        # last step have the bounds.
        begins = first < end and (rows["magic"][first] < 2 or rows["base_offset"][first] == other["base_offset"])
        ends = first < end and (rows["magic"][end - 1] < 2 or rows["last_offset"][end - 1] == other["last_offset"])
        begins |= is_begun and number == 0
        ends |= goes_on and number == len(others) - 1
        if not (begins and ends and may_be_joined(other)):
            left.append(number)
            continue
        part = rows[first:end]
        was_legacy = part["magic"] < 2
        is_member = may_be_joined(part) & (part["count"] > 0) & (part["leader_epoch"] == other["leader_epoch"])
        if other["attributes"] & TIMESTAMP_TYPE_FLAG:
            is_member &= part["max_timestamp"] == other["max_timestamp"]
        is_member |= was_legacy & (other["leader_epoch"] == -1)
        types = np.where(part["magic"] == 0, 0, part["attributes"])
        is_member &= (types ^ other["attributes"]) & TIMESTAMP_TYPE_FLAG == 0
        if not other["count"]:  # a later round has taken all of its records; it stands for the last that it was made of
            is_shown_again = goes_on and number == len(others) - 1
            partners[end - 1] = number if is_member[-1] and not is_shown_again else -1
            continue
        partners[first:end][is_member] = number
        joined[first:end][is_member] = True
    return np.array(left, np.int64)
