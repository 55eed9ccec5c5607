"""
Threads, and everything by which they wait for each other.

All other code takes them from here, by this module's name (`concurrency.Lock()`), so that the simulator
(`tests/simulation`) can put its own in their place and decide which thread runs next. Here they are Python's own, with
nothing around them but an error that says why a thread cannot start.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import (
    Condition,
    Event,
    Lock,
    RLock,
    Timer,
    current_thread,
    get_ident,
    local,
    main_thread,
)
from typing import TYPE_CHECKING, Any, TypeVar

from cleaner.errors import OutOfThreadsError

if TYPE_CHECKING:
    from concurrent.futures import FIRST_COMPLETED, Future, wait

    from cleaner.base.thread_pool import ThreadPoolExecutor

Result = TypeVar("Result")

_LONGEST_WAIT_SECONDS = 1e9  # the system's timers do not take any length
_LONGEST_LOADING_SECONDS = 120.0  # with compiling

__all__ = [
    "FIRST_COMPLETED",
    "Condition",
    "Empty",
    "Event",
    "Future",
    "Latch",
    "Lock",
    "RLock",
    "SimpleQueue",
    "Thread",
    "ThreadPoolExecutor",
    "Timer",
    "current_thread",
    "get_ident",
    "is_held",
    "join_all",
    "local",
    "main_thread",
    "report_uncaught",
    "undisturbed",
    "wait",
]


def __getattr__(name: str) -> object:
    """Load futures and pools when the first is used: they load `logging`, which most commands never need."""
    if name not in __all__:
        raise AttributeError(name)
    home = "cleaner.base.thread_pool" if name == "ThreadPoolExecutor" else "concurrent.futures"
    found: object = getattr(undisturbed(lambda: importlib.import_module(home)), name)
    globals()[name] = found  # the next time it is found without a call
    return found


class Latch:
    """
    Opened once, and then for good. Its callers may be interrupted anywhere.

    `Event` has Python code around a lock, and an interrupt in it leaves the lock held for good: then `set` hangs. Here
    each caller waits for a lock of its own, which whoever opens the latch only releases.
    """

    __slots__ = ("_doors", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._doors: list[Lock] = []

    def open(self) -> None:
        """Let all go on, now and later; a second call does nothing new."""
        self.is_open = True
        for door in list(self._doors):
            with contextlib.suppress(RuntimeError):  # open already
                door.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, or so many seconds; tells whether it is."""
        door = Lock()
        door.acquire()
        self._doors.append(door)
        try:
            seconds = -1 if timeout is None else min(max(0.0, timeout), _LONGEST_WAIT_SECONDS)
            return self.is_open or door.acquire(timeout=seconds)
        finally:
            self._doors.remove(door)


class Thread(threading.Thread):
    """
    A thread of Python's that is alive until its work has ended.

    Of CPython 3.11 and 3.12 an interrupt of `join` marks a running thread as stopped (bpo-45274): `is_alive` then
    says no, and `join` does not wait.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._ended, self._process_id = Latch(), os.getpid()
        self._begin_lock = Lock()
        self._has_begun = self._is_given_up = False  # guarded by _begin_lock

    def run(self) -> None:
        """Do the work."""
        with self._begin_lock:
            if self._is_given_up:
                return
            self._has_begun = True
        try:
            super().run()
        finally:
            self._ended.open()

    def is_alive(self) -> bool:
        """Tell whether it works; in a fork no thread of the parent does."""
        return self.ident is not None and not self._ended.is_open and os.getpid() == self._process_id

    def join(self, timeout: float | None = None) -> None:
        """Wait until its work has ended, or so many seconds."""
        is_waited_for = self.is_alive() and self is not threading.current_thread()
        if is_waited_for and not self._ended.wait(timeout):
            return
        super().join(timeout)

    def start(self) -> None:
        """
        Begin. If interrupted, it either works, and is alive, or never will.

        Raises:
            OutOfThreadsError: it has not; another one may, later.
        """
        was_started, self._is_given_up = self.ident is not None, False
        try:
            super().start()
        except BaseException as error:
            if was_started:
                raise
            with self._begin_lock:
                self._is_given_up = not self._has_begun
            # Python's own may also make such an error of an interrupt while the thread runs already.
            if isinstance(error, RuntimeError) and self._is_given_up:
                raise OutOfThreadsError from error
            if self._is_given_up:
                self._ended.open()
            raise


_loading: set[Thread] = set()  # those at work, also of interrupted calls


def _await_loading() -> None:
    """Let loading end before a fork: its threads do not exist in there, and what they have locked stays locked."""
    for thread in tuple(_loading):
        if thread is not current_thread():
            thread.join(_LONGEST_LOADING_SECONDS)


os.register_at_fork(before=_await_loading)


def undisturbed(work: Callable[[], Result]) -> Result:
    """
    Load something where no interrupt reaches: for the main thread by another one, which goes on if the wait ends early.

    Python's imports and numba do not stand an interrupt. It leaves numba, numpy or asyncio in pieces, and no later
    import mends them; or the main thread keeps a lock, for which any other thread waits forever.
    """
    if current_thread() is not main_thread():
        return work()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            errors.append(error)
        finally:
            _loading.discard(thread)

    thread = Thread(target=run, name="cleaner-loading")
    _loading.add(thread)
    try:
        thread.start()
    except OutOfThreadsError:
        _loading.discard(thread)
        return work()
    thread.join()
    if errors:
        raise errors.pop()  # or the error and this frame would refer to each other
    return results[0]


def join_all(threads: Iterable[Thread]) -> BaseException | None:
    """
    Wait until threads have ended, even if interrupted: what they work in is given back next.

    Returns:
        The last interrupt, for the caller to raise.
    """
    interrupt: BaseException | None = None
    while True:
        try:
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            break
        except BaseException as error:  # noqa: BLE001 - returned
            interrupt = error
    try:
        return interrupt
    finally:
        del interrupt  # or the error and this frame would refer to each other


def is_held(lock: RLock) -> bool:
    """
    Tell whether this thread has a lock: where it should not, a signal handler runs in the middle of another call.

    The method is not documented; `Condition` asks every lock for it.
    """
    held: bool = lock._is_owned()  # type: ignore[attr-defined]
    return held


def report_uncaught() -> None:
    """Report the exception being handled as one that nobody catches, by the hook that the program has set by now."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), current_thread())))
