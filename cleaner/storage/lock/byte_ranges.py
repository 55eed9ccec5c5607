"""
Locks on byte ranges of a file, of the one kind that is safe alongside a JVM and among our own threads.

Linux has three kinds. `flock` does not see a JVM's locks at all. A classic `lockf` belongs to the process, and is
dropped when anything in the process closes any descriptor of the file. An *open-file-description* lock belongs to one
opening of the file: it and a JVM's lock refuse each other both ways, two openings in one process refuse each other like
two processes, and it ends when its last descriptor is closed, at the latest by the kernel when the process dies.

Nothing here waits. The bytes need not exist: the file may be empty.

A forked child inherits a descriptor of each opening, and with it a lock would outlast the process that took it. So the
child closes those descriptors at once. The lock stays with the parent; unlocking would take it from the parent.

Source: rule C-4; fcntl(2), "Open file description locks".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import weakref
from pathlib import Path
from typing import NamedTuple, Protocol

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors

READ, WRITE = fcntl.F_RDLCK, fcntl.F_WRLCK
"""A byte has any number of `READ` locks, or one `WRITE` lock. For a read lock, a file open for reading is enough."""

TO_THE_END = 0
"""As a length: this byte and all after it."""

OPEN_FILE = -1
"""As a pid: the lock is an open-file-description lock too, and the kernel does not tell whose."""

# struct flock of 64-bit Linux: type, whence, start, length, pid. The pid must be 0 in a request.
_FLOCK = struct.Struct("@hhqqi4x")
# Linux's <fcntl.h>; Python 3.11 names them only where its libc did.
_GET_LOCK = getattr(fcntl, "F_OFD_GETLK", 36)
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", 37)


class Opened(Protocol):
    """An open file."""

    @property
    def path(self) -> Path:
        """Its path, for errors."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def close(self) -> None:
        """Close it; a second call does nothing."""


class Holder(NamedTuple):
    """A conflicting lock: its kind, its bytes (length 0: to the end), and its process or `OPEN_FILE`."""

    kind: int
    start: int
    length: int
    pid: int


def try_lock(file: Opened, kind: int, start: int, length: int) -> bool:
    """
    Lock a range, or turn a lock on it into the other kind in one step; False if another holder's lock conflicts.

    Raises:
        LogDirOfflineError: the file system refuses locks.
    """
    _locked.add(file)  # before locking: a fork may come in between
    try:
        _set(file, kind, start, length)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        with disk_errors(file.path):
            raise
    return True


def unlock(file: Opened, start: int, length: int) -> None:
    """Unlock a range; bytes that are not locked are fine."""
    with disk_errors(file.path):
        _set(file, fcntl.F_UNLCK, start, length)


def holder_of(file: Opened, kind: int, start: int, length: int) -> Holder | None:
    """Return a lock that would make `try_lock` fail, or None. Locks of the same opening do not count."""
    request = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    with disk_errors(file.path):
        found, _, its_start, its_length, pid = _FLOCK.unpack(fcntl.fcntl(file.fileno(), _GET_LOCK, request))
    return None if found == fcntl.F_UNLCK else Holder(found, its_start, its_length, pid)


def has_its_name(fs: FileSystem, file: File) -> bool:
    """Tell whether an open file is still the one of its name: a lock on another one keeps nobody out."""
    mine = file.stat()
    try:
        named = fs.stat(file.path)
    except FileNotFoundError:
        return False
    return mine.st_nlink > 0 and (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


def _set(file: Opened, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(file.fileno(), _SET_LOCK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


# Files on which a lock was requested; it does no harm if one was closed since.
_locked: weakref.WeakSet[Opened] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Close the locked files a forked child inherited. Waits for nothing: the parent's threads do not exist here."""
    for file in tuple(_locked):
        with contextlib.suppress(LogDirOfflineError, OSError):
            file.close()
    _locked.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
