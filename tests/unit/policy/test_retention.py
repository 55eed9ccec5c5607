"""Which segments expire: R-901 to R-914."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cleaner.config.values import TopicConfig
from cleaner.policy.retention import Limit, count_expired, daemon_limits, find_expired, limits

NOW_MS = 10_000


@dataclass
class FakeSegment:
    """A segment of numbers."""

    base_offset: int
    size: int
    timestamp_ms: int

    def largest_timestamp(self) -> int:
        """Return the number it was given."""
        return self.timestamp_ms


@dataclass
class FakeLog:
    """A log of numbers."""

    segments: list[FakeSegment]
    log_start_offset: int = 0
    log_end_offset: int = 40
    high_watermark: int = 40


def log(*, sizes: tuple[int, ...] = (100, 100, 100, 100), ages_ms: tuple[int, ...] = (40, 30, 20, 10)) -> FakeLog:
    """Segments at 0, 10, 20, 30."""
    rows = zip(range(0, 40, 10), sizes, ages_ms, strict=True)
    return FakeLog([FakeSegment(base, size, NOW_MS - age_ms) for base, size, age_ms in rows])


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        pytest.param(TopicConfig(cleanup_policy=frozenset(("compact", "delete"))), tuple(Limit), id="compact-delete"),
        pytest.param(TopicConfig(cleanup_policy=frozenset(("compact",))), (Limit.LOG_START,), id="compact"),
        pytest.param(TopicConfig(cleanup_policy=frozenset()), (Limit.LOG_START,), id="no-policy"),
        pytest.param(TopicConfig(remote_storage_enable=True), (), id="tiered"),
    ],
)
def test_passes_follow_the_policy(topic: TopicConfig, expected: tuple[Limit, ...]) -> None:
    """R-901, R-914."""
    assert limits(topic) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3), (40, 3)])
def test_segments_wholly_below_the_log_start_expire(start: int, expected: int) -> None:
    """R-910: the next one begins at or below it; so the last never does."""
    some = log()
    some.log_start_offset = start
    assert count_expired(some, Limit.LOG_START, TopicConfig(), NOW_MS) == expected


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [
        pytest.param(-1, 0, id="no-limit"),
        pytest.param(400, 0, id="at-the-limit"),
        pytest.param(301, 0, id="never-below-the-limit"),
        pytest.param(300, 1, id="exactly-one"),
        pytest.param(150, 2, id="two"),
        pytest.param(0, 4, id="all"),
        pytest.param(500, 0, id="smaller-than-the-limit"),
    ],
)
def test_log_keeps_at_least_its_size_limit(retention_bytes: int, expected: int) -> None:
    """R-911."""
    assert count_expired(log(), Limit.SIZE, TopicConfig(retention_bytes=retention_bytes), NOW_MS) == expected


@pytest.mark.parametrize(
    ("retention_ms", "ages_ms", "expected"),
    [
        pytest.param(-1, (40, 30, 20, 10), 0, id="no-limit"),
        pytest.param(25, (40, 30, 20, 10), 2, id="older-ones"),
        pytest.param(30, (40, 30, 20, 10), 1, id="strictly-older"),
        pytest.param(25, (40, 20, 30, 10), 1, id="stops-at-the-first-that-stays"),
        pytest.param(5, (-50, 30, 20, 10), 0, id="future-timestamp-keeps-its-segment"),
        pytest.param(5, (40, 30, 20, 10), 4, id="active-segment-too"),
    ],
)
def test_time_limit(retention_ms: int, ages_ms: tuple[int, ...], expected: int) -> None:
    """R-912."""
    assert count_expired(log(ages_ms=ages_ms), Limit.TIME, TopicConfig(retention_ms=retention_ms), NOW_MS) == expected


def test_empty_last_segment_stays() -> None:
    """R-903."""
    some = log(sizes=(100, 100, 100, 0))
    assert count_expired(some, Limit.TIME, TopicConfig(retention_ms=0), NOW_MS) == 3


@pytest.mark.parametrize(("high_watermark", "expected"), [(40, 4), (39, 3), (20, 2), (9, 0)])
def test_high_watermark_stops_every_pass(high_watermark: int, expected: int) -> None:
    """R-903: a segment that reaches above it, and all after it, stay."""
    some = log()
    some.high_watermark = high_watermark
    assert count_expired(some, Limit.TIME, TopicConfig(retention_ms=0), NOW_MS) == expected


@pytest.mark.parametrize(
    ("policy", "is_trusted", "expected"),
    [
        pytest.param("delete", True, tuple(Limit), id="said-of-the-topic"),
        pytest.param("delete", False, (Limit.LOG_START,), id="only-a-default"),
        pytest.param("compact", True, (Limit.LOG_START,), id="compact"),
    ],
)
def test_daemon_deletes_by_a_policy_only_where_it_is_known(
    policy: str, is_trusted: bool, expected: tuple[Limit, ...]
) -> None:
    """Segments below the log start offset are deleted under any policy; no others by a default policy."""
    assert daemon_limits(TopicConfig(cleanup_policy=frozenset((policy,))), is_trusted=is_trusted) == expected


def test_find_expired_makes_the_passes_one_after_the_other() -> None:
    """R-901: one segment below the start, one by size, and of the rest one by age."""
    some = log(ages_ms=(5, 5, 40, 10))
    some.log_start_offset = 13
    topic = TopicConfig(cleanup_policy=frozenset(("delete",)), retention_bytes=200, retention_ms=20)
    found = find_expired(some, topic, NOW_MS, is_trusted=True, keeps_active=True)
    assert (found.count, found.by_limit) == (3, dict.fromkeys(Limit, 1))


def test_find_expired_leaves_the_active_segment() -> None:
    """Unlike R-913, whatever its age; a log of that segment alone loses nothing."""
    topic = TopicConfig(cleanup_policy=frozenset(("delete",)), retention_bytes=0, retention_ms=0)
    found = find_expired(log(), topic, NOW_MS, is_trusted=True, keeps_active=True)
    assert (found.count, found.by_limit) == (3, {Limit.SIZE: 3})
    alone = FakeLog([FakeSegment(0, 100, 0)])
    assert find_expired(alone, topic, NOW_MS, is_trusted=True, keeps_active=True).count == 0


def test_find_expired_takes_the_active_segment_where_it_may() -> None:
    """R-913: its writer rolls it first. A log without segments loses nothing."""
    topic = TopicConfig(cleanup_policy=frozenset(("delete",)), retention_bytes=0, retention_ms=0)
    found = find_expired(log(), topic, NOW_MS, is_trusted=True, keeps_active=False)
    assert (found.count, found.by_limit) == (4, {Limit.SIZE: 4})
    for keeps_active in (False, True):
        assert find_expired(FakeLog([]), topic, NOW_MS, is_trusted=True, keeps_active=keeps_active).count == 0
