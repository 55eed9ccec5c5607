"""Makes a directory whose name a power cut does not take back."""

from __future__ import annotations

import contextlib
from pathlib import Path

from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem


def make_durable_dir(fs: FileSystem, path: Path, mode: int) -> None:
    """
    Make a directory and force its name to disk; one that is there is fine, whatever its mode.

    An empty one may be left by an attempt that could not force its name to disk: that is done again. Nothing is put
    into a directory before, so one with anything in it has a durable name.

    Args:
        fs: the file system.
        path: the directory; its parent must exist.
        mode: its permission bits if it is made.
    Raises:
        LogDirOfflineError, NoSpaceError: the disk, or something else has this name.
    """
    if not fs.exists(path):
        with contextlib.suppress(FileExistsError):  # another process was faster
            fs.make_dir(path, mode)
            fs.fsync_dir(path.parent)
            return
    try:
        if not fs.list_dir(path):
            fs.fsync_dir(path.parent)
    except LogDirOfflineError as error:
        if not isinstance(error.cause, PermissionError):
            raise
        # Somebody else made it, in a directory that we may not read.
