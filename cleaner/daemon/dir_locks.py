"""
The locks of all log dirs, shared by the workers of this process.

Two locks of one process on one log dir would exclude each other, so the first worker to enter takes the lock and the
last one to leave releases it (`cleaner.lock=round`). With `hold` it is kept from the first use until the end, so a
broker started by mistake is always refused. Our own writers are not: a writer gets the logs between rounds, and while
it asks for them no round begins, however many other rounds still run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cleaner.base import concurrency
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock, acquire_for_cleaning


class DirLocks:
    """
    The locks. Thread-safe.

    Args:
        fs: the file system.
        holds: keep a lock once it is taken.
    """

    def __init__(self, fs: FileSystem, *, holds: bool) -> None:
        self._fs = fs
        self._holds = holds
        self._lock = concurrency.Lock()  # guards the fields below; held while a log dir is locked, which never blocks
        self._held: dict[Path, LogDirLock] = {}
        self._users: dict[Path, int] = {}
        self._kept: set[Path] = set()
        self._exclusive: set[Path] = set()

    @contextlib.contextmanager
    def using(self, log_dir: Path) -> Iterator[LogDirLock]:
        """
        Hold a log dir's lock for a round, the length of a `with` block.

        Raises:
            LogDirLockedError: another process has it, or a writer asks for the logs.
            LogDirOfflineError: the lock file cannot be opened.
        """
        lock = self._enter(log_dir)
        try:
            yield lock
        finally:
            self._leave(log_dir)

    @contextlib.contextmanager
    def exclusive(self, log_dir: Path) -> Iterator[LogDirLock]:
        """
        Hold a log dir's lock exclusively, without even one of our writers or another worker: for recovery.

        Raises:
            LogDirLockedError: another process or another worker has it.
        """
        with self._lock:
            if self._users.get(log_dir) or log_dir in self._exclusive:
                raise LogDirLockedError(f"{log_dir}: this process is at work in it")
            self._drop(log_dir)
            lock = self._held[log_dir] = LogDirLock(self._fs, log_dir, LockMode.EXCLUSIVE, LockRole.CLEANER)
            self._exclusive.add(log_dir)
        try:
            yield lock
        finally:
            with self._lock:
                self._exclusive.discard(log_dir)
                if log_dir not in self._kept:
                    self._drop(log_dir)  # the next user may share the log dir with a writer

    def keep(self, log_dir: Path) -> None:
        """Keep a lock until `release_all`, whatever `cleaner.lock` says. Raises ValueError: it is not held now."""
        with self._lock:
            if log_dir not in self._held:
                raise ValueError(f"{log_dir} is not locked")
            self._kept.add(log_dir)

    def is_kept(self, log_dir: Path) -> bool:
        """Tell whether a log dir's lock has been held without a break since `keep`."""
        with self._lock:
            return log_dir in self._kept

    def release_all(self) -> None:
        """Release the locks that `hold` or `keep` has kept; to be called when all users have left."""
        with self._lock:
            for log_dir in list(self._held):
                self._drop(log_dir)

    def _enter(self, log_dir: Path) -> LogDirLock:
        with self._lock:
            if log_dir in self._exclusive:
                raise LogDirLockedError(f"{log_dir}: it is being recovered")
            lock = self._held.get(log_dir)
            if lock is not None and not self._users.get(log_dir):
                lock = self._checked(log_dir, lock)
            if lock is None:
                lock = self._held[log_dir] = acquire_for_cleaning(self._fs, log_dir)
            else:
                lock.logs.enter()
            self._users[log_dir] = self._users.get(log_dir, 0) + 1
            return lock

    def _checked(self, log_dir: Path, lock: LogDirLock) -> LogDirLock | None:
        """Return a kept lock if it is still valid; a broker that stopped may have deleted its file."""
        try:
            lock.still_held()
        except LogDirLockedError:
            self._drop(log_dir)
            return None
        return lock

    def _leave(self, log_dir: Path) -> None:
        with self._lock:
            self._users[log_dir] -= 1
            self._held[log_dir].logs.leave()
            if not self._users[log_dir] and not self._holds and log_dir not in self._kept:
                self._drop(log_dir)

    def _drop(self, log_dir: Path) -> None:
        self._kept.discard(log_dir)
        lock = self._held.pop(log_dir, None)
        if lock is not None:
            lock.release()
