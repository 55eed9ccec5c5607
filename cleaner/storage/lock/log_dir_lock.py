"""
The lock of a log dir: never clean while a broker runs on it, never with two cleaners at once.

A broker holds `.lock` with Java's `FileChannel.tryLock`: a POSIX write lock on bytes 0 to 2**63 - 2. Our locks
(`byte_ranges.py`) and that one exclude each other. The locked bytes say who holds what (`lock_bytes.py`):

    byte              0            1            2                3 ... 15
                      cleaner      writer       presence
    exclusive         write        write        write            write        excludes all others, as a JVM does
    shared, cleaner   write                     read
    shared, writer                 write        read

- A JVM and `exclusive` write-lock every byte, so they conflict with each other and with any `shared` holder at byte 2.
- A cleaner and a writer share byte 2 and have a byte each; two cleaners conflict at byte 0, two writers at byte 1.

A stopping broker unlocks and then *deletes* the file. A process that locks in between holds a file that no other
process will find. So after locking, and again before each change that cannot be undone, the open file is compared with
the file of that name.

The holder of the lock also holds the directory (`held.py`): its work in the log dir stays in the directory it locked.

We never delete the file: another process may just have opened it.

Processes that share the log dir decide through `logs_access.py` who may do what with its logs; `acquire_for_cleaning`
and `acquire_for_writing` take both.

Source: rules R-111, D-01; rule C-4.
"""

from __future__ import annotations

import enum
import errno
import os
import weakref
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.errors import LogDirLockedError, LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem, real_path
from cleaner.storage.fs.ownership import can_own
from cleaner.storage.lock.byte_ranges import (
    OPEN_FILE,
    READ,
    TO_THE_END,
    WRITE,
    has_its_name,
    holder_of,
    try_lock,
    unlock,
)
from cleaner.storage.lock.lock_bytes import (
    CHECKPOINT_BYTE,
    CLEANER_BYTE,
    FIRST_PARTITION_BYTE,
    PRESENCE_BYTE,
    WRITER_BYTE,
)
from cleaner.storage.lock.logs_access import LogsAccess
from cleaner.storage.segment import names


class LockMode(enum.Enum):
    """`EXCLUSIVE`: no other process. `SHARED`: one cleaner and one writer together, still no broker."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class LockRole(enum.Enum):
    """What the holder does; the value is the role's own byte in the lock file."""

    CLEANER = CLEANER_BYTE
    WRITER = WRITER_BYTE


_ATTEMPTS = 10
"""A file replaced between opening and locking is opened again; each such failure takes another broker that stops."""


class LogDirLock:
    """
    The lock of one log dir, taken on creation; use it in a `with` block or call `release`.

    It belongs to the process that took it: a forked child does not hold it (`byte_ranges.py`).

    Args:
        fs: the file system.
        log_dir: the directory; a link to it is followed once, here.
        mode: alone, or together with the other role.
        role: what the holder does.
    Attributes:
        logs: access to the logs, if the log dir is shared; at first no round has entered.
    Raises:
        LogDirLockedError: another process holds it; the message says which one, if the kernel reports it.
        LogDirOfflineError: the file cannot be opened, created or locked at all.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: Path,
        mode: LockMode = LockMode.EXCLUSIVE,
        role: LockRole = LockRole.CLEANER,
    ) -> None:
        self.path = real_path(log_dir) / names.LOCK
        self.mode = mode
        self.role = role
        self._fs = fs
        self._release_lock = concurrency.Lock()
        self._file: File | None = None
        self._hold = fs.hold(self.path.parent)
        with _ours_guard:
            _ours.add(self)  # before locking: a probe in between must not take the lock for another process's
        try:
            file = self._acquire()
        except BaseException:
            self._forget()
            self._hold.release()
            raise
        self._file = file
        self.logs = LogsAccess(self.path, file, is_alone=mode is LockMode.EXCLUSIVE)

    def _acquire(self) -> File:
        for _ in range(_ATTEMPTS):
            file = self._open()
            if file is None:
                continue
            try:
                self._lock(file)
                if has_its_name(self._fs, file):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # a stopping broker deleted it: the next attempt creates a new one
        raise LogDirLockedError(f"{self.path}: keeps being replaced by other processes")

    def _open(self) -> File | None:
        """Open the lock file, or create it with the directory's ownership; None if another process was faster."""
        try:
            return self._fs.open(self.path, write=True)
        except FileNotFoundError:
            pass
        # Checked before creating: if we had to delete the file again, another process might have locked it by then.
        if not can_own(self._fs.stat(self.path.parent)):
            raise LogDirOfflineError(self.path, PermissionError(errno.EPERM, "the log dir belongs to another user"))
        try:
            return self._fs.create(self.path, like=self.path.parent)
        except LogDirOfflineError as error:
            if isinstance(error.cause, FileExistsError):
                return None
            raise

    def _lock(self, file: File) -> None:
        if self.mode is LockMode.EXCLUSIVE:
            # Without the bytes of partitions and checkpoint: those are locked through other openings of the file, and
            # would conflict with this one.
            self._set(file, WRITE, 0, CHECKPOINT_BYTE)
            self._set(file, WRITE, CHECKPOINT_BYTE + 1, FIRST_PARTITION_BYTE - CHECKPOINT_BYTE - 1)
            return
        # Presence first: while a broker holds the file, our role's byte is not locked even for a moment.
        self._set(file, READ, PRESENCE_BYTE, 1)
        self._set(file, WRITE, self.role.value, 1)

    def _set(self, file: File, kind: int, start: int, length: int) -> None:
        if not try_lock(file, kind, start, length):
            raise LogDirLockedError(f"{self.path}: {self._describe_holder(file, kind, start, length)}")

    @staticmethod
    def _describe_holder(file: File, kind: int, start: int, length: int) -> str:
        """Say who it is: the kernel gives a pid for a classic lock (a JVM's), none for ours."""
        holder = holder_of(file, kind, start, length)
        if holder is None:
            return "was locked by another process a moment ago"
        if holder.pid != OPEN_FILE:
            # 0: a process that cannot be seen from this container.
            who = f"process {holder.pid}" if holder.pid else "a process of another container"
            return f"locked by {who}, probably a live broker; stop it first"
        if (holder.start, holder.length) == (WRITER_BYTE, 1):
            return "locked by another writer"
        if (holder.start, holder.length) == (CLEANER_BYTE, 1):
            return "locked by another cleaner"
        return "locked by another cleaner or writer"

    def still_held(self) -> None:
        """
        Make sure that the lock still keeps others out; call this before each group's first rename.

        Raises:
            LogDirLockedError: released, or the file was deleted or replaced (by a broker that was stopping when the
                lock was taken), so that another process may hold the directory now.
        """
        file = self._file
        if file is None or file.is_closed:
            raise LogDirLockedError(f"{self.path}: no longer locked by this process")
        if not has_its_name(self._fs, file):
            raise LogDirLockedError(
                f"{self.path}: deleted or replaced while it was locked; another process may use the log dir now"
            )

    def release(self) -> None:
        """Release the lock and leave the file; a second call does nothing."""
        file = None
        try:
            # Inside `try`, so that after an interrupt right here the file is still closed: a second call would not.
            with self._release_lock:
                file, self._file = self._file, None
            self._forget()
            # Closing alone does not unlock while a just forked child still has the descriptor. In a forked child it is
            # closed already.
            if file is not None and not file.is_closed:
                unlock(file, 0, TO_THE_END)
        finally:
            if file is not None:
                file.close()
            self._hold.release()

    @property
    def is_beside_writer(self) -> bool:
        """Tell whether a writer runs alongside this cleaner's rounds; see `LogsAccess.enter`."""
        return self.logs.is_beside_writer

    def __enter__(self) -> LogDirLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _forget(self) -> None:
        with _ours_guard:
            _ours.discard(self)

    def is_on(self, path: Path, about: os.stat_result) -> bool:
        """Tell whether this is a lock, held or being taken, on the file with this path and status."""
        with self._release_lock:
            if self._file is None:
                return path == self.path
            mine = self._file.stat()
        return (mine.st_dev, mine.st_ino) == (about.st_dev, about.st_ino)


def acquire_for_cleaning(fs: FileSystem, log_dir: Path) -> LogDirLock:
    """
    Lock a log dir for rounds, alone or alongside one of our writers: `is_beside_writer` says which, until `release`.

    A writer that comes later does not wait for the end of a round: it asks for the logs, `logs.is_writer_waiting`
    becomes true, and the round is aborted. A caller that keeps the lock between rounds calls `logs.leave()` after each
    round and `logs.enter()` before the next, which decides again.

    Raises:
        LogDirLockedError: a broker, another cleaner, or a writer that is loading its logs.
        LogDirOfflineError: as `LogDirLock`.
    """
    lock = LogDirLock(fs, log_dir, LockMode.SHARED, LockRole.CLEANER)
    try:
        lock.logs.enter()
    except BaseException:
        lock.release()
        raise
    return lock


def acquire_for_writing(fs: FileSystem, log_dir: Path, clock: Clock, *, patience_ms: int) -> LogDirLock:
    """
    Lock a log dir for a writer that is about to load its logs; a cleaner's rounds are asked to end, and waited for.

    Once every log is loaded, recovered and settled, `logs.admit_cleaner()` lets rounds begin alongside the writer.

    Raises:
        LogDirLockedError: a broker, another writer, or a cleaner that did not release the logs within `patience_ms`.
        LogDirOfflineError: as `LogDirLock`.
    """
    lock = LogDirLock(fs, log_dir, LockMode.SHARED, LockRole.WRITER)
    try:
        lock.logs.wait_to_load(clock, patience_ms)
    except BaseException:
        lock.release()
        raise
    return lock


# This process's locks: through another descriptor, the kernel reports them like any other process's.
_ours: weakref.WeakSet[LogDirLock] = weakref.WeakSet()
_ours_guard = concurrency.Lock()


def _forget_parents_locks() -> None:
    """In a forked child, forget the parent's locks; the guard is new, as a thread of the parent may have held it."""
    global _ours_guard
    _ours_guard = concurrency.Lock()
    _ours.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


def own_locks() -> list[LogDirLock]:
    """Return the locks that this process holds or is taking."""
    with _ours_guard:
        return list(_ours)
