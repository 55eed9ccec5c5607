"""A file for rows that do not fit into memory: it disappears with the process, however that ends."""

from __future__ import annotations

from pathlib import Path

from cleaner.storage.fs.file_system import File, FileSystem, real_path
from cleaner.storage.lock.scratch_dir import scratch_dir


def make_unlinked(fs: FileSystem, temp_dir: Path, purpose: str) -> File:
    """Make a file without a name in `temp_dir`; `purpose` begins the name of the directory it has for a moment."""
    # While it has a name no other user may reach it: `temp_dir` may be open to all, like `/tmp`.
    with scratch_dir(fs, real_path(temp_dir), f"{purpose}-") as directory:
        file = fs.create(directory / "rows", like=None)
        try:
            fs.remove(directory / "rows")
        except BaseException:
            file.close()
            raise
    return file
