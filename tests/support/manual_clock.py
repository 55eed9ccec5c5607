"""
Clocks that tests control.

`ManualClock` is for one thread: sleeping moves it. `LockstepClock` is for several: it moves only when all of them
sleep, to the time when the first one wakes, so that the threads' order depends on the clock and not on the machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

START_MS = 1_700_000_000_000


class ManualClock:
    """
    Stands still until it is moved, or until a caller sleeps.

    Attributes:
        slept: every sleep so far, seconds.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._ns = 0

    def now_ms(self) -> int:
        """Return the wall clock, which moves with the other one."""
        return START_MS + self._ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the nanoseconds since the clock was made."""
        return self._ns

    def sleep(self, seconds: float) -> None:
        """Move the clock immediately."""
        self.slept.append(seconds)
        self.move_on(seconds)

    def move_on(self, seconds: float) -> None:
        """Let time pass."""
        self._ns += round(seconds * 1e9)


class LockstepClock:
    """A clock for threads that each work inside `taking_part`; no time passes while one of them is awake."""

    def __init__(self, threads: int) -> None:
        self._change = threading.Condition()
        # All guarded by _change.
        self._ns = 0
        self._awake = threads
        self._wake_times_ns: list[int] = []

    def now_ms(self) -> int:
        """Return the wall clock, which moves with the other one."""
        return START_MS + self.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the nanoseconds since the clock was made."""
        with self._change:
            return self._ns

    def sleep(self, seconds: float) -> None:
        """Sleep until the clock has moved that far; takes no real time."""
        with self._change:
            wake_ns = self._ns + round(seconds * 1e9)
            if wake_ns == self._ns:
                return
            self._wake_times_ns.append(wake_ns)
            self._fall_asleep()
            while self._ns < wake_ns:
                self._change.wait()

    @contextlib.contextmanager
    def taking_part(self) -> Iterator[None]:
        """Be one of the threads until the end of the block; after that the others do not wait for this one."""
        try:
            yield
        finally:
            with self._change:
                self._fall_asleep()

    def _fall_asleep(self) -> None:
        self._awake -= 1
        if self._awake == 0 and self._wake_times_ns:
            self._ns = min(self._wake_times_ns)
            self._awake = self._wake_times_ns.count(self._ns)
            self._wake_times_ns = [wake_ns for wake_ns in self._wake_times_ns if wake_ns > self._ns]
            self._change.notify_all()
