"""
Retention of a log by its writer: segments that have expired as a whole go, the active one too.

Which ones is `policy/retention.py`; in which steps they go so that no crash makes a hole is `storage/expiry.py`. When
all have expired an empty segment takes their place first (R-913), so an idle log that keeps nothing for ever keeps
nothing at all. A policy that nobody has said deletes nothing but what lies below the log start.

Source: rules R-901 to R-914, R-920.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleaner.config import TopicConfig
from cleaner.policy.retention import Limit, RetentionSegment, count_expired, daemon_limits


@dataclass(frozen=True)
class KeptLog:
    """A log as retention sees it; see `policy.retention.RetentionLog`."""

    segments: Sequence[RetentionSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


@dataclass(frozen=True)
class ActiveOne:
    """The segment that is appended to: how long it is and its largest timestamp are known, on disk they may not be."""

    base_offset: int
    size: int
    timestamp_ms: int

    def largest_timestamp(self) -> int:
        """Return the largest timestamp, or when it was last written to (R-324)."""
        return self.timestamp_ms


@dataclass(frozen=True)
class Expired:
    """
    What was set aside: how many segments, the bytes of their logs, and the `.deleted` files there are now.
    """

    segments: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expiry:
    """
    What has expired, counted from the oldest segment on.

    Attributes:
        count: how many segments, perhaps all of them.
        by_limit: how many by each limit.
    """

    count: int
    by_limit: Mapping[Limit, int]


def find_expiry(log: KeptLog, topic: TopicConfig, now_ms: int, *, is_trusted: bool) -> Expiry:
    """
    Find what has expired: the passes of R-901, one after the other.

    Args:
        log: as it is.
        topic: its settings.
        now_ms: the moment to judge ages by.
        is_trusted: somebody said what its policy is.
    """
    rest = log
    by_limit = {}
    for limit in daemon_limits(topic, is_trusted=is_trusted):
        count = count_expired(rest, limit, topic, now_ms)
        if count:
            by_limit[limit] = count
            left = rest.segments[count:]
            start = left[0].base_offset if left else rest.log_end_offset
            rest = replace(rest, segments=left, log_start_offset=max(rest.log_start_offset, start))
        if not rest.segments:
            break
    return Expiry(len(log.segments) - len(rest.segments), by_limit)
