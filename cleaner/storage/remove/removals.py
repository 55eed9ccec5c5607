"""
Removes expired segments and deleted topics once their delay has passed.

During the delay, readers that have the files open can finish. Nothing is remembered across a restart: waiting files are
found by their names when a log dir is opened, and the delay starts again; loading a log removes its `.deleted` files at
once (R-630).

Source: rules R-105, R-610.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import FileSystem

_NANOS_PER_MILLI = 1_000_000
_RETRY_NANOS = 60_000_000_000


class Removal(NamedTuple):
    """Files of a partition's directory, or (None) all of it, and when to remove them (monotonic clock)."""

    due_ns: int
    directory: Path
    files: tuple[str, ...] | None


class Removals:
    """
    The files and directories waiting to be removed. Thread-safe.

    Args:
        fs: the file system.
        clock: delays go by its monotonic clock.
    """

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._lock = concurrency.RLock()  # reentrant for signal handlers
        self._waiting: list[Removal] = []  # guarded by _lock

    def add_files(self, directory: Path, files: tuple[str, ...], delay_ms: int) -> None:
        """Remove files of a partition's directory later; files that are gone by then are fine."""
        self._add(directory, files, delay_ms)

    def add_directory(self, directory: Path, delay_ms: int) -> None:
        """Remove a deleted partition's directory later."""
        self._add(directory, None, delay_ms)

    def _add(self, directory: Path, files: tuple[str, ...] | None, delay_ms: int) -> None:
        due_ns = self._clock.monotonic_ns() + delay_ms * _NANOS_PER_MILLI
        with self._lock:
            self._waiting.append(Removal(due_ns, directory, files))

    @property
    def due_ns(self) -> int | None:
        """When the next removal is due, by the monotonic clock; None: nothing waits."""
        with self._lock:
            return min((removal.due_ns for removal in self._waiting), default=None)

    def files_of(self, directory: Path) -> set[str]:
        """Return the waiting files of a partition's directory."""
        with self._lock:
            return {file for removal in self._waiting if removal.directory == directory for file in removal.files or ()}

    def take_due(self, log_dir: Path | None = None) -> list[Removal]:
        """Take the removals that are due now, in one log dir or (None) in all; they no longer wait."""
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
        """Put back removals that were taken and could not be made."""
        with self._lock:
            self._waiting.extend(removals)

    def carry_out(self, removal: Removal) -> None:
        """
        Make a removal that was taken; a directory that is already gone is fine.

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
        Make all removals that are due; one that fails is made a minute later, or at the next start.

        Raises:
            LogDirOfflineError: the disk; the first error, after all have been tried.
        """
        waiting, failure = self.take_due(), None
        try:
            for removal in list(waiting):
                try:
                    self.carry_out(removal)
                except CleanerError as error:
                    failure = failure or error
                else:
                    waiting.remove(removal)
        finally:
            again_ns = self._clock.monotonic_ns() + _RETRY_NANOS
            self.put_back(removal._replace(due_ns=again_ns) for removal in waiting)
        if failure is not None:
            raise failure


def remove_directory(fs: FileSystem, directory: Path) -> None:
    """Remove the files in a partition's directory, and the directory unless it contains sub-directories."""
    fs.remove_all(directory, fs.list_files(directory))
    if not fs.list_dir(directory):
        fs.remove_dir(directory)
        fs.fsync_dir(directory.parent)
