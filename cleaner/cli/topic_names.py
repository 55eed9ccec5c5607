"""The topics of a log dir, looked at without a lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.errors import UsageError

if TYPE_CHECKING:
    from cleaner.log.topics import Topics


def topics_in(log_dir: Path) -> Topics:
    """
    Return the topics of a log dir.

    Raises:
        UsageError: it is none.
    """
    from cleaner.base.clock import SystemClock
    from cleaner.log.topics import Topics
    from cleaner.storage.fs.file_system import FileSystem
    from cleaner.storage.log_dir import LogDir
    from cleaner.storage.which_dir import why_no_log_dir

    fs = FileSystem()
    reason = why_no_log_dir(fs, log_dir)
    if reason is not None:
        new = "" if why_no_log_dir(fs, log_dir, may_be_new=True) else "; `cleaner topics create` makes a log dir"
        raise UsageError(f"{log_dir}: {reason}{new}")
    return Topics(fs, [LogDir(fs, log_dir)], SystemClock())
