"""A pool of threads that nobody leaves while they work. Loaded by `concurrency`, when the first pool is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from cleaner.base import concurrency

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class ThreadPoolExecutor(futures.ThreadPoolExecutor):
    """
    A pool of Python's whose `shutdown(wait=True)`, and so its `with` block, waits for its work even if interrupted.

    Python's own lets go of threads that it joins when an interrupt comes: their work would go on, in files that the
    caller gives back. Interrupts are raised once it has ended, the last of them; work that has not begun by then is
    cancelled, as an interrupt elsewhere may have stopped the threads of the pool for good. In a fork there is no work.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._unfinished: set[_Work] = set()  # each `set` operation is one step
        self._process_id = os.getpid()

    def submit(
        self, work: Callable[Arguments, Result], /, *args: Arguments.args, **named: Arguments.kwargs
    ) -> futures.Future[Result]:
        """Have work done."""
        waited_for = _Work(self._unfinished)
        try:
            self._unfinished.add(waited_for)
            future = super().submit(waited_for.do, work, args, named)
            future.add_done_callback(waited_for.has_ended)
        except BaseException:
            waited_for.give_up()  # nobody has the future
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; wait for what is under way, and for what waits unless that is cancelled."""
        interrupt: BaseException | None = None
        while True:
            try:
                super().shutdown(wait=False, cancel_futures=cancel_futures or interrupt is not None)
                if wait and os.getpid() == self._process_id:
                    for waited_for in tuple(self._unfinished):
                        waited_for.ended.wait()
                break
            except BaseException as error:  # noqa: BLE001 - raised once all work has ended
                interrupt = error
        if interrupt is None:
            super().shutdown(wait)  # the threads, which have nothing left to do
            return
        try:
            raise interrupt
        finally:
            del interrupt  # or the error and this frame would refer to each other


class _Work:
    """Work of a pool that somebody waits for."""

    def __init__(self, unfinished: set[_Work]) -> None:
        self._unfinished = unfinished
        self._lock = concurrency.Lock()
        self._is_given_up = self._has_begun = False  # guarded by _lock
        self.ended = concurrency.Latch()

    def do(self, work: Callable[..., Result], args: tuple[Any, ...], named: dict[str, Any]) -> Result:
        """Do it, on a thread of the pool, which no interrupt reaches."""
        with self._lock:
            if self._is_given_up:
                raise futures.CancelledError
            self._has_begun = True
        try:
            return work(*args, **named)
        finally:
            del work, args, named  # an error's traceback would keep them
            self._end()

    def has_ended(self, _future: object) -> None:
        """Note that it was cancelled, or has ended."""
        self._end()

    def give_up(self) -> None:
        """Note that it is not to begin, unless it has."""
        with self._lock:
            self._is_given_up = True
            has_begun = self._has_begun
        if not has_begun:
            self._end()

    def _end(self) -> None:
        self.ended.open()
        self._unfinished.discard(self)
