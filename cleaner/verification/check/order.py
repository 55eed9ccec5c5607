"""Finds batches whose offsets do not ascend, or are outside of their segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.verification.check.batches import CheckedChunk
from cleaner.verification.check.findings import Finding, FindingKind, OnFinding


class OffsetOrder:
    """
    Follows the offsets of one segment's batches.

    Args:
        path: of the `.log`.
        base_offset: of the segment.
        end_offset: the next segment's base offset.
        on_finding: called for each batch that is out of order; it then counts as damaged.

    Attributes:
        next_offset: after the last good batch.
    """

    def __init__(self, path: Path, base_offset: int, end_offset: int, on_finding: OnFinding) -> None:
        self.next_offset = base_offset
        self._path = path
        self._base_offset = base_offset
        self._limit = min(end_offset, base_offset + MAX_RELATIVE_OFFSET + 1)
        self._on_finding = on_finding

    def add(self, checked: CheckedChunk) -> None:
        """Check the good batches of the next chunk; marks those out of order as damaged."""
        rows, good = checked.chunk.batches, checked.good
        base, last = rows["base_offset"], rows["last_offset"]
        start = self._base_offset
        self._note(checked, good & (base < start), "its offset lies below the segment's base offset")
        self._note(checked, good & (last >= self._limit), f"its offset lies beyond the segment's end, {self._limit}")
        seen = np.where(good, last, start - 1)
        before = np.maximum.accumulate(np.concatenate(([self.next_offset - 1], seen)))
        self._note(checked, good & (base <= before[:-1]), "its offset is not above the one before")
        if good.any():
            self.next_offset = max(self.next_offset, int(last[good][-1]) + 1)

    def _note(self, checked: CheckedChunk, bad: npt.NDArray[np.bool_], reason: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            batch = checked.chunk.batches[row]
            checked.good[row] = False
            position, offset = int(batch["position"]), int(batch["base_offset"])
            self._on_finding(Finding(FindingKind.BATCH_OFFSETS, self._path, reason, position, offset))
