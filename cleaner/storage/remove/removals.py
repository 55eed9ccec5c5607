"""
Removing what was set aside: segments that expired and topics that were deleted, once their delay has passed.

Readers who have the files open may finish meanwhile. Nothing is remembered across a restart: what waits is found by its
name when a log dir is opened, and its delay begins anew; a load of a log removes its `.deleted` files at once (R-630).

Source: rules R-105, R-610.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cleaner.base.clock import Clock
from cleaner.storage.fs.file_system import FileSystem

_NANOS_PER_MILLI = 1_000_000


class Removal(NamedTuple):
    """Files of a partition's directory, or (None) all of it, and when they may go (monotonic clock)."""

    due_ns: int
    directory: Path
    files: tuple[str, ...] | None


class Removals:
    """
    What waits to be removed. Thread-safe.

    Args:
        fs: the file system.
        clock: delays go by its monotonic clock.
    """

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[Removal] = []  # guarded by _lock

    def add_files(self, directory: Path, files: tuple[str, ...], delay_ms: int) -> None:
        """Have files of a partition's directory removed later; those that are gone by then are fine."""
        self._add(directory, files, delay_ms)

    def add_directory(self, directory: Path, delay_ms: int) -> None:
        """Have a deleted partition's directory removed later."""
        self._add(directory, None, delay_ms)

    def _add(self, directory: Path, files: tuple[str, ...] | None, delay_ms: int) -> None:
        due_ns = self._clock.monotonic_ns() + delay_ms * _NANOS_PER_MILLI
        with self._lock:
            self._waiting.append(Removal(due_ns, directory, files))

    @property
    def due_ns(self) -> int | None:
        """When the next ones may go, by the monotonic clock; None: nothing waits."""
        with self._lock:
            return min((removal.due_ns for removal in self._waiting), default=None)

    def files_of(self, directory: Path) -> set[str]:
        """Return the files of a partition's directory that wait."""
        with self._lock:
            return {file for removal in self._waiting if removal.directory == directory for file in removal.files or ()}

    def take_due(self, log_dir: Path | None = None) -> list[Removal]:
        """Return what may go now, in one log dir or (None) in all; from now on it does not wait."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            due = [
                removal
                for removal in self._waiting
                if removal.due_ns <= now_ns and log_dir in (None, removal.directory.parent)
            ]
            self._waiting = [removal for removal in self._waiting if removal not in due]
        return due

    def put_back(self, removals: Iterable[Removal]) -> None:
        """Let what was taken, and could not be removed, go on waiting."""
        with self._lock:
            self._waiting.extend(removals)

    def carry_out(self, removal: Removal) -> None:
        """
        Remove what was taken; a directory that is gone already is fine.

        Raises:
            LogDirOfflineError: the disk.
        """
        if not self._fs.exists(removal.directory):
            return
        if removal.files is not None:
            self._fs.remove_all(removal.directory, removal.files)
        else:
            remove_directory(self._fs, removal.directory)

    def remove_due(self) -> None:
        """
        Remove all that may go now.

        Raises:
            LogDirOfflineError: the disk; what it refused is left for the next start, which finds it again.
        """
        for removal in self.take_due():
            self.carry_out(removal)


def remove_directory(fs: FileSystem, directory: Path) -> None:
    """Remove a partition's directory and the files in it; one with directories in it is left, empty but for them."""
    fs.remove_all(directory, fs.list_files(directory))
    if not fs.list_dir(directory):
        fs.remove_dir(directory)
        fs.fsync_dir(directory.parent)
