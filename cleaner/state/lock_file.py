"""
A lock file: one process holds it, and a second one learns which.

It uses an open-file-description lock, like a log dir (`storage/lock/byte_ranges.py` says why). The kernel does not know
who holds one, so the holder writes its pid into the file; the pid is for people, only the lock counts. The file is
never removed: otherwise two processes could hold locks on two files of one name.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from cleaner.errors import LogDirOfflineError, StateDirLockedError
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.lock.byte_ranges import TO_THE_END, WRITE, try_lock

_HOLDER = re.compile(rb"process [0-9]{1,10} on [A-Za-z0-9._-]{1,64}\n")
_HOLDER_BYTES = 128


class LockFile:
    """
    A lock, taken on creation; use it in a `with` block or call `release`.

    It belongs to the process that took it: a forked child does not hold it.

    Args:
        fs: the file system.
        path: the file; created with its directory's ownership if missing.
        what: names the locked thing, at the beginning of the error.
    Raises:
        StateDirLockedError: another process has it.
        LogDirOfflineError, NoSpaceError: the file cannot be opened, created or written.
    """

    def __init__(self, fs: FileSystem, path: Path, what: str) -> None:
        self.path = path
        self._file: File | None = _open(fs, path)
        try:
            self._lock(self._file, what)
            self._sign(self._file)
        except BaseException:
            self.release()
            raise

    def _lock(self, file: File, what: str) -> None:
        if not try_lock(file, WRITE, 0, TO_THE_END):
            raise StateDirLockedError(f"{what} is in use by {_holder(file)}")

    def _sign(self, file: File) -> None:
        name = re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "-"
        line = f"process {os.getpid()} on {name}\n".encode("ascii")
        file.write(line, 0)
        file.truncate(len(line))

    def release(self) -> None:
        """Release the lock and leave the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> LockFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _open(fs: FileSystem, path: Path) -> File:
    """Open the file or create it; another process may be faster in between."""
    for _ in range(2):
        try:
            return fs.open(path, write=True)
        except FileNotFoundError:
            pass
        try:
            return fs.create(path, like=path.parent)
        except LogDirOfflineError as error:
            if not isinstance(error.cause, FileExistsError):
                raise
    with disk_errors(path):
        return fs.open(path, write=True)


def _holder(file: File) -> str:
    """Say who wrote its pid; it may be from another container, or of an earlier holder."""
    found = _HOLDER.match(file.read(_HOLDER_BYTES, 0))
    return found.group().decode("ascii").strip() if found else "another process"
