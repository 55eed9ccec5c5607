"""
A journal of what was done and by whose order: one JSON object a line, in files of bounded size.

    journal.v1.00000007.jsonl        the highest number is the newest, and the only one that still grows

Files are numbered and never renamed, so no crash while one follows the other can cost an entry; the oldest are removed.
The version is part of the name: files of another release are neither read nor removed.

A crash, or a full disk, may leave half a line at the end. The next entry begins on a line of its own, and readers pass
over what is no entry.

One process appends. Others may read meanwhile.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.errors import CleanerError
from cleaner.state.json_text import JsonValue, NotJsonError, format_json, parse_json
from cleaner.storage.fs.file_system import File, FileSystem

MAX_LINE_BYTES = 256 << 10
"""Longest entry: far more than a round's figures and a topic's settings."""

_NAME = re.compile(r"journal\.v1\.([0-9]{8})\.jsonl\Z")  # Names on disk, fixed for ever.


@dataclass(frozen=True)
class JournalEntry:
    """
    One thing that was done.

    Attributes:
        time_ms: wall clock.
        kind: what it was: `round`, or the name of a command.
        partition: the partition or topic it was done to; None for the whole process.
        details: all else, as JSON values.
    """

    time_ms: int
    kind: str
    partition: str | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """
        Return the entry's line.

        Raises:
            TypeError, ValueError: details that are no JSON, or more than fits a line.
        """
        values = {"time_ms": self.time_ms, "kind": self.kind, "partition": self.partition, "details": self.details}
        line = format_json(values).encode("ascii") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"an entry of {len(line)} bytes, at most {MAX_LINE_BYTES} fit a line")
        return line

    @staticmethod
    def from_line(line: bytes) -> JournalEntry | None:
        """Read a line; None when it is none of ours, or only a part of one."""
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
        state_dir: a directory that is there.
        clock: gives entries their time.
        max_file_bytes: a file that would become longer is followed by another one.
        kept_files: how many files there are at most, the one that grows included.
        fsync_every_ms: 0: each entry is on disk when `append` returns. Else fsyncs are at least so far apart, and a
            power cut takes the entries since the last one.
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
        self._lock = threading.Lock()
        # All guarded by _lock, as is every change of the files.
        self._synced_at_ns = clock.monotonic_ns() - self._fsync_every_ns
        self._is_synced = False
        self._named = 0  # the file whose name is known to be on disk
        # Whose fsync failed: what it holds may be lost whatever a later one says (C-2), so nothing is added to it.
        self._distrusted: int | None = None

    def append(self, kind: str, partition: str | None = None, details: Mapping[str, JsonValue] | None = None) -> None:
        """
        Add an entry with the time of now.

        Raises:
            TypeError, ValueError: details that are no JSON, or too many; nothing was written.
            NoSpaceError, LogDirOfflineError: the entry may be there or not; the next one is not harmed by it.
        """
        line = JournalEntry(self._clock.now_ms(), kind, partition, details or {}).to_line()
        with self._lock:
            self._append(line)

    def sync(self) -> None:
        """
        Have all entries on disk when this returns.

        Raises:
            LogDirOfflineError: they may not be.
        """
        with self._lock:
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
