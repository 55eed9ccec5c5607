"""Threads that carry out the flushes that the logs' flushers ask for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from cleaner.base import concurrency


class FlushThreads:
    """
    Threads that do the submitted flushes.

    Requests go through a `SimpleQueue`, because `put` is one step of compiled code. An executor's `submit` takes locks
    in Python, and an interrupt in the middle of it could stop its threads permanently.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._asked: concurrency.SimpleQueue[Callable[[], None] | None] = concurrency.SimpleQueue()
        self._threads = [
            concurrency.Thread(target=self._run, name=f"cleaner-flush-{number}", daemon=True) for number in range(count)
        ]
        self._has_begun = False

    def submit(self, work: Callable[[], None]) -> None:
        """Have some work done; after `shutdown` it is not done any more."""
        self._asked.put(work)
        if not self._has_begun:
            self._begin()

    def _begin(self) -> None:
        for thread in self._threads:
            # Two callers at once, or the system has no thread left.
            with contextlib.suppress(RuntimeError):
                if not thread.is_alive():
                    thread.start()
        # Otherwise the next request tries again; without that this one would wait forever.
        self._has_begun = all(thread.is_alive() for thread in self._threads)

    def shutdown(self) -> None:
        """End the threads after all submitted work; a second call does nothing."""
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        while (work := self._asked.get()) is not None:
            try:
                work()
            except BaseException:  # noqa: BLE001 - the waiting callers got the error; go on with the next
                concurrency.excepthook(concurrency.ExceptHookArgs((*sys.exc_info(), concurrency.current_thread())))
