"""Threads that do what others have submitted: flushes of logs, and the callbacks of futures."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError

_LOOK_SECONDS = 0.001  # between two looks at postponed work

Work = Callable[[], bool]
"""What these threads do; returns whether it is postponed: to be called again soon."""


class WorkThreads:
    """
    Some threads.

    Whoever makes them starts them, before anybody asks for work: an interrupt in the start of a thread may end that
    thread. Where the system had no thread left, each request tries again.

    Requests go through a `SimpleQueue`, because `put` is one step of compiled code. An executor's `submit` takes locks
    in Python, and an interrupt in the middle of it could stop its threads permanently. Its `get` takes no timeout here:
    where another thread was quicker, CPython may compute a negative rest of it, and waits forever.

    So one thread at a time looks at what is postponed, for all of them.

    Args:
        count: how many.
        name: of the threads.
    """

    def __init__(self, count: int, name: str = "cleaner-flush") -> None:
        self._asked: concurrency.SimpleQueue[Work | None] = concurrency.SimpleQueue()
        self._postponed: deque[Work] = deque()
        self._looking = concurrency.Lock()
        self._pause = concurrency.Lock()  # held for good: waiting for it is a pause
        self._pause.acquire()
        self._threads = [
            concurrency.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        # Taken from here to be started: a thread that two callers start at the same time would run twice.
        self._unstarted = list(self._threads)

    def submit(self, work: Work) -> None:
        """
        Have some work done, and again as long as it is postponed; after `shutdown` it is not done any more.

        If the system starts no thread at all, the caller does it: others wait for it.
        """
        self._asked.put(work)
        if self._unstarted:
            self.start()
            if len(self._unstarted) == len(self._threads):
                self._work_here()

    def start(self) -> None:
        """Start those that were not started yet, as far as the system has threads left."""
        with contextlib.suppress(IndexError):  # another caller took the last one
            while self._unstarted:
                thread = self._unstarted.pop()
                try:
                    thread.start()
                except OutOfThreadsError:
                    # The next request tries again.
                    self._unstarted.append(thread)
                    return

    def _work_here(self) -> None:
        with contextlib.suppress(concurrency.Empty):
            while True:
                work = self._asked.get(block=False)
                while work is not None and work():
                    pass

    def shutdown(self) -> None:
        """
        End the threads after all submitted work; a second call does nothing.

        One of them that calls this, in a callback, ends by itself when it has returned.
        """
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            if thread.is_alive() and thread is not concurrency.current_thread():
                thread.join()

    def _run(self) -> None:
        has_ended = False
        while not has_ended and (work := self._asked.get()) is not None:
            if self._is_postponed(work):
                self._postponed.append(work)
                # Looked at again after the release: another thread, which finds it held, relies on that.
                while self._postponed and self._looking.acquire(blocking=False):
                    try:
                        has_ended = self._look(has_ended=has_ended)
                    finally:
                        self._looking.release()

    def _look(self, *, has_ended: bool) -> bool:
        """Look at postponed work until there is none; returns whether this thread was, or is, told to end."""
        while self._postponed:
            if not has_ended:
                has_ended = self._do_what_is_asked()
                self._pause.acquire(timeout=_LOOK_SECONDS)
            for _ in range(len(self._postponed)):
                work = self._postponed.popleft()
                if self._is_postponed(work):
                    self._postponed.append(work)
        return has_ended

    def _do_what_is_asked(self) -> bool:
        """Do what no other thread has begun, as there may be none; returns whether this one is to end."""
        with contextlib.suppress(concurrency.Empty):
            while (work := self._asked.get(block=False)) is not None:
                if self._is_postponed(work):
                    self._postponed.append(work)
            return True
        return False

    @staticmethod
    def _is_postponed(work: Work) -> bool:
        try:
            return work()
        except BaseException:  # noqa: BLE001 - the waiting callers got the error; go on with the next
            concurrency.report_uncaught()
            return False
