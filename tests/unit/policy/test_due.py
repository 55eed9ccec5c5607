"""When a log is due: R-415, R-421."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cleaner.config.table import LONG_MAX
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.due import compaction_delay_ms, due, overdue_at_ms, overdue_ms

if TYPE_CHECKING:
    from cleaner.config.values import TopicConfig

NOW = 1_000


@dataclass
class FakeSegment:
    """A segment with the time of its first batch."""

    base_offset: int
    first: int
    size: int = 100

    def largest_timestamp(self) -> int:
        return self.first

    def first_batch_timestamp(self) -> int:
        return self.first


class FakeLog:
    """A log of ten offsets a segment; the last segment is active."""

    log_start_offset = 0

    def __init__(self, *first_timestamps: int) -> None:
        self.segments = [FakeSegment(n * 10, first) for n, first in enumerate(first_timestamps)]
        self.log_end_offset = self.high_watermark = self.last_stable_offset = 10 * len(first_timestamps)


def topic(ratio: float = 0.5, max_lag_ms: int = 2**63 - 1) -> TopicConfig:
    return cast("TopicConfig", SimpleNamespace(min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=max_lag_ms))


def dirty(clean_bytes: int, cleanable_bytes: int) -> Cleanable:
    return Cleanable(0, 20, clean_bytes, cleanable_bytes, 100, False, "active segment")


@pytest.mark.parametrize(
    ("timestamps", "first_dirty", "max_lag", "delay"),
    [
        pytest.param((300, 400, 10), 0, 500, 200, id="oldest-dirty-segment"),
        pytest.param((300, 400, 10), 10, 500, 100, id="clean-segments-do-not-count"),
        pytest.param((500, 600, 10), 0, 500, 0, id="exactly-at-the-lag"),
        pytest.param((-1, 0, 10), 0, 500, 0, id="no-positive-time"),
        pytest.param((-1, 400, 10), 0, 500, 100, id="unknown-times-do-not-count"),
        pytest.param((300, 400, 10), 20, 500, 0, id="only-the-active-segment-is-dirty"),
        pytest.param((300, 400, 10), 0, 2**63 - 1, 0, id="no-lag"),
    ],
)
def test_delay_is_that_of_the_oldest_dirty_segment(
    timestamps: tuple[int, ...], first_dirty: int, max_lag: int, delay: int
) -> None:
    """R-415: strictly older than the lag, over all non-active dirty segments."""
    assert delay == compaction_delay_ms(FakeLog(*timestamps), first_dirty, max_lag, NOW)


@pytest.mark.parametrize(
    ("clean", "cleanable", "settings", "is_due", "reason"),
    [
        pytest.param(100, 101, {}, True, "ratio 0.502 above 0.5", id="above-the-ratio"),
        pytest.param(100, 100, {}, False, "ratio 0.500 not above 0.5", id="at-the-ratio"),
        pytest.param(0, 100, {"ratio": 1.0}, False, "ratio 1.000 not above 1", id="ratio-one-means-forced-only"),
        pytest.param(100, 1, {"ratio": 0.0}, True, "ratio 0.010 above 0", id="ratio-zero-takes-one-byte"),
        pytest.param(
            100, 0, {"ratio": 0.0}, False, "nothing to clean: the range ends at the active segment", id="none"
        ),
        pytest.param(100, 1, {"max_lag_ms": 500}, True, "over max.compaction.lag.ms by 200 ms", id="forced"),
        pytest.param(100, 0, {"max_lag_ms": 500}, False, "nothing to clean: ", id="forced-with-nothing-to-clean"),
    ],
)
def test_log_is_due_by_ratio_or_lag(
    clean: int, cleanable: int, settings: dict[str, float], is_due: bool, reason: str
) -> None:
    """R-421: the ratio is compared strictly, the lag needs a byte to clean."""
    found = due(FakeLog(300, 400, 10), dirty(clean, cleanable), topic(**settings), NOW)  # type: ignore[arg-type]
    assert is_due is found.is_due
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("lag_ms", [-1, 0, 5])
def test_moment_of_becoming_overdue_is_the_first_that_is_over_the_lag(lag_ms: int) -> None:
    """R-415: strictly over; a negative lag counts as none."""
    moment_ms = overdue_at_ms(100, lag_ms)
    assert moment_ms is not None
    assert (overdue_ms(100, lag_ms, moment_ms - 1), overdue_ms(100, lag_ms, moment_ms)) == (0, 1)


def test_log_without_a_lag_or_without_a_time_never_becomes_overdue() -> None:
    """R-415: the default lag is reached by no clock."""
    assert (overdue_at_ms(100, LONG_MAX), overdue_at_ms(None, 5)) == (None, None)
