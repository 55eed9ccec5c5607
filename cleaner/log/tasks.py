"""
Periodic tasks in one thread: each at its own interval, one at a time.

A task that fails is reported and tried again at its next turn, or after a second if it stays due; the others go on.
Turns follow the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.read.view import Signal

_NANOS_PER_MILLI = 1_000_000
_RETRY_NANOS = 1_000_000_000
# A wait is cut into pieces, because the system's timers do not take any length.
_LONGEST_WAIT_SECONDS = 3600.0


@dataclass(frozen=True)
class PeriodicTask:
    """
    One task.

    Attributes:
        name: for messages.
        run: does it.
        interval_ms: between the beginnings of two turns.
        delay_ms: until the first one.
        due_ns: returns an earlier time at which it must run, by the monotonic clock; None: no earlier time.
    """

    name: str
    run: Callable[[], None]
    interval_ms: int
    delay_ms: int
    due_ns: Callable[[], int | None] = lambda: None


class Tasks:
    """
    The tasks and their thread. `wake` may be called from any thread.

    Args:
        clock: turns follow its monotonic clock.
        tasks: those that are due together run in this order.
        failed: called with the name of a task that failed, and the error.
    """

    def __init__(self, clock: Clock, tasks: Sequence[PeriodicTask], failed: Callable[[str, Exception], None]) -> None:
        self._clock = clock
        self._tasks = tuple(tasks)
        self._failed = failed
        now_ns = clock.monotonic_ns()
        self._next_ns = {task.name: now_ns + task.delay_ms * _NANOS_PER_MILLI for task in self._tasks}
        # A task that failed may stay due, and would keep the thread busy.
        self._not_before_ns = dict.fromkeys(self._next_ns, 0)
        self._signal = Signal()
        self._is_stopping = False
        self._thread = concurrency.Thread(target=self._run, name="cleaner-log-tasks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have the thread check again what is due."""
        self._signal.notify()

    def stop(self) -> None:
        """End the thread after its present task."""
        self._is_stopping = True
        self._signal.notify()
        if self._thread.is_alive():
            self._thread.join()

    def turn(self) -> float:
        """Run the due tasks; returns the seconds until the next one is due."""
        for task in self._tasks:
            if self._is_stopping:
                return 0
            now_ns = self._clock.monotonic_ns()
            if now_ns < self._due_ns(task):
                continue
            try:
                task.run()
            except Exception as error:  # noqa: BLE001 - the next turn may succeed, and other tasks must go on
                self._failed(task.name, error)
                self._not_before_ns[task.name] = now_ns + _RETRY_NANOS
            # An interval of 0 would keep the thread busy forever.
            self._next_ns[task.name] = now_ns + max(1, task.interval_ms) * _NANOS_PER_MILLI
        return max(0, min(map(self._due_ns, self._tasks)) - self._clock.monotonic_ns()) / 1e9

    def _due_ns(self, task: PeriodicTask) -> int:
        earlier_ns = task.due_ns()
        next_ns = self._next_ns[task.name]
        if earlier_ns is None:
            return next_ns
        return min(max(earlier_ns, self._not_before_ns[task.name]), next_ns)

    def _run(self) -> None:
        while not self._is_stopping:
            seen = self._signal.version
            self._signal.wait(seen, min(self.turn(), _LONGEST_WAIT_SECONDS))
