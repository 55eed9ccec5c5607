"""What a file looked like when it was read, to see later, without reading it, whether it changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import FileSystem


class FileState(NamedTuple):
    """
    What `stat` says of a file or directory, links followed.

    The time of the last change of the inode is among it: a copy that keeps its times (`cp -p`) is seen by that.
    """

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def file_state(fs: FileSystem, path: Path) -> FileState | None:
    """Return the state of a file or directory; None when there is none, or it cannot be asked."""
    try:
        found = fs.stat_followed(path)
    except (OSError, CleanerError):
        return None
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
