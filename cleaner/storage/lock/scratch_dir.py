"""
A directory for the life of a process; if the process is killed, the next one that makes such a directory removes it.

Its owner keeps a file in it locked. Many processes may make and remove such directories in one place at any moment, so

- who makes one locks the file in it, and then looks whether the file still has its name: a process that removes what is
  left may have been faster, and another directory is made;
- who removes one takes the lock, lists what there is, and then looks in the same way. So nothing goes that was made by
  somebody who has looked;
- the lock file goes last. A directory without it is empty, or somebody's at work, and removing it as an empty directory
  is all that is tried.

On a file system without locks there is no lock file: the directory works as any other, and nobody removes it after a
kill. Only what has the name of such a directory, and belongs to this user, is looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.byte_ranges import TO_THE_END, WRITE, has_its_name, try_lock

_MODE = 0o700
_LOCK, _WITHOUT_LOCKS = "lock", "no-locks-here"
_END = re.compile(r"[0-9a-f]{8}")
_ATTEMPTS = 10
"""Each that fails takes another process that removes what is left, at this very moment."""


@contextlib.contextmanager
def scratch_dir(fs: FileSystem, base: Path, prefix: str) -> Iterator[Path]:
    """
    Make a directory of our own, for the length of a `with` block; those of killed processes are removed.

    A forked child that leaves the block removes nothing: the directory is its parent's.

    Args:
        fs: the file system.
        base: an existing directory, by its real path.
        prefix: how its name begins, and the names of those to be removed if nobody uses them.
    Returns:
        Its path; only its owner may look into it.
    Raises:
        LogDirOfflineError: it cannot be made, or at the end not be removed.
    """
    _remove_left(fs, base, prefix)
    path, lock = _make(fs, base, prefix)
    owner = os.getpid()
    with lock:
        try:
            yield path
        finally:
            if os.getpid() == owner:
                with contextlib.suppress(FileNotFoundError):  # somebody has tidied up here
                    _remove(fs, path, fs.list_dir(path))


def _make(fs: FileSystem, base: Path, prefix: str) -> tuple[Path, File]:
    error = None
    for _ in range(_ATTEMPTS):
        path = base / f"{prefix}{secrets.token_hex(4)}"  # short: sockets in it have little room for names
        try:
            fs.make_dir(path, _MODE)
            lock = _locked(fs, path)
        except FileExistsError:
            continue
        except LogDirOfflineError as caught:
            if not isinstance(caught.cause, FileNotFoundError):
                raise
            error = caught  # removed while it was empty, or there is no `base`
            continue
        if lock is not None:
            return path, lock
    raise error or LogDirOfflineError(base, OSError(errno.EBUSY, "other processes keep removing what is made here"))


def _locked(fs: FileSystem, path: Path) -> File | None:
    """Put a locked file into a new directory; None: another process has it, and removes the directory."""
    lock = fs.create(path / _LOCK, like=None)
    try:
        if _take(fs, lock):
            return lock
    except LogDirOfflineError:  # no locks here
        fs.remove(lock.path)
        lock.close()
        return fs.create(path / _WITHOUT_LOCKS, like=None)
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


def _take(fs: FileSystem, lock: File) -> bool:
    """Lock a file; False if another process has it, or has removed it."""
    return try_lock(lock, WRITE, 0, TO_THE_END) and has_its_name(fs, lock)


def _remove_left(fs: FileSystem, base: Path, prefix: str) -> None:
    """Remove the directories of processes that were killed: their locks are gone with them."""
    with contextlib.suppress(FileNotFoundError, CleanerError):  # not ours to read: then nothing is removed
        for name in fs.list_dirs(base):
            if name.startswith(prefix) and _END.fullmatch(name, len(prefix)):
                with contextlib.suppress(FileNotFoundError, CleanerError):  # gone meanwhile, in use, or not removable
                    _remove_if_left(fs, base / name)


def _remove_if_left(fs: FileSystem, path: Path) -> None:
    with fs.hold(path):  # no link, and the same directory to the end, whatever others do to its name
        if fs.stat(path).st_uid != os.geteuid():
            return
        try:
            lock = fs.open(path / _LOCK, write=True)
        except FileNotFoundError:
            fs.remove_dir(path)  # its process was killed before the file was made, or after it was removed
            return
        with lock:
            if try_lock(lock, WRITE, 0, TO_THE_END):
                found = fs.list_dir(path)  # before the look at the name: see the head
                if has_its_name(fs, lock):
                    _remove(fs, path, found)


def _remove(fs: FileSystem, path: Path, names: list[str]) -> None:
    """Remove a directory of ours with what was found in it, the lock file last; what cannot be removed keeps it."""
    _remove_below(fs, path, [name for name in names if name != _LOCK])
    fs.remove(path / _LOCK)
    fs.remove_dir(path)


def _remove_below(fs: FileSystem, directory: Path, names: list[str]) -> None:
    files = set(fs.list_files(directory))  # and links
    for name in names:
        if name in files:
            fs.remove(directory / name)
        else:
            _remove_below(fs, directory / name, fs.list_dir(directory / name))
            fs.remove_dir(directory / name)
