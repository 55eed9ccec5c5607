"""Time enters through one object, so that a test (or `--now`) can make it stand still."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in milliseconds, a monotonic clock in nanoseconds, and the only way to sleep."""

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970."""

    def monotonic_ns(self) -> int:
        """Return a clock that never goes back, nanoseconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970."""
        return time.time_ns() // 1_000_000

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
