"""Counts of offsets, exact, with the ranges they are in: neighbours are joined, and only the largest are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

MAX_RANGES = 1000
"""The most ranges that are kept of one reason."""

_FIRST, _LAST, _COUNT = 0, 1, 2
_NOTHING: Longs = np.zeros((0, 3), np.int64)
_CAPACITY = 4 * MAX_RANGES


class Spans(NamedTuple):
    """
    Ranges of offsets, ascending, that do not overlap.

    Attributes:
        firsts, lasts: int64, shape (n,), both inclusive.
        counts: int64, shape (n,): how many of a range's offsets are meant; all of them, unless it is a batch that has
            lost some of its records, where the header does not say which.
    """

    firsts: Longs
    lasts: Longs
    counts: Longs

    @staticmethod
    def whole(firsts: Longs, lasts: Longs) -> Spans:
        """Return ranges of which all offsets are meant."""
        return Spans(firsts, lasts, lasts - firsts + 1)

    @staticmethod
    def of(first: int, last: int) -> Spans:
        """Return one range of which all offsets are meant, or none if it is empty."""
        ends = np.array([(first, last)] if first <= last else [], np.int64).reshape(-1, 2)
        return Spans.whole(ends[:, 0], ends[:, 1])

    def where(self, wanted: npt.NDArray[np.bool_]) -> Spans:
        """Return some of them."""
        return Spans(self.firsts[wanted], self.lasts[wanted], self.counts[wanted])

    def joined(self, other: Spans) -> Spans:
        """Return both, in the order of their offsets."""
        if not len(other.firsts) or not len(self.firsts):
            return other if len(other.firsts) else self
        firsts, lasts, counts = (np.concatenate(both) for both in zip(self, other, strict=True))
        order = np.argsort(firsts, kind="stable")
        return Spans(firsts[order], lasts[order], counts[order])

    def cut_at(self, offset: int) -> Spans:
        """Return whole ranges with the one that holds `offset - 1` and `offset`, if any, made two."""
        crossing = np.flatnonzero((self.firsts < offset) & (self.lasts >= offset))
        if not len(crossing):
            return self
        at = int(crossing[0])
        return Spans.whole(np.insert(self.firsts, at + 1, offset), np.insert(self.lasts, at, offset - 1))


NO_SPANS = Spans.of(0, -1)


@dataclass(frozen=True)
class OffsetRange:
    """
    Some offsets.

    Attributes:
        first, last: both inclusive.
        count: how many of them are meant; fewer than all where a batch has lost some of its records.
    """

    first: int
    last: int
    count: int

    @property
    def is_whole(self) -> bool:
        """Tell whether all of them are meant."""
        return self.count == self.last - self.first + 1


class Tally:
    """
    Offsets of one reason. Ranges are added in the order of their offsets.

    Attributes:
        offsets: how many there are.
        ranges: in how many ranges.
    """

    def __init__(self) -> None:
        self.offsets = 0
        self.ranges = 0
        self._kept = _NOTHING
        self._open = _NOTHING  # the last range, which the next one may continue

    def add(self, spans: Spans) -> None:
        """Add ranges above all earlier ones."""
        if len(spans.firsts):
            self.offsets += int(spans.counts.sum())
            self._put(np.stack(spans, axis=1))

    def take_over(self, other: Tally) -> None:
        """Add all of another tally, which is above this one."""
        rows = other._rows()
        self._put(rows)
        self.ranges += other.ranges - len(rows)  # those that were not kept
        self.offsets += other.offsets

    def listed(self) -> tuple[OffsetRange, ...]:
        """Return the largest ranges, in the order of their offsets."""
        return tuple(OffsetRange(*row) for row in _largest(self._rows()).tolist())

    def _rows(self) -> Longs:
        return np.concatenate([self._kept, self._open])

    def _put(self, rows: Longs) -> None:
        if not len(rows):
            return
        self.ranges -= len(self._open)
        rows = np.concatenate([self._open, rows])
        is_whole = rows[:, _COUNT] == rows[:, _LAST] - rows[:, _FIRST] + 1
        # A range of a batch whose records are in part missing says less than a whole one: they are not joined.
        continues = (rows[1:, _FIRST] == rows[:-1, _LAST] + 1) & (is_whole[1:] == is_whole[:-1])
        begins = np.flatnonzero(np.concatenate([[True], ~continues]))
        ends = np.append(begins[1:], len(rows)) - 1
        counts = np.add.reduceat(rows[:, _COUNT], begins)
        joined = np.stack([rows[begins, _FIRST], rows[ends, _LAST], counts], axis=1)
        self.ranges += len(joined)
        self._open = joined[-1:]
        self._kept = np.concatenate([self._kept, joined[:-1]])
        if len(self._kept) > _CAPACITY:
            self._kept = _largest(self._kept)


def _largest(rows: Longs) -> Longs:
    """Return the ranges with the most offsets, the first of equal ones, in the order of their offsets."""
    if len(rows) <= MAX_RANGES:
        return rows
    order = np.argsort(-rows[:, _COUNT], kind="stable")[:MAX_RANGES]
    return rows[np.sort(order)]
