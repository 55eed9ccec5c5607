"""
Finds out who holds the lock of a log dir without taking it.

The kernel says which bytes are locked (table in `log_dir_lock.py`), not by which cleaner or writer. Through another
opening of the file, this process's own locks look like those of any other, so they are recognized by the file.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from cleaner.storage.fs.file_system import FileSystem, is_local_disk, real_path
from cleaner.storage.lock.byte_ranges import OPEN_FILE, READ, WRITE, holder_of
from cleaner.storage.lock.lock_bytes import ALONE_BYTE, CLEANER_BYTE, LOGS_BYTE, WRITER_BYTE
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, own_locks
from cleaner.storage.segment import names


class LockHolder(enum.Enum):
    """Who keeps a cleaner out of a log dir; the values are shown to the operator."""

    NOBODY = "nobody"
    BROKER = "a live broker"
    CLEANER = "another cleaner"
    LOADING = "a writer that is loading its logs"
    ALONE = "another cleaner or writer, which needs the log dir to itself"


@dataclass(frozen=True)
class LockReport:
    """
    What is known of a lock without taking it.

    Attributes:
        holder: who would keep out a cleaner that takes the lock shared; locks of this process do not count.
        has_writer: one of our writers holds it shared, which is no obstacle.
        pid: the broker's process; None if the kernel does not tell.
    """

    holder: LockHolder = LockHolder.NOBODY
    has_writer: bool = False
    pid: int | None = None


def probe(fs: FileSystem, log_dir: Path) -> LockReport:
    """
    Find out who holds the lock of a log dir; nothing is locked, created or changed, not even for a moment.

    The answer may be out of date immediately.

    Raises:
        LogDirOfflineError: the file cannot be opened or queried.
    """
    path = real_path(log_dir) / names.LOCK
    if not is_local_disk(fs, path):
        return LockReport()
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return LockReport()
    candidates = own_locks()
    with file:
        about = file.stat()
        mine = [lock for lock in candidates if lock.is_on(path, about)]
        if any(lock.mode is LockMode.EXCLUSIVE for lock in mine):
            return LockReport()
        alone = holder_of(file, WRITE, ALONE_BYTE, 1)
        if alone is not None and alone.pid == OPEN_FILE:
            return LockReport(LockHolder.ALONE)
        if alone is not None:
            return LockReport(LockHolder.BROKER, pid=alone.pid or None)
        has_writer = holder_of(file, WRITE, WRITER_BYTE, 1) is not None
        is_ours = any(lock.role is LockRole.CLEANER for lock in mine)
        if not is_ours and holder_of(file, WRITE, CLEANER_BYTE, 1) is not None:
            return LockReport(LockHolder.CLEANER, has_writer)
        is_loading = has_writer and not is_ours and holder_of(file, READ, LOGS_BYTE, 1) is not None
        return LockReport(LockHolder.LOADING if is_loading else LockHolder.NOBODY, has_writer)
