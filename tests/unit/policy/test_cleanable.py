"""The cleanable range of a log: R-401, R-402, R-405 to R-410, and what Kafka's LogCleanerManagerTest asserts."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cleaner.policy.cleanable import Cleanable, cleanable, first_young_segment

if TYPE_CHECKING:
    from cleaner.config.values import TopicConfig


@dataclass
class FakeSegment:
    """A segment as the policy sees it."""

    base_offset: int
    size: int = 100
    timestamp: int = 0

    def largest_timestamp(self) -> int:
        return self.timestamp

    def first_batch_timestamp(self) -> int:
        return self.timestamp


@dataclass
class FakeLog:
    """A log as the policy sees it; everything is stable by default."""

    segments: list[FakeSegment]
    log_end_offset: int = 50
    log_start_offset: int = 0
    high_watermark: int = -1
    last_stable_offset: int = field(default=-1)

    def __post_init__(self) -> None:
        self.high_watermark = self.log_end_offset if self.high_watermark < 0 else self.high_watermark
        self.last_stable_offset = self.high_watermark if self.last_stable_offset < 0 else self.last_stable_offset


def topic(min_lag_ms: int = 0) -> TopicConfig:
    return cast("TopicConfig", SimpleNamespace(min_compaction_lag_ms=min_lag_ms))


def five_segments(**state: int) -> FakeLog:
    """Segments at 0, 10, 20, 30 and 40 (active), 100 bytes each, with timestamps 0, 10, 20, 30, 40; log end 50."""
    return FakeLog([FakeSegment(base, timestamp=base) for base in range(0, 50, 10)], **state)


def offsets(found: Cleanable) -> tuple[int, int]:
    return found.first_dirty_offset, found.first_uncleanable_offset


def test_range_of_a_stable_log_ends_at_the_active_segment() -> None:
    """R-406 (testCleanableOffsetsActiveSegment): with the high watermark at the end the active segment bounds."""
    found = cleanable(five_segments(), None, topic(), 1000)
    assert Cleanable(0, 40, 0, 400, 100, False, "active segment") == found
    assert found.ratio == 1.0


def test_range_below_the_high_watermark_is_rounded_down_to_a_segment() -> None:
    """R-408: the segment that holds the bound is not cleaned at all."""
    found = cleanable(five_segments(high_watermark=25), None, topic(), 1000)
    assert Cleanable(0, 20, 0, 200, 300, False, "high watermark") == found


def test_range_below_an_open_transaction_names_the_last_stable_offset() -> None:
    """R-407: an undecided transaction bounds the range below the high watermark."""
    found = cleanable(five_segments(last_stable_offset=30), 10, topic(), 1000)
    assert Cleanable(10, 30, 100, 200, 200, False, "last stable offset") == found


@pytest.mark.parametrize(
    ("min_lag_ms", "end", "bounded_by"),
    [
        pytest.param(0, 40, "active segment", id="no-lag"),
        pytest.param(1, 40, "active segment", id="all-older"),
        pytest.param(1000 - 20, 30, "min.compaction.lag.ms", id="exactly-as-old-is-cleanable"),
        pytest.param(1000 - 19, 20, "min.compaction.lag.ms", id="one-younger"),
        pytest.param(5000, 0, "min.compaction.lag.ms", id="all-younger"),
    ],
)
def test_range_with_minimum_lag_ends_at_first_younger_segment(min_lag_ms: int, end: int, bounded_by: str) -> None:
    """R-406 (testCleanableOffsetsForTime, ...ForShortTime): strictly younger than the lag stays out."""
    found = cleanable(five_segments(), None, topic(min_lag_ms), 1000)
    assert (end, bounded_by) == (found.first_uncleanable_offset, found.bounded_by)


def test_range_with_minimum_lag_ends_at_a_young_segment_though_later_ones_are_older() -> None:
    """R-406: the first young segment bounds, timestamps need not be in order."""
    log = five_segments()
    log.segments[1].timestamp = 990
    assert offsets(cleanable(log, None, topic(100), 1000)) == (0, 10)


def test_lag_applies_from_the_first_dirty_offset_on() -> None:
    """R-406: a young segment in the clean section does not bound the dirty one."""
    log = five_segments()
    log.segments[0].timestamp = 990
    assert offsets(cleanable(log, 10, topic(100), 1000)) == (10, 40)


@pytest.mark.parametrize(
    ("checkpoint", "first_dirty", "force"),
    [
        pytest.param(None, 12, False, id="absent"),
        pytest.param(12, 12, False, id="at-start"),
        pytest.param(50, 50, False, id="at-end"),
        pytest.param(5, 12, True, id="below-start"),
        pytest.param(51, 12, True, id="beyond-end"),
    ],
)
def test_checkpoint_outside_the_log_is_reset_to_log_start(
    checkpoint: int | None, first_dirty: int, force: bool
) -> None:
    """R-405 (testCleanableOffsetsNeedsCheckpointReset and the testDirtyOffsetReset tests)."""
    found = cleanable(five_segments(log_start_offset=12), checkpoint, topic(), 1000)
    assert (first_dirty, force) == (found.first_dirty_offset, found.force_checkpoint)


def test_segment_the_first_dirty_offset_falls_inside_counts_twice() -> None:
    """R-409: both sums count whole segments."""
    found = cleanable(five_segments(), 15, topic(), 1000)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 300)
    assert found.ratio == 0.6


def test_log_start_inside_the_only_segment_leaves_nothing_to_clean() -> None:
    """testLogStartOffsetLargerThanActiveSegmentBaseOffset: no error, nothing to clean."""
    found = cleanable(FakeLog([FakeSegment(0)], log_end_offset=10, log_start_offset=5), None, topic(), 1000)
    assert (found.cleanable_bytes, found.first_uncleanable_offset) == (0, 0)


def test_checkpoint_inside_the_active_segment_leaves_nothing_to_clean() -> None:
    """testDirtyOffsetLargerThanActiveSegmentBaseOffset: no error, nothing to clean."""
    found = cleanable(five_segments(), 45, topic(), 1000)
    assert (*offsets(found), found.clean_bytes, found.cleanable_bytes) == (45, 40, 500, 0)


def test_high_watermark_below_the_checkpoint_leaves_nothing_to_clean() -> None:
    """R-406: the bound is never below the first dirty offset, and its segment is not touched."""
    found = cleanable(five_segments(high_watermark=5), 25, topic(), 1000)
    assert (*offsets(found), found.cleanable_bytes) == (25, 20, 0)


def test_ratio_of_an_empty_log_is_zero() -> None:
    """R-410: a log without bytes is skipped, not divided by."""
    assert cleanable(FakeLog([FakeSegment(0, size=0)], log_end_offset=0), None, topic(), 1000).ratio == 0.0


def test_undecided_transaction_moves_the_bound_as_it_is_decided() -> None:
    """testUndecidedTransactionalDataNotCleanable: open, then aborted but within the lag, then old enough."""
    log = five_segments(last_stable_offset=3)
    assert cleanable(log, None, topic(100), 100).first_uncleanable_offset == 0
    log.last_stable_offset = 50
    log.segments[2].timestamp = 90
    assert cleanable(log, None, topic(50), 100).first_uncleanable_offset == 20
    assert cleanable(log, None, topic(50), 500).first_uncleanable_offset == 40


@pytest.mark.parametrize(
    ("first_dirty", "min_lag_ms", "now_ms", "expected"),
    [
        pytest.param(0, 0, 0, None, id="no-lag-no-young-segment"),
        pytest.param(0, 5, 25, None, id="at-the-lag-it-is-old-enough"),
        pytest.param(0, 5, 24, 20, id="a-millisecond-before-it-is-not"),
        pytest.param(25, 50, 24, 20, id="only-dirty-segments-count"),
        pytest.param(40, 50, 24, None, id="never-the-active-one"),
    ],
)
def test_first_young_segment_is_the_one_that_ends_the_range(
    first_dirty: int, min_lag_ms: int, now_ms: int, expected: int | None
) -> None:
    """R-406: the first dirty segment younger than the minimum lag; segments at 0, 10, 20, with times of their bases."""
    log = FakeLog([FakeSegment(base, timestamp=base) for base in range(0, 30, 10)] + [FakeSegment(40)])
    young = first_young_segment(log, first_dirty, min_lag_ms, now_ms)
    assert expected == (None if young is None else young.base_offset)
