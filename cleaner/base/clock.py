"""
Time enters through one object, so that a test (or `--now`) can make it stand still.

A machine whose clock was not set yet may say anything before 1970. What only looks or waits then works with 1970; what
would write a time that counts later (a record's, a delete horizon's) asks `require_set` first.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from cleaner.errors import ClockError

LAST_CALENDAR_MS = 253_370_764_800_000
"""The beginning of the year 9999: what is told by a calendar, which has an end, is told as of then at the latest."""


class Clock(Protocol):
    """Wall clock in milliseconds, a monotonic clock in nanoseconds, and the only way to sleep."""

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970."""

    def monotonic_ns(self) -> int:
        """Return a clock that never goes back, nanoseconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def require_set(now_ms: int) -> int:
    """
    Return a moment as it is.

    Raises:
        ClockError: it is not after the beginning of 1970, so that nobody has set the clock it comes from.
    """
    if now_ms <= 0:
        raise ClockError
    return now_ms


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970; 0 before."""
        return max(0, time.time_ns() // 1_000_000)

    def monotonic_ns(self) -> int:
        """Return a clock that never goes back, nanoseconds."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        threading.Event().wait(seconds)


class StillClock(SystemClock):
    """A wall clock that stands at one moment, as `--now` asks for; durations are still real."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the moment this clock was given."""
        return self._now_ms
