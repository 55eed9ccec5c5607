"""
Overwrites files before they are removed, so that their blocks are not left with what was in them.

On a file system that writes in place (ext4, XFS without shared blocks) the zeros take the place of the content; then
the blocks are given back by punching a hole, which on a disk that is mounted with `discard` also tells the device. One
that writes elsewhere (Btrfs, ZFS, a snapshot, a disk that moves its blocks) keeps old blocks whatever is done here.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base import concurrency

if TYPE_CHECKING:
    from cleaner.storage.fs.file_system import FileSystem

_PIECE = bytes(1 << 20)


class Shredder:
    """
    Overwrites what a file system is about to remove (`FileSystem.shredding`), and counts.

    Attributes:
        unpunched: one that was overwritten, on a file system that cannot punch holes; None: there was none.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self.unpunched: Path | None = None
        self._lock = concurrency.Lock()

    def take_bytes(self) -> int:
        """Return how many bytes were overwritten since the last call."""
        with self._lock:
            count, self._bytes = self._bytes, 0
        return count

    def overwrite(self, fs: FileSystem, path: Path) -> None:
        """
        Overwrite a file with zeros, durably, and free its blocks; a missing one is fine.

        One that has another name is left alone: somebody keeps it.

        Raises:
            LogDirOfflineError, NoSpaceError: the disk refused; the file is still there.
        """
        try:
            about = fs.stat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISREG(about.st_mode) or not about.st_size or about.st_nlink > 1:
            return
        with fs.open(path, write=True) as file:
            for position in range(0, about.st_size, len(_PIECE)):
                file.write(memoryview(_PIECE)[: about.st_size - position], position)
            file.fsync()
            is_punched = file.punch(about.st_size)
        with self._lock:
            self._bytes += about.st_size
            if not is_punched:
                self.unpunched = path
