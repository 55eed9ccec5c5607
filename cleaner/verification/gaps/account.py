"""
Accounts for every offset of a partition: it has a record for readers, or a reason why it has none.

What can be told from the batches of a log and what cannot:

- A batch of magic 2 keeps its first and last offset when records are removed from it, even all of them. Only cleaning
  removes single records, and `erase`, which looks the same. So a batch with fewer records than offsets is a trace of
  cleaning, and so is a delete horizon.
- A round begins at the log's start. So whatever lies below its end, by the cleaner checkpoint or by such a trace, may
  have been removed by it, batches and all. Nothing tells such a hole from one that has another cause.
- A round recopies whole segments. So aborted data is also gone from the rest of the segment in which its map ended,
  and around a trace above the checkpoint the whole segment may have been cleaned.
- Brokers give offsets without holes. So a hole in a log that is never compacted was made by something else.
- In a log that may be compacted, nothing is proven by a hole above the checkpoint. A round writes that at its very end,
  after it has replaced one segment after the other, and a replica may have been filled by a leader that had cleaned
  farther. A log of single records that is cleaned in one of these ways need not have any trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cleaner.format.chunks import CONTROL_FLAG, DELETE_HORIZON_FLAG, Batches, Mask
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET, Aborts
from cleaner.verification.gaps.reasons import GapReason
from cleaner.verification.gaps.tally import NO_SPANS, Longs, Spans, Tally


@dataclass(frozen=True)
class CleanedRange:
    """
    Up to where cleaning has come, by the files beside the batches.

    Attributes:
        end: the cleaner checkpoint; 0 without one.
        recopied_end: the end of the segment in which that lies: aborted data is gone up to there.
    """

    end: int = 0
    recopied_end: int = 0


class AbortedSpans:
    """The offsets between the first record and the marker of aborted transactions, whoever wrote them."""

    def __init__(self, aborts: Aborts) -> None:
        order = np.argsort(aborts[:, FIRST_OFFSET], kind="stable")
        firsts, ends = aborts[order, FIRST_OFFSET], np.maximum.accumulate(aborts[order, LAST_OFFSET] + 1)
        begins = np.concatenate([[True], firsts[1:] > ends[:-1]]) if len(firsts) else np.zeros(0, bool)
        at = np.flatnonzero(begins)
        self._firsts: Longs = firsts[at]
        self._ends: Longs = ends[np.append(at[1:], len(firsts)) - 1] if len(at) else ends
        self._before: Longs = np.concatenate([[0], np.cumsum(self._ends - self._firsts)]).astype(np.int64)

    def split(self, holes: Spans) -> tuple[Spans, Spans]:
        """Return the parts of whole ranges that lie inside, and those outside."""
        inside = self._below(holes.lasts + 1) - self._below(holes.firsts)
        if not inside.any():
            return NO_SPANS, holes
        all_of, none_of = inside == holes.counts, inside == 0
        within, outside = holes.where(all_of), holes.where(none_of)
        for row in np.flatnonzero(~all_of & ~none_of).tolist():
            parts = self._parts(int(holes.firsts[row]), int(holes.lasts[row]) + 1)
            within, outside = within.joined(parts[0]), outside.joined(parts[1])
        return within, outside

    def _below(self, offsets: Longs) -> Longs:
        """Return how many offsets below some offsets lie inside."""
        if not len(self._firsts):
            return np.zeros(len(offsets), np.int64)
        at = np.searchsorted(self._firsts, offsets, side="left")
        last = np.maximum(at - 1, 0)
        beyond = np.where(at > 0, np.maximum(self._ends[last] - offsets, 0), 0)
        found: Longs = self._before[at] - beyond
        return found

    def _parts(self, first: int, end: int) -> tuple[Spans, Spans]:
        """Return the parts of one range inside and outside."""
        rows = slice(int(np.searchsorted(self._ends, first, side="right")), int(np.searchsorted(self._firsts, end)))
        firsts, ends = np.maximum(self._firsts[rows], first), np.minimum(self._ends[rows], end)
        between = Spans.whole(np.concatenate([[first], ends]), np.concatenate([firsts, [end]]) - 1)
        return Spans.whole(firsts, ends - 1), between.where(between.counts > 0)


@dataclass
class _Doubtful:
    """Holes above everything known to be cleaned: lost, unless a trace of cleaning follows."""

    whole: Tally
    compacted: Tally
    aborted: Tally

    @staticmethod
    def none() -> _Doubtful:
        return _Doubtful(Tally(), Tally(), Tally())


class GapAccount:
    """
    The account of one partition. Batches are added in the order of their offsets.

    Args:
        start_offset: the log's start; lower offsets are not accounted for.
        cleaned: up to where cleaning has come.
        aborts: rows of the transaction indexes.
        is_never_compacted: of the log's topic; then holes above everything known to be cleaned are losses.

    Attributes:
        records: offsets with a record for readers.
        next_offset: the end of what was accounted for.
        traces_end: the end of the last batch that only cleaning can have left so, if it lies above the checkpoint;
            else 0.
    """

    def __init__(self, start_offset: int, cleaned: CleanedRange, aborts: Aborts, *, is_never_compacted: bool) -> None:
        self.records = 0
        self.next_offset = start_offset
        self.traces_end = 0
        self._cleaned = cleaned
        self._is_never_compacted = is_never_compacted
        self._hidden = AbortedRanges(aborts)
        self._spans = AbortedSpans(aborts)
        self._tallies = {reason: Tally() for reason in GapReason}
        self._doubtful = _Doubtful.none()
        self._is_damaged = False
        self._is_traced = False
        self._is_closed = False
        self._missing_end: tuple[GapReason, int, int] | None = None

    def note_damage(self) -> None:
        """Note that something unreadable lies between the last batch and the next."""
        self._is_damaged = True

    def begin_segment(self, base_offset: int, *, is_closed: bool) -> None:
        """Note that the next batches are in another segment, which ends that of the ones before."""
        self.end_at(base_offset)
        self._is_traced = False
        self._is_damaged = False
        self._is_closed = is_closed

    def end_at(self, offset: int) -> None:
        """Note that the log, or a segment, has no batch from the last one up to an offset."""
        if offset > self.next_offset:
            damaged = np.array([self._is_damaged])
            self._add_holes(Spans.of(self.next_offset, offset - 1), damaged, np.array([self._is_traced]))
            self.next_offset = offset

    def add(self, rows: Batches, good: Mask) -> None:
        """
        Add neighbouring batches of one segment.

        Args:
            rows: of BATCH_DTYPE, those of magic 0 and 1 with count and base offset; all at or above the start.
            good: for each, whether it can be read.
        """
        if good.all():
            if len(rows):
                is_damaged = np.zeros(len(rows), bool)
                is_damaged[0], self._is_damaged = self._is_damaged, False
                self._add_good(rows, is_damaged)
            return
        # The last bad batch before each good one; -1 without one.
        bad = np.maximum.accumulate(np.where(good, -1, np.arange(len(rows))))
        is_left_damaged = not good[-1]
        kept = np.flatnonzero(good)
        if not len(kept):
            self._is_damaged = True
            return
        earlier = np.concatenate([[-1], kept[:-1]])
        is_damaged = bad[kept] > earlier
        is_damaged[0] |= self._is_damaged
        self._is_damaged = is_left_damaged
        self._add_good(rows[kept], is_damaged)

    def _add_good(self, rows: Batches, is_damaged: Mask) -> None:
        base, last, count = rows["base_offset"], rows["last_offset"], rows["count"]
        removed = last - base + 1 - count
        is_control = (rows["magic"] == 2) & (rows["attributes"] & CONTROL_FLAG != 0)
        is_hidden = self._hidden.hidden(rows) != 0
        has_horizon = (rows["magic"] == 2) & (rows["attributes"] & DELETE_HORIZON_FLAG != 0)
        is_trace = ((removed > 0) | has_horizon) & (last >= self._cleaned.end)
        traces = np.flatnonzero(is_trace)
        traced_rows = 0
        if len(traces):
            traced_rows = len(rows) if self._is_closed else int(traces[-1]) + 1
            self._trust_trace(int(last[traces[-1]]) + 1)
        firsts = np.concatenate([[self.next_offset], last[:-1] + 1])
        holes = Spans.whole(firsts, base - 1)
        is_hole = holes.counts > 0
        is_traced = (np.arange(len(rows)) < traced_rows) | self._is_traced
        sparse = Spans(base, last, removed)
        is_aborted = is_hidden & (removed > 0)
        self._add_holes(
            holes.where(is_hole),
            is_damaged[is_hole],
            is_traced[is_hole],
            compacted=sparse.where((removed > 0) & ~is_hidden),
            aborted=sparse.where(is_aborted),
        )
        read = Spans(base, last, count)
        self._tallies[GapReason.MARKERS].add(read.where(is_control & (count > 0)))
        self._tallies[GapReason.HIDDEN].add(read.where(is_hidden & ~is_control & (count > 0)))
        self.records += int(count[~is_control & ~is_hidden].sum())
        self._is_traced |= traced_rows > 0 and self._is_closed
        self.next_offset = int(last[-1]) + 1

    def _add_holes(
        self,
        holes: Spans,
        is_damaged: Mask,
        is_traced: Mask,
        compacted: Spans = NO_SPANS,
        aborted: Spans = NO_SPANS,
    ) -> None:
        """Add whole ranges without any batch, and batches in which cleaning has left fewer records than offsets."""
        self._tallies[GapReason.UNREADABLE].add(holes.where(is_damaged))
        others = holes.where(~is_damaged & ~is_traced).cut_at(self._cleaned.end)
        is_below = others.lasts < self._cleaned.end
        by_cleaning = holes.where(~is_damaged & is_traced).joined(others.where(is_below))
        within, outside = self._spans.split(by_cleaning)
        beyond = others.where(~is_below)  # within one segment, and so on one side of the recopied end
        is_recopied = beyond.lasts < self._cleaned.recopied_end
        recopied_within, recopied_outside = self._spans.split(beyond.where(is_recopied))
        self._tallies[GapReason.ABORTED].add(within.joined(recopied_within).joined(aborted))
        self._tallies[GapReason.COMPACTED].add(outside.joined(compacted))
        doubtful = recopied_outside.joined(beyond.where(~is_recopied))
        within, outside = self._spans.split(doubtful)
        self._doubtful.whole.add(doubtful)
        self._doubtful.aborted.add(within)
        self._doubtful.compacted.add(outside)

    def _trust_trace(self, end_offset: int) -> None:
        """Take the holes below a trace of cleaning for removed."""
        self.traces_end = end_offset
        self._tallies[GapReason.COMPACTED].take_over(self._doubtful.compacted)
        self._tallies[GapReason.ABORTED].take_over(self._doubtful.aborted)
        self._doubtful = _Doubtful.none()

    def add_known(self, reason: GapReason, first_offset: int, end_offset: int) -> None:
        """Add offsets outside of the batches, below the log's start or behind its end."""
        self._tallies[reason].add(Spans.of(first_offset, end_offset - 1))

    def end_of_log(self, reached: int) -> None:
        """Note that the log had reached an offset; what is not there any more was no subject of any cleaning."""
        reason = GapReason.UNREADABLE if self._is_damaged else GapReason.LOST
        self._missing_end = (reason, self.next_offset, reached)
        self.next_offset = max(self.next_offset, reached)

    def forget_damage(self) -> None:
        """Note that what lies behind the last batch is no damage that could hide one."""
        self._is_damaged = False

    def tallies(self) -> dict[GapReason, Tally]:
        """Return the offsets of each reason; to be called once, after everything was added."""
        # A trace of cleaning shows that the policy was another one before.
        is_lost = self._is_never_compacted and not self.traces_end
        self._tallies[GapReason.LOST if is_lost else GapReason.UNEXPLAINED].take_over(self._doubtful.whole)
        self._doubtful = _Doubtful.none()
        if self._missing_end is not None:
            self.add_known(*self._missing_end)
        return {reason: tally for reason, tally in self._tallies.items() if tally.offsets}
