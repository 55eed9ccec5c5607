"""The throttle shared by all threads: R-715 and Kafka's ThrottlerTest."""

from __future__ import annotations

import pytest

from cleaner.api.options import never_done
from cleaner.api.throttle import CHECK_INTERVAL_NS, Throttle
from cleaner.clock import SystemClock
from cleaner.errors import CleaningAborted


class ManualClock(SystemClock):
    """Moves only when told, or slept."""

    def __init__(self) -> None:
        self.ns = 0
        self.slept: list[float] = []

    def monotonic_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ns += round(seconds * 1e9)


def test_nothing_sleeps_within_an_interval() -> None:
    """A quota used at once is free until the interval is over (testThrottleDesiredRate)."""
    clock = ManualClock()
    throttle = Throttle(1000, clock, never_done)
    throttle(1_000_000)
    clock.ns = CHECK_INTERVAL_NS
    throttle(1)
    assert clock.slept == []


def test_too_high_a_rate_sleeps_until_it_is_right() -> None:
    """900 bytes in 0.4 s at 1000 a second: 0.5 s more."""
    clock = ManualClock()
    throttle = Throttle(1000, clock, never_done)
    clock.ns = 400_000_000
    throttle(900)
    assert sum(clock.slept) == 0.5


def test_each_interval_is_judged_by_itself() -> None:
    """Bytes saved earlier are not spent later."""
    clock = ManualClock()
    throttle = Throttle(1000, clock, never_done)
    clock.ns = 1_000_000_000
    throttle(10)
    clock.ns = 1_500_000_000
    throttle(1000)
    assert sum(clock.slept) == 0.5


def test_unlimited_rate_never_sleeps() -> None:
    """Kafka's default is the largest double."""
    clock = ManualClock()
    throttle = Throttle(1.7976931348623157e308, clock, never_done)
    clock.ns = 1_000_000_000
    throttle(1 << 50)
    assert clock.slept == []


def test_stop_is_heard_while_sleeping() -> None:
    """However low the rate, a signal does not have to wait for the end of the sleep."""
    clock = ManualClock()

    def check_done() -> None:
        if clock.ns > 2_000_000_000:
            raise CleaningAborted("stopped")

    throttle = Throttle(1, clock, check_done)
    clock.ns = 1_000_000_000
    with pytest.raises(CleaningAborted):
        throttle(1_000_000)
    assert clock.ns < 3_000_000_000
