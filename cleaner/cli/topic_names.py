"""The topics of a log dir, looked at without a lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.errors import UsageError

if TYPE_CHECKING:
    from cleaner.logs.topics import Topics


def topics_in(log_dir: Path) -> Topics:
    """
    Return the topics of a log dir.

    Raises:
        UsageError: there is no such directory.
    """
    from cleaner.clock import SystemClock
    from cleaner.logs.topics import Topics
    from cleaner.storage.fs import FileSystem
    from cleaner.storage.log_dir import LogDir

    fs = FileSystem()
    if not fs.exists(log_dir):
        raise UsageError(f"{log_dir}: no such directory; `cleaner topics create` makes it")
    return Topics(fs, [LogDir(fs, log_dir)], SystemClock())
