"""
A lock of our own: one process has it, and a second one is told which.

An open-file description lock, as that of a log dir (see `storage/lock/byte_ranges.py` for why). The kernel forgets who
holds one, so the holder writes its number into the file; the number is for people, the lock alone counts. The file
stays behind: removing it would let two processes hold locks on two files of one name.
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

    It stays the process's that took it: in a forked child it is not held.

    Args:
        fs: the file system.
        path: the file, created like its directory if it is not there.
        what: names what is locked, at the head of the error.
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
        """Give the lock back, leaving the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> LockFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _open(fs: FileSystem, path: Path) -> File:
    """Open the file or create it; somebody may be faster in between."""
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
    """Say who signed; a number may be that of another container, or of a process just about to sign."""
    found = _HOLDER.match(file.read(_HOLDER_BYTES, 0))
    return found.group().decode("ascii").strip() if found else "another process"
