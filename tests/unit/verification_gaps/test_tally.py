"""Counts are exact whatever is kept; ranges are joined, and the largest stay."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cleaner.storage.segment.indexes import abort_rows
from cleaner.verification.gaps.account import AbortedSpans
from cleaner.verification.gaps.tally import MAX_RANGES, NO_SPANS, OffsetRange, Spans, Tally


def spans(*ranges: tuple[int, int]) -> Spans:
    """Return whole ranges."""
    return Spans.whole(np.array([first for first, _ in ranges]), np.array([last for _, last in ranges]))


def test_neighbours_are_one_range_also_across_calls() -> None:
    """A hole may be found in pieces: at the end of a chunk, of a segment, of a section."""
    tally = Tally()
    tally.add(spans((1, 2), (3, 3), (5, 6)))
    tally.add(NO_SPANS)
    tally.add(spans((7, 9), (11, 11)))
    assert tally.listed() == (OffsetRange(1, 3, 3), OffsetRange(5, 9, 5), OffsetRange(11, 11, 1))
    assert (tally.offsets, tally.ranges) == (9, 3)


def test_batch_that_has_lost_records_is_not_joined_with_a_hole() -> None:
    """Of a hole every offset is known to be gone."""
    tally = Tally()
    tally.add(spans((0, 4)))
    tally.add(Spans(np.array([5, 10]), np.array([9, 14]), np.array([2, 3])))
    tally.add(spans((15, 15)))
    assert tally.listed() == (OffsetRange(0, 4, 5), OffsetRange(5, 14, 5), OffsetRange(15, 15, 1))
    assert [each.is_whole for each in tally.listed()] == [True, False, True]


def test_largest_ranges_are_kept_and_all_are_counted() -> None:
    """However many there are, and in whatever portions they come."""
    chance = random.Random(5)
    sizes = [chance.randint(1, 50) for _ in range(9 * MAX_RANGES)]
    firsts = [60 * number for number in range(len(sizes))]
    every = [(first, first + size - 1) for first, size in zip(firsts, sizes, strict=True)]
    tally = Tally()
    at = 0
    while at < len(every):
        count = chance.randint(1, 700)
        tally.add(spans(*every[at : at + count]))
        at += count
    assert (tally.offsets, tally.ranges) == (sum(sizes), len(sizes))
    largest = sorted(every, key=lambda each: (each[0] - each[1], each[0]))[:MAX_RANGES]
    assert [(each.first, each.last) for each in tally.listed()] == sorted(largest)


def test_tally_that_is_taken_over_counts_what_it_has_forgotten() -> None:
    """Doubtful holes become explained ones when a trace of cleaning follows; the last of one and the first join."""
    below, above = Tally(), Tally()
    below.add(spans((0, 9)))
    above.add(spans((10, 19), *((30 + 2 * number, 30 + 2 * number) for number in range(9 * MAX_RANGES))))
    below.take_over(above)
    assert (below.offsets, below.ranges) == (20 + 9 * MAX_RANGES, 1 + 9 * MAX_RANGES)
    assert below.listed()[0] == OffsetRange(0, 19, 20)
    assert len(below.listed()) == MAX_RANGES


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (5, [(5, 9), (12, 12)]),
        (6, [(5, 5), (6, 9), (12, 12)]),
        (9, [(5, 8), (9, 9), (12, 12)]),
        (10, [(5, 9), (12, 12)]),
        (12, [(5, 9), (12, 12)]),
        (99, [(5, 9), (12, 12)]),
    ],
)
def test_range_is_cut_at_an_offset_inside(offset: int, expected: list[tuple[int, int]]) -> None:
    """The offset begins the second part."""
    cut = spans((5, 9), (12, 12)).cut_at(offset)
    assert list(zip(cut.firsts.tolist(), cut.lasts.tolist(), strict=True)) == expected
    assert cut.counts.tolist() == [last - first + 1 for first, last in expected]


def test_aborted_spans_split_holes_offset_by_offset() -> None:
    """Overlapping, touching and nested transactions; holes inside, outside, across."""
    chance = random.Random(7)
    for _ in range(300):
        aborts = [
            (1, first := chance.randint(0, 60), first + chance.randint(0, 9), 0) for _ in range(chance.randint(0, 6))
        ]
        inside = {offset for _, first, last, _ in aborts for offset in range(first, last + 1)}
        points = sorted(chance.sample(range(80), 2 * chance.randint(1, 5)))
        holes = [(first, last) for first, last in zip(points[::2], points[1::2], strict=True)]
        within, outside = AbortedSpans(abort_rows(aborts)).split(spans(*holes))
        for found, wanted in ((within, True), (outside, False)):
            offsets = [
                offset
                for first, last in zip(found.firsts.tolist(), found.lasts.tolist(), strict=True)
                for offset in range(first, last + 1)
            ]
            assert offsets == [
                offset for first, last in holes for offset in range(first, last + 1) if (offset in inside) is wanted
            ]
            assert int(found.counts.sum()) == len(offsets)
