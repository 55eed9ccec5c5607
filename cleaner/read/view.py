"""What a reader has to know of a log beside its files: how far it may read, and when to look again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from cleaner.base import concurrency
from cleaner.storage.segment.indexes import Aborts


class LogReach(Protocol):
    """How far a log reaches; each may be asked at any time, by any thread, and is as of now."""

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for."""

    @property
    def high_watermark(self) -> int:
        """First offset that may still be lost in a crash."""

    @property
    def last_stable_offset(self) -> int:
        """First offset of a transaction not decided yet, at most the high watermark."""

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get; all below it can be read from the files."""


class ReadView(LogReach, Protocol):
    """
    What a reader goes by: told by the log's writer in this process, or found out from its directory (`DirectoryView`).
    """

    @property
    def signal(self) -> Signal | None:
        """What tells of changes; None: look again from time to time."""

    @property
    def longest_pause_seconds(self) -> float:
        """How long a reader that waits may go without looking for itself."""

    def require_own(self) -> None:
        """Make sure that what tells of the log does so in this process. Raises ForkedError: in its parent."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is to be read: the log was closed, or who looks."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch that a cut raises; None where it is not known at once."""

    def unlisted_aborts(self) -> Aborts | None:
        """Return aborted transactions below the last stable offset that no transaction index may name yet."""


class Signal:
    """
    Tells those who wait that a log has changed: a writer notifies, readers wait. Safe to share between threads.

    Waiting is for a number to change: read `version`, look at the log, and if there is nothing wait for another version
    than that. So what happens between the look and the wait is not missed.

    It is made of plain locks, which compiled code takes and gives back. An interrupt inside of `concurrency.Condition`,
    which is Python, could leave its lock taken for good, and every thread that notifies or waits would hang. The lock
    may be taken again by its thread: by a signal handler that appends, or when a follower is dropped just then.
    """

    def __init__(self) -> None:
        self._lock = concurrency.RLock()
        # Guarded by _lock; each waiter is a lock that is taken, and given back to wake who waits for it. The listeners
        # are replaced, never changed.
        self._version = 0
        self._is_closed = False
        self._waiters: list[concurrency.Lock] = []
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def version(self) -> int:
        """How many changes there were."""
        return self._version

    @property
    def is_closed(self) -> bool:
        """Whether there will be no more."""
        return self._is_closed

    def notify(self) -> None:
        """Wake all who wait. Listeners are called in this thread."""
        with self._lock:
            self._version += 1
            waiters, self._waiters = self._waiters, []
            listeners = self._listeners
            for waiter in waiters:
                waiter.release()
        for listener in listeners.values():
            listener()

    def close(self) -> None:
        """Wake all who wait, for the last time."""
        self._is_closed = True
        self.notify()

    def wait(self, seen: int, timeout_seconds: float | None) -> None:
        """Wait until there is another version than `seen`, it is closed, or the time is over."""
        waiter = concurrency.Lock()
        waiter.acquire()
        with self._lock:
            if self._version != seen or self._is_closed:
                return
            self._waiters.append(waiter)
        try:
            waiter.acquire(timeout=-1 if timeout_seconds is None else max(0.0, timeout_seconds))
        finally:
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have something quick called at each change, by whoever makes it; returns what ends that."""
        token = object()
        with self._lock:
            self._listeners = {**self._listeners, token: listener}
        return partial(self._stop_telling, token)

    def _stop_telling(self, token: object) -> None:
        with self._lock:
            self._listeners = {key: listener for key, listener in self._listeners.items() if key is not token}
