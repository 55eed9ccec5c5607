"""
What reading a log asks of where its files are: to list them, their sizes, which file one is, and a range of its bytes.

The local disk is one such place (`FileSystem`). Locking, renaming and writing are not asked for: on another one nobody
swaps segments under a reader.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol


class FileStatus(Protocol):
    """A file's size, and what tells whether it is the same one, unchanged; named as in `os.stat_result`."""

    @property
    def st_dev(self) -> int:
        """Device; any number where there is none."""

    @property
    def st_ino(self) -> int:
        """Number that no other file of the device has."""

    @property
    def st_size(self) -> int:
        """Bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """When it was changed last, nanoseconds since 1970."""


class OpenedFile(Protocol):
    """
    An open file: its bytes stay readable when its name goes. Close it, or use it in a `with` block.

    Raises:
        LogDirOfflineError: any call, when the storage does not answer.
    """

    path: Path

    def __enter__(self) -> OpenedFile: ...

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None, /
    ) -> None: ...

    def size(self) -> int:
        """Return its length in bytes, as of now."""

    def stat(self) -> FileStatus:
        """Return what `ReadableFiles.stat` says of it."""

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; returns the bytes read, fewer only at the end of the file."""

    def close(self) -> None:
        """Close it; a second call does nothing."""


class ReadableFiles(Protocol):
    """A place with log dirs. Raises LogDirOfflineError when it does not answer."""

    def list_files(self, path: Path) -> list[str]:
        """Return the names of the files in a directory, sorted. Raises FileNotFoundError."""

    def stat(self, path: Path) -> FileStatus:
        """Return the status of a file or directory. Raises FileNotFoundError."""

    def open(self, path: Path) -> OpenedFile:
        """Open a file for reading. Raises FileNotFoundError."""
