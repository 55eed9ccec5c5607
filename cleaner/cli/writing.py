"""How a command becomes the writer of a log dir."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleaner.cli.stop import StopFlag
    from cleaner.log.manager import LogManager


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
    Open a log dir for writing for the length of a `with` block. It is left to another process to clean it.

    Args:
        config: a properties file with settings of the writer.
        flag: told that the log dir is being closed, so that a signal does not keep that from being done in order.
        create: make it if it is not there.
        overrides: settings that count before those.
    Raises:
        LogDirLockedError: a broker or another writer has it.
        CleanerError: see `LogManager`.
    """
    from cleaner.log.manager import LogManager
    from cleaner.settings import read_config_file
    from cleaner.storage.fs.file_system import FileSystem

    settings = {} if config is None else read_config_file(FileSystem(), config)
    manager = LogManager(log_dir, {**settings, **(overrides or {})}, create=create, cleaner=False)
    try:
        yield manager
    finally:
        with flag.closing():
            manager.close()
