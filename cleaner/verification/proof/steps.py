"""
Walks the batches of both logs together, in the order of their offsets.

The partner of a batch is its copy or rebuilt version in the other log, with the same base offset. A batch of magic 0 or
1 becomes one of magic 2 that begins at its first retained record and ends at the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk
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
        before_damage, after_damage: the error in the single batch of that log; None if the batches are sound.
    """

    before: Chunk
    after: Chunk
    segment: Segment
    before_path: Path
    after_path: Path
    partners: Longs
    unmatched: Longs
    before_damage: CorruptBatchError | None = None
    after_damage: CorruptBatchError | None = None


def side_by_side(before: BatchStream, after: BatchStream) -> Iterator[ProofStep]:
    """
    Walk both logs to their ends.

    Raises:
        CorruptBatchError: damage in either log.
    """
    while True:
        has_before, has_after = before.fill(), after.fill()
        if not has_before and not has_after:
            return
        taken_before, taken_after = _share(before, after, has_before, has_after)
        first, second = before.take(taken_before), after.take(taken_after)
        partners, unmatched = _partners(first, second)
        yield ProofStep(
            first,
            second,
            before.segment,
            before.segment.log_path,
            after.segment.log_path,
            partners,
            unmatched,
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


def _partners(before: Chunk, after: Chunk) -> tuple[Longs, Longs]:
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
    partners[at[is_partner]] = np.flatnonzero(is_partner)
    return partners, np.flatnonzero(~is_partner)
