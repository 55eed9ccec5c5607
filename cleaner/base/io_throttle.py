"""
Keeps reading and writing under a rate that all workers share (R-715).

A limit is an account in bytes. Time pays in, workers draw; a worker that overdraws sleeps until the account is even
again, each after those that came before it. So the long-run rate is exact for any chunk size and any number of workers:
there are no intervals in which a worker could run ahead.

- An account never holds more than 100 ms of the rate. A worker that overslept, or computed for some time, may catch up;
  a night without cleaning does not become a burst.
- With up to 5 ms of debt no worker sleeps: many small chunks then cause one sleep instead of many.
- Together, these are the largest error in any ten seconds: about 1 %. What is drawn at a time adds to it, so a worker
  reads no more at a time than `window_bytes` says: the lower the rate, the less.

Kafka's threads hold the lock of their throttle while they sleep. Here no thread sleeps with a lock held, a sleeping
worker checks every 25 ms, and a new rate counts from that moment on, also for existing debt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock

MAX_CREDIT_NS = 100_000_000
MAX_DEBT_NS = 5_000_000
WINDOW_NS = 25_000_000
"""How much of the rate a worker should draw at a time."""
MIN_WINDOW_BYTES = 16 << 10
LOOK_UP_NS = 25_000_000
"""The longest single sleep: a stop or a new rate is noticed after at most this time."""

UNLIMITED_FROM = 1e15
"""Bytes a second beyond any machine; Kafka's default, the largest double, is above it and means no limit."""

_SECOND_NS = 1_000_000_000


class RateLimit:
    """
    One account. Thread-safe; none of its methods sleeps.

    Args:
        bytes_per_second: above 0; from `UNLIMITED_FROM` on no worker waits.
        clock: the time.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._lock = concurrency.Lock()
        # All guarded by _lock. The balance is bytes paid in until `_as_of_ns` minus bytes drawn; negative: debt.
        self._bytes_per_second = _checked(bytes_per_second)
        self._drawn = 0
        self._balance = 0.0
        self._as_of_ns = clock.monotonic_ns()

    @property
    def bytes_per_second(self) -> float:
        """The current rate."""
        return self._bytes_per_second

    def change(self, bytes_per_second: float) -> None:
        """Set another rate from now on. A debt stays the same number of bytes."""
        checked = _checked(bytes_per_second)
        with self._lock:
            self._settle()
            self._bytes_per_second = checked
            self._settle()

    def draw(self, count: int) -> int:
        """Draw bytes; returns the ticket to pass to `wait_ns`."""
        with self._lock:
            self._settle()
            self._drawn += count
            self._balance -= count
            return self._drawn

    def wait_ns(self, ticket: int) -> int:
        """Return how long it takes, at the current rate, until all bytes drawn up to a ticket are paid."""
        with self._lock:
            self._settle()
            if self._bytes_per_second >= UNLIMITED_FROM:
                return 0
            due = ticket - self._drawn - self._balance
            return max(0, math.ceil(due * _SECOND_NS / self._bytes_per_second))

    def _settle(self) -> None:
        """Pay in for the time passed, up to the account's maximum. Called with the lock held."""
        now_ns = self._clock.monotonic_ns()
        if self._bytes_per_second >= UNLIMITED_FROM:
            self._balance = 0.0
        else:
            most = self._bytes_per_second * MAX_CREDIT_NS / _SECOND_NS
            paid_in = self._bytes_per_second * (now_ns - self._as_of_ns) / _SECOND_NS
            self._balance = min(self._balance + paid_in, most)
        self._as_of_ns = now_ns


def _checked(bytes_per_second: float) -> float:
    if not bytes_per_second > 0:
        raise ValueError(f"a rate of {bytes_per_second} bytes a second: must be above 0")
    return bytes_per_second


@dataclass(frozen=True)
class ThrottleStatistics:
    """
    A throttle's counters.

    Attributes:
        bytes_per_second: the rate of all workers together.
        bytes: bytes read and written so far.
        waited_ns: time asleep, summed over all workers; grows while they sleep.
        waiting: workers asleep now.
    """

    bytes_per_second: float
    bytes: int
    waited_ns: int
    waiting: int


class IoThrottle:
    """
    The limit of the process, and optional limits of single log dirs. Thread-safe.

    Where two limits apply, bytes are drawn from both at once, and the worker waits for both.

    Args:
        bytes_per_second: of all workers together, reads and writes; see `RateLimit`.
        clock: gives the time and sleeps.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._shared = RateLimit(bytes_per_second, clock)
        self._lock = concurrency.Lock()  # guards all fields below; never held during a sleep
        self._log_dirs: dict[Path, RateLimit] = {}
        self._bytes = self._waited_ns = self._waiting = 0

    def for_worker(self, check_done: Callable[[], None], log_dir: Path | None = None) -> Callable[[int], None]:
        """
        Return a function that a worker calls with the bytes it has read or is about to process; it sleeps if needed.

        Args:
            check_done: called before each short sleep; raises to stop. The bytes stay drawn: they have been read.
            log_dir: the log dir of the bytes; its own limit counts too, even if it is set later.
        """
        limits = (self._shared,) if log_dir is None else (self._shared, self._limit_of(log_dir))

        def throttle(count: int) -> None:
            self._pass(count, limits, check_done)

        return throttle

    def window_bytes(self, log_dir: Path) -> int:
        """Return how many bytes a worker should draw at a time at most: 25 ms of the rate, and never very few."""
        rate = min(self._shared.bytes_per_second, self._limit_of(log_dir).bytes_per_second)
        return max(MIN_WINDOW_BYTES, int(min(rate, UNLIMITED_FROM) * WINDOW_NS / _SECOND_NS))

    def change_rate(self, bytes_per_second: float, log_dir: Path | None = None) -> None:
        """Set the rate of all workers together, or that of a log dir; sleeping workers notice at once."""
        limit = self._shared if log_dir is None else self._limit_of(log_dir)
        limit.change(bytes_per_second)

    def statistics(self) -> ThrottleStatistics:
        """Return the counters."""
        with self._lock:
            return ThrottleStatistics(self._shared.bytes_per_second, self._bytes, self._waited_ns, self._waiting)

    def _limit_of(self, log_dir: Path) -> RateLimit:
        with self._lock:
            limit = self._log_dirs.get(log_dir)
            if limit is None:
                limit = self._log_dirs[log_dir] = RateLimit(math.inf, self._clock)
            return limit

    def _pass(self, count: int, limits: tuple[RateLimit, ...], check_done: Callable[[], None]) -> None:
        drawn = [(limit, limit.draw(count)) for limit in limits]
        wait_ns = max(limit.wait_ns(ticket) for limit, ticket in drawn)
        sleeps = wait_ns > MAX_DEBT_NS
        with self._lock:
            self._bytes += count
            self._waiting += sleeps
        if not sleeps:
            return
        try:
            while wait_ns > 0:
                check_done()
                self._sleep(min(wait_ns, LOOK_UP_NS))
                wait_ns = max(limit.wait_ns(ticket) for limit, ticket in drawn)
        finally:
            with self._lock:
                self._waiting -= 1

    def _sleep(self, sleep_ns: int) -> None:
        began_ns = self._clock.monotonic_ns()
        self._clock.sleep(sleep_ns / _SECOND_NS)
        slept_ns = self._clock.monotonic_ns() - began_ns
        with self._lock:
            self._waited_ns += slept_ns
