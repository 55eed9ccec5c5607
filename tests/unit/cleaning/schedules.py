"""
Threads that run one at a time, the next drawn at random: every schedule can be repeated, and a deadlock is detected.

A `Schedule` replaces the module `concurrency` in the module under test. Threads switch where a lock is taken or
released, and wherever the test calls `pause`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from cleaner.base import concurrency


class Deadlock(AssertionError):
    """All threads wait for each other."""


class Schedule:
    """
    Draws which thread continues.

    Args:
        seed: of the random choice. Half of the seeds let one thread run as long as it can, so that the others are late.
        interrupt_at: the number of the pause at which the thread that created the schedule is interrupted.
    """

    join_all = staticmethod(concurrency.join_all)

    def __init__(self, seed: int, interrupt_at: int | None = None) -> None:
        self._rng = random.Random(seed)
        self._patience = self._rng.choice([0.0, 0.9])
        self._batons: dict[threading.Thread, threading.Semaphore] = {threading.current_thread(): threading.Semaphore(0)}
        self._runnable = [threading.current_thread()]
        self.was_interrupted = False
        self._main = threading.current_thread()
        self._interrupt_at = interrupt_at
        self._pauses = 0

    @property
    def runnable(self) -> list[threading.Thread]:
        """All threads that have started, have not ended and do not wait."""
        return list(self._runnable)

    def pause(self) -> None:
        """Let another thread run, or continue."""
        me = threading.current_thread()
        following = me if self._rng.random() < self._patience else self._rng.choice(self._runnable)
        self._hand_over(me, following)
        self._interrupt(me)

    def _interrupt(self, me: threading.Thread) -> None:
        if me is self._main:
            self._pauses += 1
            if self._pauses == self._interrupt_at:
                self.was_interrupted = True
                raise KeyboardInterrupt

    def _hand_over(self, me: threading.Thread, following: threading.Thread) -> None:
        if following is not me:
            self._batons[following].release()
            self._batons[me].acquire()

    def stand_still(self) -> None:
        """Stop this thread until another one calls `resume` for it."""
        me = threading.current_thread()
        self._runnable.remove(me)
        if not self._runnable:
            self._runnable.append(me)
            raise Deadlock
        self._hand_over(me, self._rng.choice(self._runnable))
        self._interrupt(me)

    def resume(self, thread: threading.Thread) -> None:
        """Let a thread run again, when it is drawn."""
        self._runnable.append(thread)

    def begin(self, thread: threading.Thread) -> None:
        """Add a thread that waits for its first `acquire`."""
        self._batons[thread] = threading.Semaphore(0)
        self._runnable.append(thread)

    def wait_for_turn(self) -> None:
        """Wait, at the start of a thread, until it is drawn."""
        self._batons[threading.current_thread()].acquire()

    def end(self) -> None:
        """End this thread, and let another one run."""
        self._runnable.remove(threading.current_thread())
        self._batons[self._rng.choice(self._runnable)].release()

    def Thread(self, target: Callable[[], None], name: str) -> ScheduledThread:
        """Make a thread."""
        return ScheduledThread(self, target, name)

    def RLock(self) -> ScheduledCondition:
        """Make a lock: see `ScheduledCondition`."""
        return ScheduledCondition(self)

    def Condition(self, lock: ScheduledCondition) -> ScheduledCondition:
        """Create a condition for a lock."""
        return ScheduledCondition(self)


class ScheduledThread:
    """A `threading.Thread` under a schedule."""

    def __init__(self, schedule: Schedule, target: Callable[[], None], name: str) -> None:
        self._schedule = schedule
        self._target = target
        self._thread = threading.Thread(target=self._run, name=name)
        self._has_ended = False
        self._joining: list[threading.Thread] = []

    def _run(self) -> None:
        self._schedule.wait_for_turn()
        self._target()
        self._has_ended = True
        for thread in self._joining:
            self._schedule.resume(thread)
        self._schedule.end()

    def start(self) -> None:
        """Let it start when it is drawn."""
        self._schedule.begin(self._thread)
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether it has not ended."""
        return not self._has_ended

    def join(self) -> None:
        """Wait until it has ended."""
        if not self._has_ended:
            self._joining.append(threading.current_thread())
            self._schedule.stand_still()
        self._thread.join()


class ScheduledCondition:
    """A `threading.Condition` under a schedule. Its holder is never paused, so no thread waits for its lock."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._waiting: set[threading.Thread] = set()

    def __enter__(self) -> None:
        self._schedule.pause()

    def __exit__(self, *_: object) -> None:
        self._schedule.pause()

    def wait(self) -> None:
        """Wait until notified."""
        self._waiting.add(threading.current_thread())
        self._schedule.stand_still()

    def notify_all(self) -> None:
        """Let all waiting threads continue."""
        for thread in sorted(self._waiting, key=lambda thread: thread.name):
            self._schedule.resume(thread)
        self._waiting.clear()
