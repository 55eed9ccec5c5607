"""A disk with little room."""

from __future__ import annotations

from pathlib import Path

from cleaner.storage.fs.file_system import FileSystem


class SmallDisk(FileSystem):
    """A disk with so many bytes left, whatever is written."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes

    def free_bytes(self, path: Path) -> int:
        """Return the room the test gave it."""
        return self._free_bytes
