"""
Which old segments expire: below the log start offset, over the size limit, past the time limit.

Three passes, each from the oldest segment on, and each stops at the first segment that may stay: what remains is always
one unbroken piece up to the log end. Nothing at or above the high watermark goes.

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

    None for a tiered log: what may go there depends on what remote storage holds, which is not known here (R-914).
    """
    if topic.is_tiered:
        return ()
    return tuple(Limit) if topic.delete else (Limit.LOG_START,)


def daemon_limits(topic: TopicConfig, *, is_trusted: bool) -> tuple[Limit, ...]:
    """
    Return the passes a daemon makes over a topic's logs on its own account.

    A policy that only a default gives deletes nothing: an archive, whose topics nobody has described, would lose all
    that is older than a week. What lies below the log start offset cannot be read any more and goes all the same.

    Args:
        is_trusted: somebody said the policy of this topic, or that the default is right.
    """
    return tuple(limit for limit in limits(topic) if is_trusted or limit is Limit.LOG_START)


@dataclass(frozen=True)
class Expired:
    """
    What all passes over one log delete, counted from the oldest segment on.

    Attributes:
        count: how many segments in all.
        by_limit: how many by each pass; those that delete none are not in it.
    """

    count: int
    by_limit: Mapping[Limit, int]


@dataclass(frozen=True)
class KeptLog:
    """A log as it is, or as the passes so far leave it."""

    segments: Sequence[RetentionSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


def find_expired(
    log: RetentionLog, topic: TopicConfig, now_ms: int, *, is_trusted: bool, keeps_active: bool
) -> Expired:
    """
    Find what is to be deleted: what all passes would, one after the other.

    Args:
        log: as it is.
        topic: its settings.
        now_ms: the moment to judge ages by.
        is_trusted: see `daemon_limits`.
        keeps_active: never the active segment, which is its writer's, who rolls it first (R-913).
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
        log: as the passes before have left it.
        limit: the pass.
        topic: `retention_bytes` and `retention_ms` are used.
        now_ms: the moment to judge ages by.
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
    """Walk from the oldest segment to the first that stays (R-903); `is_expired` is asked of each row at most once."""
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
    """Return the condition of R-911: without the segment the log still has `retention_bytes`."""
    excess_bytes = sum(segment.size for segment in log.segments) - retention_bytes

    def is_over(row: int) -> bool:
        nonlocal excess_bytes
        if excess_bytes < 0 or excess_bytes - log.segments[row].size < 0:
            return False
        excess_bytes -= log.segments[row].size
        return True

    return is_over
