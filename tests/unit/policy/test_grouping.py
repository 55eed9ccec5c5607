"""Which neighbouring segments become one: R-580 to R-582 and Kafka's testSegmentGrouping tests."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.policy.grouping import group_segments


class Sizes(NamedTuple):
    """A segment as grouping sees it."""

    base_offset: int
    size: int = 10
    index_bytes: int = 8
    time_index_bytes: int = 12


HUGE = 2**31 - 1


def bases(
    segments: list[Sizes], *, log: int = HUGE, index: int = HUGE, first_uncleanable_offset: int = 100
) -> list[list[int]]:
    groups = group_segments(
        segments, max_log_bytes=log, max_index_bytes=index, first_uncleanable_offset=first_uncleanable_offset
    )
    return [[s.base_offset for s in group] for group in groups]


SEVEN = [Sizes(base) for base in range(7)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({}, [[0, 1, 2, 3, 4, 5, 6]], id="huge-limits"),
        pytest.param({"log": 1}, [[0], [1], [2], [3], [4], [5], [6]], id="one-byte-of-log"),
        pytest.param({"index": 1}, [[0], [1], [2], [3], [4], [5], [6]], id="one-byte-of-index"),
        pytest.param({"log": 30}, [[0, 1, 2], [3, 4, 5], [6]], id="exactly-three-logs"),
        pytest.param({"log": 29}, [[0, 1], [2, 3], [4, 5], [6]], id="one-byte-less"),
        pytest.param({"index": 36}, [[0, 1, 2], [3, 4, 5], [6]], id="exactly-three-time-indexes"),
        pytest.param({"index": 35}, [[0, 1], [2, 3], [4, 5], [6]], id="one-byte-of-index-less"),
    ],
)
def test_groups_fill_up_to_the_limits_in_order(limits: dict[str, int], expected: list[list[int]]) -> None:
    """R-580 (testSegmentGrouping): greedy, in order, every limit inclusive."""
    assert expected == bases(SEVEN, **limits)


def test_offset_and_time_index_have_separate_limits() -> None:
    """R-580: offset and time index are summed separately."""
    assert bases([Sizes(n, index_bytes=20, time_index_bytes=0) for n in range(3)], index=40) == [[0, 1], [2]]


def test_oversized_segment_forms_its_own_group() -> None:
    """R-582: a segment over the limit is cleaned alone, its neighbours without it."""
    assert bases([Sizes(0), Sizes(1, size=99), Sizes(2), Sizes(3)], log=30) == [[0], [1], [2, 3]]


def test_no_segments_make_no_groups() -> None:
    """An empty range is not a group."""
    assert bases([]) == []


def test_offsets_just_within_reach_are_grouped_one_more_is_not() -> None:
    """R-580, R-581 (testSegmentGroupingWithSparseOffsets): the group's base reaches 2^31 - 1 offsets far."""
    within = [Sizes(0), Sizes(5), Sizes(MAX_RELATIVE_OFFSET + 1)]
    assert bases(within, first_uncleanable_offset=2**32) == [[0, 5], [MAX_RELATIVE_OFFSET + 1]]
    beyond = [Sizes(0), Sizes(5), Sizes(MAX_RELATIVE_OFFSET + 2)]
    assert bases(beyond, first_uncleanable_offset=2**33) == [[0], [5], [MAX_RELATIVE_OFFSET + 2]]


def test_last_segment_reaches_to_the_first_uncleanable_offset() -> None:
    """R-581 (testSegmentGroupingFollowingLoadOfZeroIndex): its own index is not trusted for its last offset."""
    segments = [Sizes(0), Sizes(5, index_bytes=0)]
    assert bases(segments, first_uncleanable_offset=MAX_RELATIVE_OFFSET + 1) == [[0, 5]]
    assert bases(segments, first_uncleanable_offset=MAX_RELATIVE_OFFSET + 2) == [[0], [5]]


def test_empty_segments_merge_whatever_their_offsets() -> None:
    """R-580 (testSegmentGroupingWithSparseOffsetsAndEmptySegments): empty files do not pile up."""
    step = 2**31
    full = [Sizes(0), Sizes(step), Sizes(2 * step)]
    assert [[0], [step], [2 * step]] == bases(full, first_uncleanable_offset=3 * step)
    emptied = [Sizes(0, size=0), Sizes(step, size=0), Sizes(2 * step)]
    assert [[0, step], [2 * step]] == bases(emptied, first_uncleanable_offset=3 * step)


@given(
    st.lists(st.tuples(st.integers(1, 2**30), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=20),
    st.integers(1, 100),
    st.integers(1, 100),
)
def test_groups_joined_are_the_segments_and_cannot_take_one_more(
    parts: list[tuple[int, int, int, int]], log: int, index: int
) -> None:
    """R-580: nothing lost or moved, every group within the limits or single, and none could have taken the next."""
    segments, base = [], 0
    for gap, *sizes in parts:
        base += gap
        segments.append(Sizes(base, *sizes))
    groups = group_segments(segments, max_log_bytes=log, max_index_bytes=index, first_uncleanable_offset=base + 7)
    assert segments == [s for group in groups for s in group]
    ends = {s: following.base_offset for s, following in pairwise(segments)}

    def fits(group: list[Sizes]) -> bool:
        sums = [sum(s[column] for s in group) for column in (1, 2, 3)]
        reach = ends.get(group[-1], base + 7) - 1 - group[0].base_offset
        small = sums[0] <= log and sums[1] <= index and sums[2] <= index
        return small and (group[-1].size == 0 or reach <= MAX_RELATIVE_OFFSET)

    for group in groups:
        assert all(fits(group[: n + 1]) for n in range(1, len(group)))
    for group, following in pairwise(groups):
        assert not fits([*group, following[0]])
