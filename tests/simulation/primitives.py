"""
Threads, locks, queues and futures of a simulated world, with the manners of Python's own.

Each call is a step (`Scheduler.pause`), so each is a place where another thread may run first. A release wakes all who
wait, and the scheduler's choice is who gets it.
"""

from __future__ import annotations

import concurrent.futures
import queue
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.threads import SimExecutor, SimThread


class Primitives:
    """The names of `cleaner.base.concurrency`, made for one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        names = {"_scheduler": scheduler}
        self.Lock = type("Lock", (_Lock,), {"__slots__": (), **names})
        self.RLock = type("RLock", (_RLock,), {"__slots__": (), **names})
        self.Condition = type("Condition", (_Condition,), {"_lock_type": self.RLock, "_waiter_type": self.Lock})
        self.Event = type("Event", (_Event,), {"__slots__": (), **names})
        self.SimpleQueue = type("SimpleQueue", (_SimpleQueue,), {"__slots__": (), **names})
        self.Future = type("Future", (_Future,), {"_condition_type": self.Condition})
        self.Thread = type("Thread", (SimThread,), names)
        self.ThreadPoolExecutor = type(
            "ThreadPoolExecutor", (SimExecutor,), {**names, "_own": self, "_thread_type": self.Thread}
        )
        self._scheduler = scheduler

    def wait(self, futures: Iterable[Any], timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
        """As `concurrent.futures.wait`; FIRST_EXCEPTION is not known."""
        waiting = list(futures)
        event = self.Event()
        wanted = 1 if return_when == concurrent.futures.FIRST_COMPLETED else len(waiting)
        done = [future for future in waiting if future.done()]
        if len(done) < min(wanted, len(waiting)):
            finished: list[Any] = []

            def count(future: Any) -> None:
                finished.append(future)
                if len(finished) >= wanted:
                    event.set()

            for future in waiting:
                future.add_done_callback(count)
            event.wait(timeout)
        done = [future for future in waiting if future.done()]
        return concurrent.futures._base.DoneAndNotDoneFutures(set(done), set(waiting) - set(done))

    def report_uncaught(self) -> None:
        """Report an error that ended some work of a thread, unless its process is dead."""
        task, error = self._scheduler.current, sys.exception()
        if task is not None and error is not None and not task.owner.is_dead:
            self._scheduler.errors.append((task, error))

    def current_thread(self) -> Any:
        """Return the running thread."""
        task = self._scheduler.current
        return None if task is None else task.thread or task


class _Waiters:
    """Who waits for something; all are woken at once."""

    __slots__ = ("__weakref__", "_waiters")
    _scheduler: Scheduler

    def __init__(self) -> None:
        self._waiters: list[Task] = []

    def _wait(self, what: str, until_ns: int | None) -> bool:
        task = self._scheduler.current
        assert task is not None, f"the world's own thread would wait at {what}"
        self._waiters.append(task)
        try:
            return self._scheduler.block(what, until_ns)
        finally:
            if task in self._waiters:
                self._waiters.remove(task)

    def _wake_all(self) -> None:
        for task in self._waiters:
            self._scheduler.wake(task)

    def _until(self, seconds: float | None) -> int | None:
        return None if seconds is None or seconds < 0 else self._scheduler.now_ns() + int(seconds * 1e9)


class _Lock(_Waiters):
    __slots__ = ("_is_held",)

    def __init__(self) -> None:
        self._waiters = []
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._scheduler.pause("acquire")
        if not self._is_held:
            self._is_held = True
            return True
        if not blocking:
            return False
        until_ns = self._until(timeout)
        while self._is_held:
            if not self._wait("acquire", until_ns) and self._is_held:
                return False
        self._is_held = True
        return True

    __enter__ = acquire

    def release(self) -> None:
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        if self._waiters:
            self._wake_all()
        task = self._scheduler.current
        if task is not None and not task.owner.is_dead:
            self._scheduler.pause("release")

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._is_held


class _RLock(_Waiters):
    __slots__ = ("_count", "_owner")

    def __init__(self) -> None:
        self._waiters = []
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.pause("acquire")
        task = scheduler.current
        if self._count == 0 or self._owner is task:
            self._owner = task
            self._count += 1
            return True
        if not blocking:
            return False
        until_ns = self._until(timeout)
        while self._count:
            if not self._wait("acquire", until_ns) and self._count:
                return False
        self._owner, self._count = task, 1
        return True

    __enter__ = acquire

    def release(self) -> None:
        task = self._scheduler.current
        if self._count == 0 or self._owner is not task:
            if task is not None and task.owner.is_dead:
                return
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if self._count == 0:
            self._owner = None
            if self._waiters:
                self._wake_all()
            if task is not None and not task.owner.is_dead:
                self._scheduler.pause("release")

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return self._count > 0 and self._owner is self._scheduler.current

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        self._wake_all()
        return count

    def _acquire_restore(self, count: int) -> None:
        task = self._scheduler.current
        assert task is not None
        task.is_masked = True
        try:
            self.acquire()
        finally:
            task.is_masked = False
        self._count = count


class _Condition:
    _lock_type: Any
    _waiter_type: Any

    def __init__(self, lock: Any = None) -> None:
        self._lock = self._lock_type() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: deque[Any] = deque()

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        waiter = self._waiter_type()
        waiter._is_held = True
        self._waiters.append(waiter)
        saved = self._lock._release_save()
        was_notified = False
        try:
            was_notified = waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            return was_notified
        finally:
            self._lock._acquire_restore(saved)
            if not was_notified and waiter in self._waiters:
                self._waiters.remove(waiter)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._lock._scheduler.now_ns() + int(timeout * 1e9)
        result = predicate()
        while not result:
            left = None if until is None else (until - self._lock._scheduler.now_ns()) / 1e9
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._waiters.popleft().release()

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class _Event(_Waiters):
    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._waiters = []
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._waiters:
            self._wake_all()
        self._scheduler.pause("set")

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.pause("wait")
        until_ns = self._until(timeout)
        while not self._is_set:
            if not self._wait("wait", until_ns) and not self._is_set:
                return False
        return True


class _SimpleQueue(_Waiters):
    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._waiters = []
        self._items: deque[Any] = deque()

    @classmethod
    def __class_getitem__(cls, _item: object) -> Any:
        return cls

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._scheduler.pause("put")
        self._items.append(item)
        if self._waiters:
            self._wake_all()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._scheduler.pause("get")
        until_ns = self._until(timeout)
        while not self._items:
            if not block or (not self._wait("get", until_ns) and not self._items):
                raise queue.Empty
            until_ns = None  # as CPython, which may wait for good where another thread was quicker
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class _Future(concurrent.futures.Future):  # type: ignore[type-arg]
    _condition_type: Any

    def __init__(self) -> None:
        super().__init__()
        self._condition = self._condition_type()
