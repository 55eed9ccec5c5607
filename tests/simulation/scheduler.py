"""
One token for all threads: which one runs next is decided here, by a seed.

Threads are real, but only the holder of the token runs. It can lose it wherever the simulated locks, queues, files and
clocks call `pause` or `block`; each holder waits on a lock of its own, so passing the token on is one release and one
acquire, and a thread that keeps it calls nothing of the system. Python and compiled kernels in between are atomic.

Time is simulated: each step takes a microsecond, files take longer, and when all threads wait it jumps to the next
timer. When all wait and there is no timer, that is a deadlock.

Two ways of choosing: at random, after stretches of random lengths; and PCT (Burckhardt et al., ASPLOS 2010): each
thread has a random priority, the highest runs, and at some random steps the running thread falls to the lowest.
"""

from __future__ import annotations

import _thread
import heapq
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

STEP_NS = 1_000
_new_step = tuple.__new__  # what a named tuple's own constructor does, in half the time
_NEVER = 1 << 62
_MOST_STEPS = 500_000
_MOST_DEATHS = 300
_READY, _BLOCKED, _ENDED = range(3)


class Step(NamedTuple):
    """A step that was taken: by which thread, what, and at which file."""

    thread: int
    what: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"thread {self.thread}: {self.what}{f' {self.path.name}' if self.path else ''}"


class Killed(BaseException):
    """The thread's simulated process is dead: nothing that it does has an effect any more."""


class Deadlock(AssertionError):
    """All threads wait, and no timer is set."""


class Owner(Protocol):
    """What a thread belongs to: a simulated process."""

    name: str
    is_dead: bool


class Task:
    """One simulated thread."""

    def __init__(self, number: int, name: str, owner: Owner, run: Callable[[], object]) -> None:
        self.number = number
        self.name = name
        self.owner = owner
        self.thread: Any = None  # what `current_thread` returns in it
        self.error: BaseException | None = None
        self.run = run
        self.state = _READY
        self.wait_number = 0
        self.timed_out = False
        self.priority = 0.0
        self.deaths = 0
        self.ident = 0
        self.waits_for = ""
        self.interrupt: BaseException | None = None  # raised at its next step
        self.is_masked = False  # not in the standard library's own Python code
        self.on_end: list[Callable[[], None]] = []
        self.baton = _thread.allocate_lock()
        self.baton.acquire()

    @property
    def has_ended(self) -> bool:
        """Tell whether it has run to its end."""
        return self.state == _ENDED


class Scheduler:
    """
    The token and its holder.

    Args:
        rng: chooses; nothing else may draw from it.
        stretch: how many steps a thread runs on average before another may; 0: PCT instead.
        changes: with PCT, at how many steps the running thread falls to the lowest priority.
        expected_steps: with PCT, among how many steps these are spread.
    Attributes:
        events: called at a step, in the thread that runs then; see `at_step`.
        trace: the steps.
    """

    def __init__(self, rng: Random, *, stretch: float, changes: int = 0, expected_steps: int = 4000) -> None:
        self._rng = rng
        self._random = rng.random
        self._switch_share = 1 / stretch if stretch else 0.0
        self._is_pct = not stretch
        self._changes = sorted((int(rng.random() * expected_steps) for _ in range(changes)), reverse=True)
        self.current: Task | None = None
        self.tasks: list[Task] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Task]] = []
        self._extra_ns = 0
        self.step = 0
        self._next_step = 1
        self._next_switch = _NEVER if self._is_pct else 1
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_number = 0
        self.trace: list[Step] = []
        self._controller = _thread.allocate_lock()
        self._controller.acquire()
        self.failure: BaseException | None = None
        self.errors: list[tuple[Task, BaseException]] = []

    # ---- time ------------------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Return the simulated time."""
        return self._extra_ns + self.step * STEP_NS

    def take_time(self, nanos: int) -> None:
        """Let time pass: something was slow."""
        self._extra_ns += nanos

    # ---- threads ---------------------------------------------------------------------------------------------------

    def spawn(self, name: str, owner: Owner, run: Callable[[], object]) -> Task:
        """Create a thread; it is ready, and runs when the token comes to it."""
        task = Task(len(self.tasks), name, owner, run)
        task.priority = 1 + self._random()
        self.tasks.append(task)
        self._ready.append(task)
        if self._is_pct:
            self._next_step = self.step + 1
        _thread.start_new_thread(self._main, (task,))
        return task

    def _main(self, task: Task) -> None:
        task.baton.acquire()
        task.ident = _thread.get_ident()
        try:
            if not task.owner.is_dead:
                task.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the world
            task.error = error
            if not task.owner.is_dead:
                self.errors.append((task, error))
        self._end(task)

    def _end(self, task: Task) -> None:
        """Pass the token on for good."""
        task.state = _ENDED
        self._ready.remove(task)
        self.trace.append(Step(task.number, "ends"))
        for callback in task.on_end:
            callback()
        self._give_to(self._choose())

    def run(self) -> None:
        """
        Let the threads run until all have ended; called by the one real thread that made the world.

        Raises:
            Deadlock: all waited; all processes were ended then.
            AssertionError: they did not come to an end.
        """
        first = self._choose()
        if first is None:
            return
        self.current = first
        first.baton.release()
        self._controller.acquire()
        self.current = None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def collapse(self, failure: BaseException) -> None:
        """End the world: all processes are dead, and their threads unwind; `run` raises the failure."""
        self.failure = self.failure or failure
        for task in self.tasks:
            task.owner.is_dead = True
            self.wake(task)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def at_step(self, step: int, event: Callable[[], None]) -> None:
        """Have something called at a step, by the thread that runs then; what it raises is raised in that thread."""
        self._event_number += 1
        heapq.heappush(self._events, (max(step, self.step + 1), self._event_number, event))
        self._next_step = min(self._next_step, self._events[0][0])

    def pause(self, what: str, path: Path | None = None) -> None:
        """Be at a step: another thread may run first, or an accident happen."""
        task = self.current
        if task is None:
            return
        self.step += 1
        self.trace.append(_new_step(Step, (task.number, what, path)))
        if self.step >= self._next_step:
            self._decide(task)
        if task.owner.is_dead:
            self._die(task)
        if task.interrupt is not None and not task.is_masked:
            error, task.interrupt = task.interrupt, None
            raise error

    def _decide(self, task: Task) -> None:
        if self.step > _MOST_STEPS:
            self.collapse(AssertionError(f"no end after {self.step} steps\n{self.describe()}"))
            self._next_step = _NEVER
            return
        while self._events and self._events[0][0] <= self.step:
            heapq.heappop(self._events)[2]()
        if self._timers and self._timers[0][0] <= self.now_ns():
            self._fire_timers()
        if self._is_pct:
            while self._changes and self._changes[-1] <= self.step:
                self._changes.pop()
                task.priority = -self.step
            self._switch_to(task, max(self._ready, key=_priority))
            # The next step at which another thread can be first: a change, a timer, or when one becomes ready.
            self._next_step = min(self.step + 20, self._changes[-1] if self._changes else _NEVER)
        else:
            if self.step >= self._next_switch:
                self._next_switch = self.step + 1 + int(self._rng.expovariate(self._switch_share))
                self._switch_to(task, self._ready[int(self._random() * len(self._ready))])
            self._next_step = self._next_switch
        if self._events and self._events[0][0] < self._next_step:
            self._next_step = self._events[0][0]

    def block(self, what: str, until_ns: int | None = None) -> bool:
        """Wait until `wake`, or until a time; returns whether it was woken."""
        task = self.current
        assert task is not None, "the world's own thread must not wait"
        if task.owner.is_dead:
            self._die(task)
        task.state, task.waits_for, task.timed_out = _BLOCKED, what, False
        task.wait_number += 1
        self._ready.remove(task)
        if until_ns is not None:
            heapq.heappush(self._timers, (until_ns, task.wait_number * 100_000 + task.number, task))
        self.trace.append(Step(task.number, what))
        self.step += 1
        other = self._choose()
        if other is not task:
            self._give_to(other)
            task.baton.acquire()
        else:
            self.current = task
        if task.owner.is_dead:
            self._die(task)
        return not task.timed_out

    def wake(self, task: Task) -> None:
        """Make a waiting thread ready."""
        if task.state == _BLOCKED:
            task.state = _READY
            self._ready.append(task)
            if self._is_pct:
                self._next_step = self.step + 1

    def _fire_timers(self) -> None:
        now_ns = self.now_ns()
        while self._timers and self._timers[0][0] <= now_ns:
            _, key, task = heapq.heappop(self._timers)
            if task.state == _BLOCKED and task.wait_number == key // 100_000:
                task.timed_out = True
                self.wake(task)

    def _choose(self) -> Task | None:
        """Return who runs next; None: all have ended. Jumps in time if all wait."""
        while not self._ready:
            while self._timers and (
                self._timers[0][2].state != _BLOCKED or self._timers[0][2].wait_number != self._timers[0][1] // 100_000
            ):
                heapq.heappop(self._timers)
            if not self._timers:
                if all(task.state == _ENDED for task in self.tasks):
                    return None
                self.collapse(Deadlock(f"all threads wait\n{self.describe()}"))
                continue
            self._extra_ns += max(0, self._timers[0][0] - self.now_ns())
            self._fire_timers()
        if self._is_pct:
            return max(self._ready, key=_priority)
        return self._ready[int(self._random() * len(self._ready))] if len(self._ready) > 1 else self._ready[0]

    def _give_to(self, task: Task | None) -> None:
        self.current = task
        if task is None:
            self._controller.release()
        else:
            task.baton.release()

    def _switch_to(self, task: Task, other: Task) -> None:
        if other is not task:
            self.current = other
            other.baton.release()
            task.baton.acquire()

    # ---- death -----------------------------------------------------------------------------------------------------

    def bury(self, owner: Owner) -> None:
        """Make the threads of a dead process ready, so that they end."""
        for task in self.tasks:
            if task.owner is owner:
                self.wake(task)

    def _die(self, task: Task) -> None:
        task.deaths += 1
        if task.deaths > _MOST_DEATHS:
            # It catches everything and goes on: it never runs again, which leaks a thread of this Python.
            self.errors.append((task, AssertionError(f"{task.name} does not die: {_stack_of(task)}")))
            self._end(task)
            task.baton.acquire()
        raise Killed

    # ---- telling ---------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return each thread that has not ended, what it waits for, and where."""
        lines = []
        for task in self.tasks:
            if task.state != _ENDED:
                lines.append(f"- {task.owner.name}/{task.name} at {task.waits_for}\n{_stack_of(task)}")
        return "\n".join(lines)


def _priority(task: Task) -> float:
    return task.priority


def _stack_of(task: Task) -> str:
    frame = sys._current_frames().get(task.ident)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-8:])
