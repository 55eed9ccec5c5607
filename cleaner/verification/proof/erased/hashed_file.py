"""A file of which every byte is hashed when it is first read, whatever the order of reads."""

from __future__ import annotations

import hashlib

from cleaner.errors import LogChangedError
from cleaner.storage.fs.readable import OpenedFile

_STEP_BYTES = 1 << 20


class HashedFile:
    """
    Args:
        file: the open file.
        size: bytes of it to hash.
    """

    def __init__(self, file: OpenedFile, size: int) -> None:
        self.path = file.path
        self._file = file
        self._size = size
        self._hashed = 0
        self._sum = hashlib.sha256()

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes only at the end of the file."""
        if position > self._hashed:
            self._hash_to(position)
        got = self._file.read_into(buffer, position)
        end = min(position + got, self._size)
        if end > self._hashed:
            self._sum.update(buffer[self._hashed - position : end - position])
            self._hashed = end
        return got

    def finish(self) -> str:
        """Hash what was not read; returns the SHA-256 as hexadecimal digits."""
        self._hash_to(self._size)
        return self._sum.hexdigest()

    def _hash_to(self, position: int) -> None:
        buffer = memoryview(bytearray(min(_STEP_BYTES, max(0, position - self._hashed))))
        while self._hashed < position:
            part = buffer[: position - self._hashed]
            got = self._file.read_into(part, self._hashed)
            self._sum.update(part[:got])
            self._hashed += got
            if got < len(part):
                raise LogChangedError(f"{self.path}: the file became shorter while it was read")
