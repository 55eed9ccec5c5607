"""The aborted transactions of a part of a log, gathered from the transaction indexes of its segments (R-535)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set

import numpy as np

from cleaner.storage.segment.aborted import found_below
from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET, Aborts, abort_rows
from cleaner.storage.segment.segment import Segment

_SHORT_ROWS = 64


class AbortedWalk:
    """
    Walks over the transaction indexes of one log, and remembers which segments have no aborted transactions.

    It remembers short indexes, too: a walk reaches over as many segments as a transaction does.
    """

    def __init__(self) -> None:
        # Where little was aborted, each walk reaches far: an index without entries is opened once, not once for every
        # walk. None before the first call.
        self._with_aborts: list[Segment] | None = None
        self._short: dict[Segment, Aborts] = {}

    def collect(
        self, segments: Sequence[Segment], from_offset: int, upper_offset: int, log_start_offset: int
    ) -> Aborts:
        """
        Collect the aborted transactions that reach into [from, upper).

        Some results may lie entirely below `from_offset`: the walk begins at the segment that holds it and compares
        with the log start offset, as Kafka does.

        Args:
            segments: of the log, ascending; the same ones each time, except those replaced with `replace`.
        Raises:
            CorruptIndexError: a transaction index is damaged.
        """
        collected = [abort_rows(())]
        holder = bisect_right(segments, from_offset, key=_base_offset) - 1
        if holder < 0:
            return collected[0]
        if self._with_aborts is None:
            self._with_aborts = list(segments)
        first = bisect_left(self._with_aborts, segments[holder].base_offset, key=_base_offset)
        candidates = self._with_aborts[first:]
        looked_at, found = 0, []

        def indexes() -> Iterator[Aborts]:
            nonlocal looked_at
            for segment in candidates:
                looked_at += 1
                aborts = self._aborts_of(segment)
                if len(aborts):
                    found.append(segment)
                    yield aborts

        for aborts in found_below(indexes(), upper_offset):
            is_wanted = (aborts[:, LAST_OFFSET] >= log_start_offset) & (aborts[:, FIRST_OFFSET] < upper_offset)
            collected.append(aborts[is_wanted])
        self._with_aborts[first : first + looked_at] = found
        return np.concatenate(collected)

    def _aborts_of(self, segment: Segment) -> Aborts:
        aborts = self._short.get(segment)
        if aborts is None:
            aborts = segment.aborted_txns()
            if 0 < len(aborts) <= _SHORT_ROWS:
                self._short[segment] = aborts
        return aborts

    def replace(self, gone: Set[int], new: Segment) -> None:
        """Note that one segment replaces those with the base offsets `gone`."""
        self._short = {segment: aborts for segment, aborts in self._short.items() if segment.base_offset not in gone}
        if self._with_aborts is not None:
            self._with_aborts = replaced(self._with_aborts, gone, new)


def replaced(segments: Sequence[Segment], gone: Set[int], new: Segment) -> list[Segment]:
    """Return segments, ascending, with a new one instead of those with the base offsets `gone`."""
    return sorted([*(each for each in segments if each.base_offset not in gone), new], key=_base_offset)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
