"""What a reader must know of a log besides its files: how far it may read, and when to look again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Protocol

from cleaner.base import concurrency
from cleaner.storage.segment.indexes import Aborts


class LogReach(Protocol):
    """How far a log reaches: current values, at any time and for any thread."""

    @property
    def log_start_offset(self) -> int:
        """First offset that a reader may request."""

    @property
    def high_watermark(self) -> int:
        """First offset that may still be lost in a crash."""

    @property
    def last_stable_offset(self) -> int:
        """First offset of a transaction not decided yet, at most the high watermark."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record; everything below it can be read from the files."""


class ReadView(LogReach, Protocol):
    """
    What a reader reads by: given by the log's writer in this process, or derived from its directory (`DirectoryView`).
    """

    @property
    def signal(self) -> Signal | None:
        """Notifies of changes; None: look again from time to time."""

    @property
    def longest_pause_seconds(self) -> float:
        """The longest time a waiting reader may let pass before it looks by itself."""

    def require_own(self) -> None:
        """Raise ForkedError if the writer behind this view belongs to the parent process."""

    @property
    def is_closed(self) -> bool:
        """Whether the log, or this view, was closed: there is nothing more to read."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch, which a cut raises; None if it would have to be read."""

    def unlisted_aborts(self) -> Aborts | None:
        """Return aborted transactions below the last stable offset that may not be in a transaction index yet."""


class Signal:
    """
    Wakes waiting readers when a log has changed: a writer notifies, readers wait. Safe to share between threads.

    A reader reads `version`, looks at the log, and if there is nothing new waits for another version. So a change
    between the look and the wait is not missed.

    It is made of plain locks, which compiled code acquires and releases. An interrupt inside `concurrency.Condition`,
    which is written in Python, could leave its lock held forever, and every thread that notifies or waits would hang.
    Nor does a thread hold any lock while it notifies or waits: it may run a signal handler there, which waits for a
    thread that notifies, too.
    """

    def __init__(self) -> None:
        # Each number is stored once, so a version never comes back, in whatever order threads store theirs.
        self._numbers = itertools.count(1)
        self._version = 0
        self._is_closed = False
        # Each waiter is a held lock; who takes it from the list releases it, which wakes the thread that waits for it.
        self._waiters: list[concurrency.Lock] = []
        self._lock = concurrency.RLock()  # reentrant: its thread may run a signal handler, or drop a follower
        # Guarded by _lock; the dict is replaced, never changed.
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def version(self) -> int:
        """How many changes there were."""
        return self._version

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more changes."""
        return self._is_closed

    def notify(self) -> None:
        """Wake all waiting threads. Listeners are called in this thread."""
        self._version = next(self._numbers)
        # Those that come now have seen the new version, or do not wait.
        for _ in range(len(self._waiters)):
            try:
                self._waiters.pop(0).release()
            except IndexError:
                break  # other threads took the rest
        for listener in self._listeners.values():
            listener()

    def close(self) -> None:
        """Wake all waiting threads for the last time."""
        self._is_closed = True
        self.notify()

    def wait(self, seen: int, timeout_seconds: float | None) -> None:
        """Wait until the version is not `seen`, the signal is closed, or the time is over."""
        waiter = concurrency.Lock()
        waiter.acquire()
        self._waiters.append(waiter)  # before the look: from here on a change wakes it
        try:
            if self._version == seen and not self._is_closed:
                waiter.acquire(timeout=-1 if timeout_seconds is None else max(0.0, timeout_seconds))
        finally:
            with contextlib.suppress(ValueError):  # it was taken
                self._waiters.remove(waiter)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a listener, which must be quick, at each change, in the changing thread; returns a function to stop."""
        token = object()
        with self._lock:
            self._listeners = {**self._listeners, token: listener}
        return partial(self._stop_listening, token)

    def _stop_listening(self, token: object) -> None:
        with self._lock:
            self._listeners = {key: listener for key, listener in self._listeners.items() if key is not token}
