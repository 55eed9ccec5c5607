"""
A journal of actions and who ordered them: one JSON object a line, in files of bounded size.

    journal.v1.00000007.jsonl        the highest number is the newest, and the only one that still grows

Files are numbered and never renamed, so a crash during the change to the next file costs no entry; the oldest files are
removed. The version is part of the name: files of another format version are neither read nor removed.

A crash, or a full disk, may leave half a line at the end. The next entry begins on a new line, and readers skip lines
that are not entries.

One process appends. Others may read at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.json_values import JsonValue, NotJsonError, format_json, parse_json
from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors

MAX_LINE_BYTES = 256 << 10
"""Longest entry: far more than a round's figures and a topic's settings."""

_NAME = re.compile(r"journal\.v1\.([0-9]{8})\.jsonl\Z")  # Names on disk, never change.


@dataclass(frozen=True)
class JournalEntry:
    """
    One action.

    Attributes:
        time_ms: wall clock.
        kind: `round`, or the name of a command.
        partition: the partition or topic concerned; None for the whole process.
        details: everything else, as JSON values.
    """

    time_ms: int
    kind: str
    partition: str | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """
        Return the entry's line.

        Raises:
            TypeError, ValueError: details without a JSON form, or too long for a line.
        """
        values = {"time_ms": self.time_ms, "kind": self.kind, "partition": self.partition, "details": self.details}
        line = format_json(values).encode("ascii") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"an entry of {len(line)} bytes, at most {MAX_LINE_BYTES} fit a line")
        return line

    @staticmethod
    def from_line(line: bytes) -> JournalEntry | None:
        """Parse a line; None if it is not an entry, or only a part of one."""
        try:
            values = parse_json(line)
        except NotJsonError:
            return None
        time_ms, kind = values.get("time_ms"), values.get("kind")
        partition, details = values.get("partition"), values.get("details")
        if type(time_ms) is not int or not isinstance(kind, str) or not isinstance(details, dict):
            return None
        if partition is not None and not isinstance(partition, str):
            return None
        return JournalEntry(time_ms, kind, partition, details)


def journal_numbers(fs: FileSystem, state_dir: Path) -> list[int]:
    """List the numbers of a journal's files, the oldest first."""
    matches = (_NAME.match(name) for name in fs.list_dir(state_dir))
    return sorted(int(match.group(1)) for match in matches if match)


def journal_path(state_dir: Path, number: int) -> Path:
    """Name a file of a journal."""
    return state_dir / f"journal.v1.{number:08d}.jsonl"


class Journal:
    """
    Appends entries. Thread-safe.

    Args:
        fs: the file system.
        state_dir: an existing directory.
        clock: gives entries their time.
        max_file_bytes: a new file is begun before one becomes longer.
        kept_files: the most files kept, including the one that grows.
        fsync_every_ms: 0: each entry is on disk when `append` returns. Else the least time between fsyncs; a power cut
            loses the entries since the last one.
    """

    def __init__(
        self,
        fs: FileSystem,
        state_dir: Path,
        clock: Clock,
        *,
        max_file_bytes: int = 8 << 20,
        kept_files: int = 5,
        fsync_every_ms: int = 0,
    ) -> None:
        if kept_files < 1:
            raise ValueError("a journal keeps at least one file")
        self._fs = fs
        self._state_dir = state_dir
        self._clock = clock
        self._max_file_bytes = max_file_bytes
        self._kept_files = kept_files
        self._fsync_every_ns = fsync_every_ms * 1_000_000
        self._lock = concurrency.Lock()
        # All guarded by _lock, as is every change of the files.
        self._synced_at_ns = clock.monotonic_ns() - self._fsync_every_ns
        self._is_synced = False
        self._named = 0  # the file whose name is known to be on disk
        # The file whose fsync failed: its data may be lost even if a later fsync succeeds (C-2), so nothing is added.
        self._distrusted: int | None = None

    def append(self, kind: str, partition: str | None = None, details: Mapping[str, JsonValue] | None = None) -> None:
        """
        Add an entry with the current time.

        Raises:
            TypeError, ValueError: details without a JSON form, or too long; nothing was written.
            NoSpaceError, LogDirOfflineError: the entry may be written or not; later entries are not affected.
        """
        line = JournalEntry(self._clock.now_ms(), kind, partition, details or {}).to_line()
        with self._lock, disk_errors(self._state_dir):
            self._append(line)

    def sync(self) -> None:
        """
        Force all entries to disk.

        Raises:
            LogDirOfflineError: they may not be on disk.
        """
        with self._lock, disk_errors(self._state_dir):
            numbers = journal_numbers(self._fs, self._state_dir)
            if numbers and not self._is_synced:
                with self._fs.open(journal_path(self._state_dir, numbers[-1])) as file:
                    self._fsync(file, numbers[-1])

    def _append(self, line: bytes) -> None:
        numbers = journal_numbers(self._fs, self._state_dir)
        if not numbers:
            self._begin(1, line)
            return
        newest = numbers[-1]
        with self._fs.open(journal_path(self._state_dir, newest), write=True) as file:
            size = file.size()
            is_torn = size > 0 and file.read(1, size - 1) != b"\n"
            has_room = size == 0 or size + is_torn + len(line) <= self._max_file_bytes
            if has_room and newest != self._distrusted:
                self._write(file, newest, b"\n" + line if is_torn else line, size)
                return
            if not self._is_synced and newest != self._distrusted:
                self._fsync(file, newest)
        self._begin(newest + 1, line)
        for number in [*numbers, newest + 1][: -self._kept_files]:
            self._fs.remove(journal_path(self._state_dir, number))

    def _begin(self, number: int, line: bytes) -> None:
        with self._fs.create(journal_path(self._state_dir, number), like=self._state_dir) as file:
            self._write(file, number, line, 0)

    def _write(self, file: File, number: int, data: bytes, position: int) -> None:
        file.write(data, position)
        self._is_synced = False
        if self._clock.monotonic_ns() - self._synced_at_ns >= self._fsync_every_ns:
            self._fsync(file, number)
        if self._named != number:
            self._fs.fsync_dir(self._state_dir)
            self._named = number

    def _fsync(self, file: File, number: int) -> None:
        try:
            file.fsync()
        except CleanerError:
            self._distrusted = number
            raise
        self._is_synced = True
        self._synced_at_ns = self._clock.monotonic_ns()
