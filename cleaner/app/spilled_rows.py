"""A file for rows that do not fit into memory: it disappears with the process, however that ends."""

from __future__ import annotations

import uuid
from pathlib import Path

from cleaner.storage.fs.file_system import File, FileSystem


def make_unlinked(fs: FileSystem, temp_dir: Path, purpose: str) -> File:
    """Make a file without a name in `temp_dir`; `purpose` begins the name of the directory it has for a moment."""
    directory = temp_dir / f"{purpose}-{uuid.uuid4().hex}"
    # While it has a name no other user may reach it: `temp_dir` may be open to all, like `/tmp`.
    fs.make_dir(directory, 0o700)
    try:
        file = fs.create(directory / "rows", like=None)
        fs.remove(directory / "rows")
    finally:
        fs.remove_dir(directory)
    return file
