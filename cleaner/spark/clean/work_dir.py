"""The directory of all bulk jobs: outside of log dirs, and writable only by the users that clean."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cleaner.config.values import CleanerConfig
from cleaner.errors import ConfigError, LogDirOfflineError
from cleaner.spark.clean.round import BulkOptions
from cleaner.state.state_dir import MODE, require_own_way
from cleaner.storage.fs.file_system import FileSystem, real_path

WORK_DIR_KEY = "cleaner.bulk.work.dir"


def ready_work_dir(fs: FileSystem, path: Path, log_dir: Path) -> Path:
    """
    Return the directory of all jobs, with links resolved; it and its parent are created if they are missing.

    Raises:
        ConfigError: it is in the log dir, not a directory, writable by everybody, or cannot be created.
    """
    resolved = real_path(path)
    if resolved.is_relative_to(real_path(log_dir)):
        raise ConfigError(WORK_DIR_KEY, path, f"must not be inside the log dir {log_dir}; name another with --work-dir")
    require_own_way(path, WORK_DIR_KEY, path)
    for directory in (resolved.parent, resolved):
        if not fs.exists(directory):
            try:
                fs.make_dir(directory, MODE)
            except FileExistsError:
                continue  # another job has just created it
            except LogDirOfflineError as error:
                reason = f"cannot be created: {error.cause.strerror}; name another with --work-dir"
                raise ConfigError(WORK_DIR_KEY, path, reason) from error
    about = fs.stat(resolved)
    mode = about.st_mode
    if not stat.S_ISDIR(mode):
        raise ConfigError(WORK_DIR_KEY, path, "is not a directory")
    if os.geteuid() == 0 and about.st_uid != 0:
        reason = (
            f"belongs to user {about.st_uid}, and root works in its own only: chown root, or name another directory"
        )
        raise ConfigError(WORK_DIR_KEY, path, reason)
    # Its files decide which records are retained.
    if mode & stat.S_IWOTH:
        raise ConfigError(WORK_DIR_KEY, path, "everybody may write there: chmod o-w, or name another with --work-dir")
    return resolved


def options_of(config: CleanerConfig, log_dir: Path, work_dir: Path | None, map_entries: int | None) -> BulkOptions:
    """
    Return the options of bulk rounds, from the settings.

    Args:
        work_dir, map_entries: from the command line, if given.
    Raises:
        ConfigError: see `ready_work_dir`.
    """
    return BulkOptions(
        work_dir=ready_work_dir(FileSystem(), work_dir or Path(config.bulk_work_dir), log_dir),
        groups_in_flight=config.bulk_groups_in_flight,
        task_memory_bytes=config.bulk_task_memory,
        map_entries=map_entries,
    )
