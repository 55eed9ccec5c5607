"""
Finds committed batches that the first pass of a round takes as aborted: their records then supersede nothing.

A round's first pass begins where its dirty section begins, at the batch that the offset index gives. The transaction
index of that segment also lists transactions whose ABORT marker is earlier, so the pass never reads that marker. It
then takes everything that their producers write as aborted, even if committed, up to their next ABORT marker (R-510,
R-511, R-531..R-533). The second pass begins at the log's start, sees the marker, and keeps these records; earlier
records with the same keys stay as well.

This happens only if the dirty section begins in the middle of a segment, after an ABORT marker: the round before ended
there because its map was full.
"""

from __future__ import annotations

import numpy as np

from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET
from cleaner.verification.proof.side import LogSide


class ProofFirstPass:
    """
    The first pass of the first round, as far as it concerns transactions.

    Args:
        side: the log before.
        first_dirty_offset: start of the dirty section.

    Attributes:
        is_exact: False if the segment has no offset index, so that it is unknown where the pass begins to read, and
            whether there is a transaction index: then the pass may have missed any earlier ABORT marker.
    """

    def __init__(self, side: LogSide, first_dirty_offset: int) -> None:
        holder = side.segment_of(first_dirty_offset)
        self._base = holder.base_offset
        self._first_dirty_offset = first_dirty_offset
        self.is_exact = side.fs.exists(holder.index_path) or first_dirty_offset <= holder.base_offset
        self._position = holder.position_at(first_dirty_offset)
        aborts = side.aborted(self._base)
        aborts = aborts[aborts[:, LAST_OFFSET] >= side.log_start_offset]
        # Reversed: the next one is last.
        self._pending = aborts[np.argsort(aborts[:, FIRST_OFFSET], kind="stable")][::-1].tolist()
        self._aborted: set[int] = set()

    def reads(self, segment_base: int, row: np.void) -> bool:
        """Tell whether the pass reads a batch."""
        if segment_base != self._base:
            return segment_base > self._base
        return not self.is_exact or bool(row["position"] >= self._position)

    def passes_over(self, row: np.void) -> bool:
        """Add a transactional data batch; tell whether the pass takes it as aborted (R-532)."""
        self._reach(row)
        return int(row["producer_id"]) in self._aborted

    def add_marker(self, row: np.void, *, is_abort: bool) -> None:
        """Add a control batch (R-533)."""
        self._reach(row)
        if is_abort and not self.is_exact and row["last_offset"] < self._first_dirty_offset:
            self._aborted.add(int(row["producer_id"]))
        elif is_abort:
            self._aborted.discard(int(row["producer_id"]))

    def _reach(self, row: np.void) -> None:
        while self._pending and self._pending[-1][FIRST_OFFSET] <= row["last_offset"]:
            self._aborted.add(self._pending.pop()[0])
