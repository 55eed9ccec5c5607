"""
Protocols for what reading a log needs of a storage: list files, their sizes and identities, and read byte ranges.

The local disk (`FileSystem`) is one such storage. Locking, renaming and writing are not included: on other storages, no
process swaps segments while a reader has them open.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol

_PIECE_BYTES = 1 << 20


class FileStatus(Protocol):
    """A file's size and identity, to detect another or a changed file; names as in `os.stat_result`."""

    @property
    def st_dev(self) -> int:
        """Device; any number if there is none."""

    @property
    def st_ino(self) -> int:
        """Unique number of the file on its device."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """Last modification, nanoseconds since 1970."""


class OpenedFile(Protocol):
    """
    An open file: its bytes stay readable after its name is removed. Close it, or use it in a `with` block.

    Raises:
        LogDirOfflineError: from any call, if the storage does not answer.
    """

    path: Path

    def __enter__(self) -> OpenedFile: ...

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None, /
    ) -> None: ...

    def size(self) -> int:
        """Return its current length in bytes."""

    def stat(self) -> FileStatus:
        """Return its status, as `ReadableFiles.stat`."""

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; returns the bytes read, fewer only at the end of the file."""

    def close(self) -> None:
        """Close it; a second call does nothing."""


class ReadableFiles(Protocol):
    """A storage with log dirs. Raises LogDirOfflineError if it does not answer."""

    def list_files(self, path: Path) -> list[str]:
        """Return the names of the files in a directory, sorted. Raises FileNotFoundError."""

    def stat(self, path: Path) -> FileStatus:
        """Return the status of a file or directory. Raises FileNotFoundError."""

    def open(self, path: Path) -> OpenedFile:
        """Open a file for reading. Raises FileNotFoundError."""


def is_zero_from(file: OpenedFile, position: int) -> bool:
    """Tell whether all bytes of a file from a position on are zeros; True at its end. Reads in pieces."""
    while data := file.read(_PIECE_BYTES, position):
        if data.count(0) < len(data):
            return False
        position += len(data)
    return True
