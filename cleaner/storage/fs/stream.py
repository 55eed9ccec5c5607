"""A file of the file system as a stream, for libraries that read or write one."""

from __future__ import annotations

import io

from cleaner.storage.fs.open_file import File


class Stream(io.RawIOBase):
    """
    See the head of the file; closing it leaves the file open.

    Attributes:
        discards: nothing more is written.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0
        self.discards = False

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def writable(self) -> bool:
        """Return that it is."""
        return True

    def seekable(self) -> bool:
        """Return that it is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        self._at = offset + (0, self._at, self._file.size())[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer."""
        count = self._file.read_into(memoryview(buffer).cast("B"), self._at)
        self._at += count
        return count

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        """Write all of it."""
        view = memoryview(data).cast("B")
        if not self.discards:
            self._file.write(view, self._at)
        self._at += len(view)
        return len(view)
