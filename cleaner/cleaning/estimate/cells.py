"""
A log cut into cells: stretches of whole batches, of which some are drawn at random to be read.

A cell is a stretch of a segment between two batches that the offset index names, near multiples of the cells' size, so
every batch is in one cell and no index is read of a segment from which nothing is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptIndexError
from cleaner.storage.segment.segment import Segment

# Small ones tell more for the same bytes: what lies side by side is often alike. Below, reading becomes seeking.
_LEAST_BYTES = 16 << 10
_MOST_BYTES = 1 << 20
_MOST_CELLS = 1 << 14


class Cell(NamedTuple):
    """
    One cell.

    Attributes:
        segment: its segment's place in the list.
        start, end: byte positions in the `.log`; equal where no batch begins in the cell.
        place: where in the log it lies, 0 the begin and 1 the end.
    """

    segment: int
    start: int
    end: int
    place: float


class Cells:
    """
    The cells of some segments, not yet placed exactly.

    Args:
        segments: in log order.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.sizes = np.array([segment.size for segment in segments], np.int64)
        self.total_bytes = int(self.sizes.sum())
        self.cell_bytes = max(_LEAST_BYTES, min(_MOST_BYTES, self.total_bytes // _MOST_CELLS))
        counts = -(-self.sizes // self.cell_bytes)
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._before = np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._first[-1])

    def draw(self, first: int, end: int, most_bytes: int, chance: random.Random) -> list[int]:
        """Draw cells with numbers in a range that amount to so many bytes, two at least; returns them ascending."""
        wanted = max(2, most_bytes // self.cell_bytes)
        if wanted >= end - first:
            return list(range(first, end))
        return sorted(chance.sample(range(first, end), wanted))

    def first_of(self, segment: int) -> int:
        """Return the number of a segment's first cell."""
        return int(self._first[segment])

    def segment_of(self, number: int) -> int:
        """Return the place of a cell's segment in the list."""
        return int(np.searchsorted(self._first, number, side="right")) - 1

    def stretches(self, count: int, most_bytes: int) -> Iterator[Cell]:
        """Return a few long stretches, spread over the log: neighbouring cells of a segment as one."""
        length = max(1, most_bytes // self.cell_bytes)
        for number in sorted({self.count * i // count for i in range(count)}):
            row = self.segment_of(number)
            last = min(number + length, self.first_of(row + 1)) - 1
            first_cell, *_, last_cell = [*self.place([number]), *self.place([last])]
            yield first_cell._replace(end=last_cell.end)

    def place(self, numbers: Sequence[int]) -> Iterator[Cell]:
        """Say where cells begin and end; each segment's index is read once."""
        current, positions = -1, np.zeros(0, np.int64)
        for number in numbers:
            row = self.segment_of(number)
            segment = self.segments[row]
            if row != current:
                current, positions = row, _positions(segment)
            within = number - int(self._first[row])
            is_last = number + 1 == self._first[row + 1]
            start = _at_or_before(positions, within * self.cell_bytes)
            end = segment.size if is_last else _at_or_before(positions, (within + 1) * self.cell_bytes)
            yield Cell(row, start, end, (int(self._before[row]) + start) / max(1, self.total_bytes))


def _positions(segment: Segment) -> npt.NDArray[np.int64]:
    """Return where batches begin, as far as the offset index says; one that cannot be read says nothing."""
    try:
        positions: npt.NDArray[np.int64] = segment.offset_index()["position"].astype(np.int64)
    except CorruptIndexError:
        return np.zeros(0, np.int64)
    return positions


def _at_or_before(positions: npt.NDArray[np.int64], wanted: int) -> int:
    row = int(np.searchsorted(positions, wanted, side="right")) - 1
    return int(positions[row]) if row >= 0 else 0
