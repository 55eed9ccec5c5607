"""
Where state is kept: in a directory of one daemon's own, that no broker, writer or reader of logs looks into
(D-08).

What is in it decides what is cleaned and which logs are passed over, so nobody but its owner may write there; members
of its group may read it, and reach the control socket.
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

STATE_DIR_KEY = "cleaner.state.dir"
LOCK_NAME = "lock"
MODE = 0o750

_NOT_OWNERS = stat.S_IWGRP | stat.S_IWOTH


class StateDir:
    """
    The state directory, locked by this process; use it in a `with` block or call `release`.

    It is created if it is not there, readable by its group.

    Args:
        fs: the file system.
        path: the directory; links to it are followed once, here.
        log_dirs: it must be in none of them.
    Attributes:
        path: the directory, links followed.
    Raises:
        ConfigError: in a log dir, no directory, of another user, or open for others to write; it may then hold
            anything. Also when it is not there and cannot be created.
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
        """Let another process have it; a second call does nothing."""
        self._lock.release()

    def __enter__(self) -> StateDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def require_outside_log_dirs(state_dir: Path, log_dirs: Iterable[Path]) -> None:
    """
    Make sure that the state directory is no log dir and in none; links are followed.

    Raises:
        ConfigError: a broker would take a foreign directory among its partitions for damage (R-104), and one in a
            partition's directory would be lost when it moves.
    """
    resolved = real_path(state_dir)
    for log_dir in log_dirs:
        if resolved.is_relative_to(real_path(log_dir)):
            raise ConfigError(STATE_DIR_KEY, state_dir, f"must not be inside the log dir {log_dir}")


def require_own_way(directory: Path, key: str, value: object) -> None:
    """
    Make sure, as root, that nobody else can have a path lead elsewhere: it is looked at, and used later.

    Any other user has no rights there that the owner of a directory on the way would like to have.

    Raises:
        ConfigError: somebody can.
    """
    reason = None
    if os.geteuid() == 0:
        with contextlib.suppress(FileNotFoundError):  # somebody else's to complain about; all above have been looked at
            reason = why_way_is_open_to_others(directory)
    if reason is not None:
        raise ConfigError(key, value, f"{reason}: another directory could be put in its place while root works there")


def require_private(fs: FileSystem, directory: Path, key: str, value: object) -> None:
    """
    Make sure that nobody but this process's user can put anything into a directory.

    Args:
        fs: the file system.
        directory: links are not followed.
        key, value: the setting that names it, for the error.
    Raises:
        ConfigError: it is no directory, another user's, or its group or others may write to it.
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
        remedy = "chmod go-w, or name a directory inside it that is yet to be created"
        raise ConfigError(key, value, f"others may write to {directory} ({mode}): {remedy}")


def _make(fs: FileSystem, resolved: Path, given: Path) -> None:
    if fs.exists(resolved):
        return
    try:
        fs.make_dir(resolved, MODE)
        fs.fsync_dir(resolved.parent)
    except FileExistsError:
        return  # another daemon that starts; the lock decides
    except LogDirOfflineError as error:
        reason = error.cause.strerror or "cannot be created"
        raise ConfigError(STATE_DIR_KEY, given, f"cannot be created: {reason}") from error
