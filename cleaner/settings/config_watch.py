"""
Detects changes of the `--config` file (`cleaner.config.watch=true`).

It polls instead of using inotify: that works on network file systems too, and for a ConfigMap of Kubernetes, where the
file is a link to a link and the link in the middle is replaced.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.errors import ConfigError
from cleaner.settings.file_state import FileState, file_state
from cleaner.settings.files import read_config_bytes
from cleaner.storage.fs.file_system import FileSystem

SETTLED_NS = 1_000_000_000


def fingerprint(data: bytes) -> bytes:
    """Return a hash of a file's content."""
    return hashlib.sha256(data).digest()


class ConfigWatch:
    """
    See the module's docstring. One thread only.

    Args:
        fs: the file system.
        path: the file.
        known: fingerprint of the content in force.
        clock: measures how long a content has stayed the same.
    """

    def __init__(self, fs: FileSystem, path: Path, known: bytes, clock: Clock) -> None:
        self._fs = fs
        self._path = path
        self._known = known
        self._clock = clock
        self._state: FileState | None = None
        self._unsettled: tuple[bytes, FileState, int] | None = None

    def has_changed(self) -> bool:
        """
        Return True once for each change: the file has another content, which has stayed the same for a second.

        A file that is being written, is gone or cannot be read has not changed yet; a new modification time alone is
        not a change.
        """
        state = file_state(self._fs, self._path)
        if state is None or (state == self._state and self._unsettled is None):
            return False
        try:
            content = fingerprint(read_config_bytes(self._fs, self._path))
        except ConfigError:
            return False
        if content == self._known:
            self._state, self._unsettled = state, None
            return False
        now_ns = self._clock.monotonic_ns()
        if self._unsettled is None or self._unsettled[:2] != (content, state):
            self._unsettled = (content, state, now_ns)
            return False
        if now_ns - self._unsettled[2] < SETTLED_NS:
            return False
        self._known, self._state, self._unsettled = content, state, None
        return True
