"""Which segments of a log hold a range of offsets, and how far a segment reaches; for anything with a base offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol, TypeVar

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Largest distance from the base offset an index entry can hold: a signed 32-bit integer (R-301, R-304)."""


class HasBaseOffset(Protocol):
    """Anything that starts at a base offset."""

    @property
    def base_offset(self) -> int:
        """Lower bound of the segment's offsets."""


AnySegment = TypeVar("AnySegment", bound=HasBaseOffset)


def segments_between(segments: Sequence[AnySegment], from_offset: int, to_offset: int) -> list[AnySegment]:
    """
    Return the segments from the one that holds `from_offset` to the last with a base below `to_offset` (R-401).

    Args:
        segments: ascending by base offset.
        from_offset: lies in the first segment returned, unless it is below all of them.
        to_offset: exclusive; if equal to `from_offset`, the result is empty.
    Raises:
        ValueError: `to_offset` is below `from_offset`.
    """
    if to_offset < from_offset:
        raise ValueError(f"segments from {from_offset} to {to_offset}")
    if from_offset == to_offset:
        return []
    floor = bisect_right(segments, from_offset, key=_base_offset) - 1
    end = bisect_left(segments, to_offset, key=_base_offset)
    return list(segments[max(0, floor) : end])


def non_active_from(segments: Sequence[AnySegment], from_offset: int) -> list[AnySegment]:
    """Return the segments from the one that holds `from_offset`, without the active one (R-402)."""
    active_base = segments[-1].base_offset
    return [] if from_offset > active_base else segments_between(segments, from_offset, active_base)


def _base_offset(segment: HasBaseOffset) -> int:
    return segment.base_offset
