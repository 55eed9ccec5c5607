"""Log dirs for commands: opened for writing, or read without a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.errors import UsageError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import why_no_log_dir

if TYPE_CHECKING:
    from cleaner.cli.stop import StopFlag
    from cleaner.log.manager import LogManager
    from cleaner.log.topics import Topics


@contextmanager
def open_log_dir(
    log_dir: Path,
    config: Path | None,
    flag: StopFlag,
    *,
    create: bool = False,
    overrides: dict[str, str] | None = None,
) -> Iterator[LogManager]:
    """
    Open a log dir for writing during a `with` block. Cleaning is left to another process.

    Args:
        config: a properties file with settings of the writer.
        flag: set to closing while the log dir is closed, so that a signal does not interrupt that.
        create: create it if it does not exist.
        overrides: settings that override those.
    Raises:
        LogDirLockedError: a broker or another writer has it.
        CleanerError: see `LogManager`.
    """
    from cleaner.log.manager import LogManager
    from cleaner.settings import read_config_file

    class Manager(LogManager):
        _may_be_interrupted = False  # a command works in a thread, which no interrupt reaches

    settings = {} if config is None else read_config_file(FileSystem(), config)
    manager = Manager(log_dir, {**settings, **(overrides or {})}, create=create, cleaner=False)
    try:
        yield manager
    finally:
        with flag.closing():
            manager.close()


def topics_in(log_dir: Path, fs: FileSystem | None = None) -> Topics:
    """
    Return the topics of a log dir.

    Raises:
        UsageError: it is not a log dir.
    """
    from cleaner.base.clock import SystemClock
    from cleaner.log.topics import Topics
    from cleaner.storage.log_dir import LogDir

    fs = fs or FileSystem()
    reason = why_no_log_dir(fs, log_dir)
    if reason is not None:
        new = "" if why_no_log_dir(fs, log_dir, may_be_new=True) else "; `cleaner topics create` makes a log dir"
        raise UsageError(f"{log_dir}: {reason}{new}")
    return Topics(fs, [LogDir(fs, log_dir)], SystemClock())
