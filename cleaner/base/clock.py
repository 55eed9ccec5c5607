"""
All time comes from one object, so that a test (or `--now`) can stop it.

A machine whose clock is not set yet may show any time before 1970. Code that only reads or waits then works with 1970;
code that writes a time with a later effect (a record's, a delete horizon's) calls `require_set` first.
"""

from __future__ import annotations

import time
from typing import Protocol

from cleaner.base import concurrency
from cleaner.errors import ClockError

LAST_CALENDAR_MS = 253_370_764_800_000
"""The beginning of the year 9999, near the end of Python's calendar: later times are shown as this one."""


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
    Return the time unchanged.

    Raises:
        ClockError: it is not after the beginning of 1970, so its clock was never set.
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
        concurrency.Event().wait(seconds)


class StillClock(SystemClock):
    """A wall clock that is stopped at one time, for `--now`; durations are still real."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time this clock was stopped at."""
        return self._now_ms
