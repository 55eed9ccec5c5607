"""
The directory for a daemon's state, which no broker, writer or reader of logs uses (D-08).

Its contents decide what is cleaned and which logs are skipped, so only its owner may write there; members of its group
may read it, and reach the control socket.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from cleaner.base.trusted import why_way_is_open_to_others
from cleaner.errors import ConfigError, LogDirOfflineError
from cleaner.state.lock_file import LockFile
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.new_dir import make_durable_dir

STATE_DIR_KEY = "cleaner.state.dir"
LOCK_NAME = "lock"
MODE = 0o750

_NOT_OWNERS = stat.S_IWGRP | stat.S_IWOTH


class StateDir:
    """
    The state directory, locked by this process; use it in a `with` block or call `release`.

    It is created if missing, readable by its group.

    Args:
        fs: the file system.
        path: the directory; links to it are followed once, here.
        log_dirs: it must not be inside any of them.
    Attributes:
        path: the directory, links followed.
    Raises:
        ConfigError: it is in a log dir, not a directory, another user's, or writable by others, who could have put
            anything there; or it is missing and cannot be created.
        StateDirLockedError: another daemon has it.
        LogDirOfflineError, NoSpaceError: its disk failed.
    """

    def __init__(self, fs: FileSystem, path: Path, log_dirs: Iterable[Path] = ()) -> None:
        require_outside_log_dirs(path, log_dirs)
        self.path = real_path(path)
        require_own_way(path, STATE_DIR_KEY, path)
        _make(fs, self.path, path)
        require_private(fs, self.path, STATE_DIR_KEY, path)
        self._lock = LockFile(fs, self.path / LOCK_NAME, f"the state directory {path}")

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        self._lock.release()

    def __enter__(self) -> StateDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def require_outside_log_dirs(directory: Path, log_dirs: Iterable[Path], key: str = STATE_DIR_KEY) -> None:
    """
    Make sure that a directory of ours is not a log dir and not inside one; links are followed.

    Args:
        directory, log_dirs: which.
        key: the setting that names it, for the error.
    Raises:
        ConfigError: it is. A broker would treat a foreign directory among its partitions as damage (R-104), and one in
            a partition's directory would be lost when that moves.
    """
    resolved = real_path(directory)
    for log_dir in log_dirs:
        if resolved.is_relative_to(real_path(log_dir)):
            raise ConfigError(key, directory, f"must not be inside the log dir {log_dir}")


def require_own_way(directory: Path, key: str, value: object) -> None:
    """
    Make sure, as root, that no other user can make a path lead elsewhere between this check and its use.

    For processes of other users this is not checked: they have no rights that an attacker would gain.

    Raises:
        ConfigError: another user can.
    """
    reason = None
    if os.geteuid() == 0:
        with contextlib.suppress(FileNotFoundError):  # the caller reports it; all directories above were checked
            reason = why_way_is_open_to_others(directory)
    if reason is not None:
        raise ConfigError(key, value, f"{reason}: another directory could replace it while root works there")


def require_private(fs: FileSystem, directory: Path, key: str, value: object) -> None:
    """
    Make sure that only this process's user can write to a directory.

    Args:
        fs: the file system.
        directory: links are not followed.
        key, value: the setting that names it, for the error.
    Raises:
        ConfigError: it is not a directory, is another user's, or its group or others may write to it.
    """
    require_own_way(directory, key, value)
    status = fs.stat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(key, value, f"{directory} is not a directory")
    if status.st_uid != os.geteuid():
        raise ConfigError(
            key, value, f"{directory} belongs to user {status.st_uid}, the cleaner runs as user {os.geteuid()}"
        )
    if status.st_mode & _NOT_OWNERS:
        mode = f"mode {stat.S_IMODE(status.st_mode):04o}"
        remedy = "chmod go-w, or name a directory inside it that does not exist yet"
        raise ConfigError(key, value, f"others may write to {directory} ({mode}): {remedy}")


def _make(fs: FileSystem, resolved: Path, given: Path) -> None:
    try:
        make_durable_dir(fs, resolved, MODE)
    except LogDirOfflineError as error:
        if isinstance(error.cause, NotADirectoryError):
            return  # what it is, its owner is told next
        reason = error.cause.strerror or "cannot be created"
        raise ConfigError(STATE_DIR_KEY, given, f"cannot be created: {reason}") from error
