"""Keeps reading and writing under a rate, as Kafka's cleaner threads share one (R-715)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cleaner.clock import Clock

CHECK_INTERVAL_NS = 300_000_000
"""Kafka's: within it nothing sleeps."""

_LONGEST_SLEEP_SECONDS = 0.25  # so that a stop is heard, however low the rate


class Throttle:
    """
    Call it with each number of bytes; it sleeps when the rate since the last check was above the limit.

    Args:
        bytes_per_second: the limit for all threads together.
        clock: gives the time, and the sleep.
        check_done: asked again and again while sleeping; raises to stop.
    """

    def __init__(self, bytes_per_second: float, clock: Clock, check_done: Callable[[], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._check_done = check_done
        self._lock = threading.Lock()  # held while sleeping too, so that all threads wait for the one rate
        self._since_ns = clock.monotonic_ns()
        self._bytes = 0

    def __call__(self, count: int) -> None:
        """Note `count` bytes read or written."""
        with self._lock:
            self._bytes += count
            elapsed_ns = self._clock.monotonic_ns() - self._since_ns
            if elapsed_ns <= CHECK_INTERVAL_NS or self._bytes == 0:
                return
            wait_ns = self._bytes * 1_000_000_000 / self._bytes_per_second - elapsed_ns
            wait_seconds = wait_ns / 1_000_000_000
            while wait_seconds > 0:
                self._check_done()
                self._clock.sleep(min(wait_seconds, _LONGEST_SLEEP_SECONDS))
                wait_seconds -= _LONGEST_SLEEP_SECONDS
            self._since_ns = self._clock.monotonic_ns()
            self._bytes = 0
