"""Threads that do what others have submitted: flushes of logs, and the callbacks of futures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cleaner.base import concurrency

_LOOK_SECONDS = 0.001  # between two looks at postponed work

Work = Callable[[], bool]
"""What these threads do; returns whether it is postponed: to be called again soon."""


class WorkThreads:
    """
    Some threads.

    Whoever makes them starts them, before anybody asks for work: an interrupt in the start of a thread may end that
    thread. Where the system had no thread left, each request tries again.

    Requests go through a `SimpleQueue`, because `put` is one step of compiled code. An executor's `submit` takes locks
    in Python, and an interrupt in the middle of it could stop its threads permanently.

    Args:
        count: how many.
        name: of the threads.
    """

    def __init__(self, count: int, name: str = "cleaner-flush") -> None:
        self._asked: concurrency.SimpleQueue[Work | None] = concurrency.SimpleQueue()
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
                except RuntimeError:
                    # The system has no thread left: the next request tries again.
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
        postponed: list[Work] = []
        while True:
            asked: list[Work] = []
            try:
                work = self._asked.get(timeout=_LOOK_SECONDS if postponed else None)
                if work is None:
                    break
                asked = [work]
            except concurrency.Empty:
                pass  # the time of the next look
            postponed = [work for work in (*asked, *postponed) if self._is_postponed(work)]
        while postponed:
            postponed = [work for work in postponed if self._is_postponed(work)]

    @staticmethod
    def _is_postponed(work: Work) -> bool:
        try:
            return work()
        except BaseException:  # noqa: BLE001 - the waiting callers got the error; go on with the next
            concurrency.report_uncaught()
            return False
