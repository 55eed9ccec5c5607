"""
Decides which old segments expire: below the log start offset, over the size limit, past the time limit.

Three passes, each from the oldest segment on, stopping at the first segment that may stay: the remaining segments never
have a gap up to the log end. Nothing at or above the high watermark is deleted.

Source: rules R-901 to R-912, R-914; `UnifiedLog.java` (deletableSegments and the three conditions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleaner.policy.log_views import RetentionLog, RetentionSegment

if TYPE_CHECKING:
    from cleaner.config.values import TopicConfig


class Limit(enum.Enum):
    """Why a segment expires; the order is that of the passes (R-901)."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


def limits(topic: TopicConfig) -> tuple[Limit, ...]:
    """
    Return the passes to make over a topic's logs (R-901).

    None for a tiered log: what may be deleted there depends on remote storage, which is not known here (R-914).
    """
    if topic.is_tiered:
        return ()
    return tuple(Limit) if topic.delete else (Limit.LOG_START,)


def daemon_limits(topic: TopicConfig, *, is_trusted: bool) -> tuple[Limit, ...]:
    """
    Return the passes that a daemon makes over a topic's logs without being asked.

    A policy that is only a default deletes nothing: otherwise an archive without topic settings would lose everything
    older than a week. Segments below the log start offset can no longer be read and are deleted anyway.

    Args:
        is_trusted: the policy is set for this topic, or the default is confirmed.
    """
    return tuple(limit for limit in limits(topic) if is_trusted or limit is Limit.LOG_START)


@dataclass(frozen=True)
class Expired:
    """
    The segments that all passes over one log delete, counted from the oldest on.

    Attributes:
        count: total number of segments.
        by_limit: number of segments by pass; without passes that delete none.
    """

    count: int
    by_limit: Mapping[Limit, int]


@dataclass(frozen=True)
class KeptLog:
    """A log as the passes so far leave it."""

    segments: Sequence[RetentionSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


def find_expired(
    log: RetentionLog, topic: TopicConfig, now_ms: int, *, is_trusted: bool, keeps_active: bool
) -> Expired:
    """
    Find the segments that all passes delete, one after the other.

    Args:
        log: before the passes.
        topic: its settings.
        now_ms: the time for ages.
        is_trusted: see `daemon_limits`.
        keeps_active: never delete the active segment: its writer rolls it first (R-913).
    """
    rest = KeptLog(log.segments, log.log_start_offset, log.log_end_offset, log.high_watermark)
    by_limit = {}
    for limit in daemon_limits(topic, is_trusted=is_trusted):
        most = len(rest.segments) - 1 if keeps_active else len(rest.segments)
        count = min(count_expired(rest, limit, topic, now_ms), most)
        if count > 0:
            by_limit[limit] = count
            left = rest.segments[count:]
            start = left[0].base_offset if left else rest.log_end_offset
            rest = replace(rest, segments=left, log_start_offset=max(rest.log_start_offset, start))
    return Expired(len(log.segments) - len(rest.segments), by_limit)


def count_expired(log: RetentionLog, limit: Limit, topic: TopicConfig, now_ms: int) -> int:
    """
    Count the oldest segments that one pass deletes; it may be all of them.

    Args:
        log: as the earlier passes left it.
        limit: the pass.
        topic: `retention_bytes` and `retention_ms` are used.
        now_ms: the time for ages.
    Source:
        R-903, R-910 to R-912.
    """
    if limit is Limit.LOG_START:
        return _count(log, lambda row: _is_below_log_start(log, row))
    if limit is Limit.SIZE:
        return _count(log, _over_size(log, topic.retention_bytes)) if topic.retention_bytes >= 0 else 0
    if topic.retention_ms < 0:
        return 0
    # Strictly older; a timestamp in the future keeps its segment.
    return _count(log, lambda row: now_ms - log.segments[row].largest_timestamp() > topic.retention_ms)


def _count(log: RetentionLog, is_expired: Callable[[int], bool]) -> int:
    """Walk from the oldest segment to the first that stays (R-903); calls `is_expired` at most once a row."""
    last = len(log.segments) - 1
    for row, segment in enumerate(log.segments):
        upper_offset = log.segments[row + 1].base_offset if row < last else log.log_end_offset
        if log.high_watermark < upper_offset or not is_expired(row) or (row == last and segment.size == 0):
            return row
    return len(log.segments)


def _is_below_log_start(log: RetentionLog, row: int) -> bool:
    """Tell whether the next segment begins at or below the log start offset (R-910)."""
    return row + 1 < len(log.segments) and log.segments[row + 1].base_offset <= log.log_start_offset


def _over_size(log: RetentionLog, retention_bytes: int) -> Callable[[int], bool]:
    """Return the condition of R-911: without the segment, the log still has `retention_bytes`."""
    excess_bytes = sum(segment.size for segment in log.segments) - retention_bytes

    def is_over(row: int) -> bool:
        nonlocal excess_bytes
        if excess_bytes < 0 or excess_bytes - log.segments[row].size < 0:
            return False
        excess_bytes -= log.segments[row].size
        return True

    return is_over
