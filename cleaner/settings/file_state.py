"""The state of a file when it was read, to detect a later change without reading it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import FileSystem


class FileState(NamedTuple):
    """
    The `stat` of a file or directory, links followed.

    It includes the time of the inode's last change, which also detects a copy that keeps its times (`cp -p`).
    """

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


UNREADABLE = FileState(0, 0, 0, 0)
"""Of what may be there, and its status cannot be read: equal to no state from before or after that."""


def file_state(fs: FileSystem, path: Path) -> FileState | None:
    """Return the state of a file or directory; None if it does not exist, `UNREADABLE` if the system does not say."""
    try:
        found = fs.stat_followed(path)
    except FileNotFoundError:
        return None
    except (OSError, CleanerError) as error:
        return None if isinstance(getattr(error, "cause", error), NotADirectoryError) else UNREADABLE
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
