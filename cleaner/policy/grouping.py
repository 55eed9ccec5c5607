"""Decides which neighbouring segments are recopied into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Protocol, TypeVar

from cleaner.base.segments import MAX_RELATIVE_OFFSET, HasBaseOffset
from cleaner.policy.log_views import SizedSegment


class SegmentSizes(SizedSegment, Protocol):
    """What grouping needs of a segment: its base offset and the used bytes of its files."""

    @property
    def index_bytes(self) -> int:
        """Bytes of offset index entries in use."""

    @property
    def time_index_bytes(self) -> int:
        """Bytes of time index entries in use."""


SegmentT = TypeVar("SegmentT", bound=SegmentSizes)


def group_segments(
    segments: Sequence[SegmentT],
    *,
    max_log_bytes: int,
    max_index_bytes: int,
    first_uncleanable_offset: int,
) -> list[list[SegmentT]]:
    """
    Divide segments, in order, into the groups that become one segment each.

    The limits apply to *source* sizes, so a group's output is almost always smaller, but may exceed them if batches
    grow (R-582). A segment over a limit forms its own group. An empty segment joins a group whatever its offsets, so
    that no empty file stays for every 2^31 offsets.

    Args:
        segments: ascending, from the log's first up to the end of the round.
        max_log_bytes: `segment.bytes`, or `internal.segment.bytes` if set.
        max_index_bytes: `segment.index.bytes`, for both the offset and the time index.
        first_uncleanable_offset: bounds the offsets of the last segment.
    Returns:
        Non-empty lists that together are `segments`.
    Source:
        R-580, R-581, R-582.
    """
    groups: list[list[SegmentT]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for segment, last_offset in zip(segments, _last_offsets(segments, first_uncleanable_offset), strict=True):
        log_bytes += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and log_bytes <= max_log_bytes
            and index_bytes <= max_index_bytes
            and time_index_bytes <= max_index_bytes
            and (segment.size == 0 or last_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes, index_bytes, time_index_bytes = segment.size, segment.index_bytes, segment.time_index_bytes
    return groups


def unread_sources(groups: Iterable[Sequence[HasBaseOffset]], *, reads_every_index: bool) -> frozenset[int]:
    """Return the base offsets of sources whose last index entry may be wrong, as no round reads it (R-538)."""
    if reads_every_index:
        return frozenset()
    return frozenset(segment.base_offset for group in groups for segment in group[:-1])


def _last_offsets(segments: Sequence[SegmentSizes], first_uncleanable_offset: int) -> Iterable[int]:
    """Estimate each segment's last offset from the next one's base: its own index may be empty (R-581)."""
    between = (following.base_offset - 1 for _, following in pairwise(segments))
    return chain(between, [first_uncleanable_offset - 1] if segments else [])
