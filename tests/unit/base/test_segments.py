"""The segments of a range of offsets: R-401, R-402."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cleaner.base.segments import non_active_from, segments_between


@dataclass(frozen=True)
class Based:
    """A segment, as far as a range needs it."""

    base_offset: int


SEGMENTS = [Based(base) for base in range(0, 50, 10)]


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "bases"),
    [
        pytest.param(0, 0, [], id="equal"),
        pytest.param(10, 30, [10, 20], id="at-bases"),
        pytest.param(15, 25, [10, 20], id="floor-of-from-is-included"),
        pytest.param(-1, 20, [0, 10], id="below-all"),
        pytest.param(45, 99, [40], id="inside-the-last"),
        pytest.param(12, 13, [10], id="inside-one"),
        pytest.param(-5, -1, [], id="nothing-there"),
    ],
)
def test_segments_between_returns_floor_of_from_up_to_to(from_offset: int, to_offset: int, bases: list[int]) -> None:
    """R-401: the segment holding the first offset is included, the end is exclusive."""
    assert bases == [s.base_offset for s in segments_between(SEGMENTS, from_offset, to_offset)]


def test_segments_between_end_below_start_is_refused() -> None:
    """R-401: a reversed range is an internal error."""
    with pytest.raises(ValueError, match="from 20 to 10"):
        segments_between(SEGMENTS, 20, 10)


@pytest.mark.parametrize(
    ("from_offset", "bases"),
    [(0, [0, 10, 20, 30]), (25, [20, 30]), (39, [30]), (40, []), (41, []), (99, [])],
)
def test_non_active_from_never_returns_the_active_segment(from_offset: int, bases: list[int]) -> None:
    """R-402: the last segment is active and stays out; beyond its base there is nothing."""
    assert bases == [s.base_offset for s in non_active_from(SEGMENTS, from_offset)]
