"""
The lock of a log dir: never clean beside a live broker, never two cleaners at once.

A broker holds `.lock` with Java's `FileChannel.tryLock`: a POSIX write lock on bytes 0 to 2**63 - 2. `flock` does not
see such a lock, and a classic `lockf` of ours would be dropped when anything in this process closed the file. Open-file
description locks exclude Java's both ways and have neither flaw. Which bytes are locked says who holds what (the file
itself stays empty):

    byte              0            1            2                3 ...
                      cleaner      writer       presence         (unused)
    exclusive         write        write        write            write        everything, as a JVM does
    shared, cleaner   write                     read
    shared, writer                 write        read

- A JVM and `exclusive` want to write every byte, so they meet each other and any `shared` holder at byte 2.
- A cleaner and a writer share byte 2 and have a byte each; two cleaners meet at byte 0, two writers at byte 1.

A stopping broker unlocks and then *deletes* the file. Whoever locks in between holds a file nobody else will ever find,
so after locking, and again before each change that cannot be undone, the open file is compared with the name.

We never delete the file: another process may just have opened it.

Source: rules R-111, D-01; reliability rule R6; fcntl(2), "Open file description locks".
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import struct
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import LogDirLockedError, LogDirOfflineError
from cleaner.storage import names
from cleaner.storage.fs import File, FileSystem, disk_errors
from cleaner.storage.ownership import can_own


class LockMode(enum.Enum):
    """`EXCLUSIVE`: nobody else at all. `SHARED`: one cleaner and one writer side by side, still no broker."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class LockRole(enum.Enum):
    """What the holder does; the value is the role's own byte in the lock file, fixed for ever."""

    CLEANER = 0
    WRITER = 1


_PRESENCE_BYTE = 2  # Fixed for ever.
_TO_THE_END = 0  # length 0: this byte and all after it

# struct flock of 64-bit Linux: type, whence, start, length, pid. The pid must be 0 for these locks.
_FLOCK = struct.Struct("@hhqqi4x")
# Linux's <fcntl.h>; Python 3.11 names them only where its libc did.
_GET_LOCK = getattr(fcntl, "F_OFD_GETLK", 36)
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", 37)

_OPEN_FILE_PID = -1  # what F_OFD_GETLK says of a lock that is no process's but an open file's

_ATTEMPTS = 10
"""A file that is replaced between opening and locking is opened again; each time takes another broker that stops."""


class LogDirLock:
    """
    The lock of one log dir, taken on creation; use it in a `with` block or call `release`.

    A forked child shares the lock: do not fork while holding one (the descriptor is closed on exec).

    Args:
        fs: the door to the file system.
        log_dir: the directory; a link to it is followed once, here.
        mode: alone, or beside the other role.
        role: what the holder does.
    Raises:
        LogDirLockedError: somebody else holds it; says who, as far as the kernel tells.
        LogDirOfflineError: the file cannot be opened, created or locked at all.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: Path,
        mode: LockMode = LockMode.EXCLUSIVE,
        role: LockRole = LockRole.CLEANER,
    ) -> None:
        self.path = log_dir.resolve() / names.LOCK
        self.mode = mode
        self.role = role
        self._fs = fs
        self._release_lock = threading.Lock()
        self._file: File | None = None
        with _ours_guard:
            _ours.add(self)  # before it is taken: whoever probes in between is not to take it for somebody else's
        try:
            self._file = self._acquire()
        except BaseException:
            self._forget()
            raise

    def _acquire(self) -> File:
        for _ in range(_ATTEMPTS):
            file = self._open()
            if file is None:
                continue
            try:
                self._lock(file)
                if self._is_named(file):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # deleted by a broker that stopped: the next attempt makes a new one
        raise LogDirLockedError(f"{self.path}: keeps being replaced by other processes")

    def _open(self) -> File | None:
        """Open the lock file or create it with the directory's ownership; None when somebody was faster."""
        try:
            return self._fs.open(self.path, write=True)
        except FileNotFoundError:
            pass
        # Asked before: a file that had to be deleted again might by then be another process's lock.
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
            self._set(file, fcntl.F_WRLCK, 0, _TO_THE_END)
            return
        # Presence first: while a broker has the file, our role's byte is never locked, not even for a moment.
        self._set(file, fcntl.F_RDLCK, _PRESENCE_BYTE, 1)
        self._set(file, fcntl.F_WRLCK, self.role.value, 1)

    def _set(self, file: File, kind: int, start: int, length: int) -> None:
        request = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        try:
            fcntl.fcntl(file.fileno(), _SET_LOCK, request)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LogDirLockedError(f"{self.path}: {self._holder(file, request)}") from error
            raise LogDirOfflineError(self.path, error) from error

    def _holder(self, file: File, request: bytes) -> str:
        """Say who stands in the way: a process with a classic lock (a JVM) has a number, ours have -1."""
        try:
            answer = fcntl.fcntl(file.fileno(), _GET_LOCK, request)
        except OSError:
            return "locked by another process"
        kind, _, start, length, pid = _FLOCK.unpack(answer)
        if kind == fcntl.F_UNLCK:
            return "was locked by another process a moment ago"
        if pid != _OPEN_FILE_PID:
            # 0: a process that cannot be seen from this container.
            who = f"process {pid}" if pid else "a process of another container"
            return f"locked by {who}, probably a live broker; stop it first"
        if length == 1 and start == LockRole.WRITER.value:
            return "locked by another writer"
        if length == 1 and start == LockRole.CLEANER.value:
            return "locked by another cleaner"
        return "locked by another cleaner or writer"

    def _is_named(self, file: File) -> bool:
        mine = file.stat()
        try:
            named = self._fs.stat(self.path)
        except FileNotFoundError:
            return False
        return mine.st_nlink > 0 and (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)

    def still_held(self) -> None:
        """
        Make sure that the lock still keeps others out; to be called before each group's first rename.

        Raises:
            LogDirLockedError: released, or the file was deleted or replaced (by a broker that was stopping when the
                lock was taken), so that another process may hold the directory now.
        """
        file = self._file
        if file is None:
            raise LogDirLockedError(f"{self.path}: no longer locked by this process")
        if not self._is_named(file):
            raise LogDirLockedError(
                f"{self.path}: deleted or replaced while it was locked; another process may use the log dir now"
            )

    def release(self) -> None:
        """Give the lock back, leaving the file; a second call does nothing."""
        with self._release_lock:
            file, self._file = self._file, None
        self._forget()
        if file is None:
            return
        try:
            # Closing alone would not do if a forked child still had the descriptor.
            self._set(file, fcntl.F_UNLCK, 0, _TO_THE_END)
        finally:
            file.close()

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


class LockHolder(enum.Enum):
    """Who keeps a cleaner out of a log dir; the values are words for the operator."""

    NOBODY = "nobody"
    BROKER = "a live broker"
    CLEANER = "another cleaner"
    ALONE = "another cleaner or writer, which wants to be alone"


@dataclass(frozen=True)
class LockReport:
    """
    What can be told of a lock without taking it.

    Attributes:
        holder: who keeps a cleaner out that would take the lock shared; locks of this process do not count.
        has_writer: a writer of ours holds it, shared: no obstacle.
        pid: the broker's process; None where the kernel does not tell.
    """

    holder: LockHolder = LockHolder.NOBODY
    has_writer: bool = False
    pid: int | None = None


# This process's locks: asked through another descriptor, the kernel tells of them as of any other.
_ours: weakref.WeakSet[LogDirLock] = weakref.WeakSet()
_ours_guard = threading.Lock()


def probe(fs: FileSystem, log_dir: Path) -> LockReport:
    """
    Tell who holds the lock of a log dir, disturbing nobody: nothing is locked, created or changed, not for a moment.

    The answer may be out of date at once.

    Raises:
        LogDirOfflineError: the file cannot be opened or asked about.
    """
    path = log_dir.resolve() / names.LOCK
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return LockReport()
    with _ours_guard:
        candidates = list(_ours)
    with file:
        about = file.stat()
        mine = [lock for lock in candidates if lock.is_on(path, about)]
        if any(lock.mode is LockMode.EXCLUSIVE for lock in mine):
            return LockReport()
        # Only who wants to be alone holds a byte beyond the three.
        alone = _holder_pid(file, _PRESENCE_BYTE + 1, _TO_THE_END)
        if alone == _OPEN_FILE_PID:
            return LockReport(LockHolder.ALONE)
        if alone is not None:
            return LockReport(LockHolder.BROKER, pid=alone or None)
        has_writer = _holder_pid(file, LockRole.WRITER.value, 1) is not None
        is_ours = any(lock.role is LockRole.CLEANER for lock in mine)
        has_cleaner = not is_ours and _holder_pid(file, LockRole.CLEANER.value, 1) is not None
        return LockReport(LockHolder.CLEANER if has_cleaner else LockHolder.NOBODY, has_writer)


def _holder_pid(file: File, start: int, length: int) -> int | None:
    """Return the number of the process that has one of these bytes locked, -1 for an open file, None for nobody."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    with disk_errors(file.path):
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file.fileno(), _GET_LOCK, request))
    return None if kind == fcntl.F_UNLCK else int(pid)
