"""
Operations on thousands of files at once, and on large ones that nobody should wait for.

A log of tiny segments has five files for each segment: one by one, they would cost a round more than reading and
writing their records. Called by `file_system.py` only.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import stat
from collections.abc import Callable, Sequence

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError
from cleaner.storage.fs.held import HeldName

SYNCFS_FROM = 100
"""From this many files on, one sync of the whole file system is cheaper than an fsync of each (some 0.1 ms)."""

_MIN_A_THREAD = 32
_MOST_HELD = 64
_MOST_NAMES = 512  # to look at one by one
# A descriptor that keeps a file without opening it, where the system has that.
_TO_HOLD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_FIRST_LINUX_REPORTING_ERRORS = (5, 8)
# `statfs` numbers of the file systems whose syncfs is known to wait for data and journal: ext2 to ext4, XFS. Others
# (FUSE, network and layered ones) may return before anything is on disk.
_RELIABLE = frozenset((0xEF53, 0x58465342))
_STATFS_BYTES = 256  # more than the structure of any architecture; its first field is the type, a machine word


def sync_at_once(directory: HeldName, names: Sequence[str]) -> bool:
    """
    Force files of a directory to disk with one sync of their file system, where that is as good as an fsync of each.

    Why it is as good (D-10): `syncfs` writes every page and inode that is dirty when it is called, waits for them and
    commits the journal. Since Linux 5.8 it reports any failed write that was not reported before. That write may belong
    to another process, and then we stop although our files are fine; but none of our failures goes unnoticed. If there
    was something to commit, `syncfs` also flushes the disk's own cache; an fsync of the last file makes sure of that.

    Returns:
        False, nothing done, where it is not as good, or where a name is not a regular file of that file system.
    Raises:
        OSError: a write failed. That is final (C-2): the system reports it only once.
    """
    if not _reports_errors(os.uname()):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(directory.name, flags, dir_fd=directory.descriptor)
    try:
        if _type_of(library, descriptor) not in _RELIABLE:
            return False
        present = _regular_files(descriptor, names)
        if present is None:
            return False
        if library.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        for name in present[-1:]:
            last = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            try:
                os.fsync(last)
            finally:
                os.close(last)
    finally:
        os.close(descriptor)
    return True


def _reports_errors(system: os.uname_result) -> bool:
    """Tell whether `syncfs` reports failed writes here."""
    version = re.match(r"(\d+)\.(\d+)", system.release)
    return (
        system.sysname == "Linux"
        and version is not None
        and tuple(map(int, version.groups())) >= _FIRST_LINUX_REPORTING_ERRORS
    )


def _type_of(library: ctypes.CDLL, descriptor: int) -> int:
    """Return the number of a file system's type, 0 if it is unknown."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if library.fstatfs(descriptor, answer) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF


def _regular_files(descriptor: int, names: Sequence[str]) -> list[str] | None:
    """Return the names that exist; None if one is a link or a device, or on another file system."""
    device = os.fstat(descriptor).st_dev
    present = []
    for name in names:
        try:
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(about.st_mode) or about.st_dev != device:
            return None
        present.append(name)
    return present


class Freeing:
    """
    Frees the blocks of removed files behind the caller.

    The system frees them when the last descriptor is closed. A disk that is told what is free (mount option `discard`)
    keeps one waiting meanwhile, 0.2 s a gigabyte: as long as a fifth of the round before it.
    """

    def __init__(self) -> None:
        self._lock = concurrency.Lock()
        self._threads: list[concurrency.Thread] = []  # guarded by _lock

    def begin(self, removed: list[io.FileIO]) -> None:
        """Close removed files in the background, once no more than one earlier call's are still being closed."""
        if not removed:
            return
        with self._lock:
            earlier = self._threads[:-1]
        for thread in earlier:
            thread.join()
        thread = concurrency.Thread(target=_close_all, args=(removed,), name="cleaner-frees", daemon=True)
        try:
            thread.start()
        except OutOfThreadsError:
            _close_all(removed)
            return
        with self._lock:
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    def wait(self) -> None:
        """Return when all blocks are free."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()


def _close_all(removed: list[io.FileIO]) -> None:
    for file in removed:
        file.close()


def open_large(directory: HeldName, names: Sequence[str], from_bytes: int) -> list[io.FileIO]:
    """
    Open the regular files of a directory that have so many bytes, so that removing them does not free their blocks yet.

    Only the first ones if they are many, as each descriptor counts; none of very many names, which are of small files
    as a rule. A file that cannot be opened is left out.
    """
    if len(names) > _MOST_NAMES:
        return []
    found: list[io.FileIO] = []
    for name in names:
        if len(found) == _MOST_HELD:
            break
        with contextlib.suppress(OSError):
            about = os.stat(directory.below(name), dir_fd=directory.descriptor, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode) and about.st_size >= from_bytes:
                found.append(io.FileIO(os.open(directory.below(name), _TO_HOLD, dir_fd=directory.descriptor)))
    return found


def share_out(
    work: Callable[[Sequence[str]], None], names: Sequence[str], threads: int, fewest: int = _MIN_A_THREAD
) -> None:
    """
    Divide names into shares of at least `fewest` and let a thread work on each; the calling thread takes one too.

    If a thread raises, its error is raised here once all threads have ended.
    """
    shares = max(1, min(threads, len(names) // fewest))
    failures: list[BaseException] = []

    def run(first: int) -> None:
        try:
            work(names[first::shares])
        except BaseException as error:  # noqa: BLE001 - raised once all have ended
            failures.append(error)

    others = [
        concurrency.Thread(target=run, args=(first,), name=f"cleaner-files-{first}") for first in range(1, shares)
    ]
    begun = 1
    try:
        with contextlib.suppress(OutOfThreadsError):
            for other in others:
                other.start()
                begun += 1
        for first in (0, *range(begun, shares)):
            run(first)
    except BaseException as error:  # noqa: BLE001 - an interrupt: raised once all have ended
        failures.append(error)
    if (interrupt := concurrency.join_all(others)) is not None:
        failures.append(interrupt)
    if failures:
        failure = failures[0]
        failures.clear()
        try:
            raise failure
        finally:
            del failure, interrupt  # or the errors and this frame would refer to each other
