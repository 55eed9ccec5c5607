"""Reads a journal, the newest entry first, without keeping a file in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleaner.state.journal import MAX_LINE_BYTES, JournalEntry, journal_numbers, journal_path
from cleaner.storage.fs.file_system import File, FileSystem

_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True)
class JournalFilter:
    """
    Which entries are wanted; None: no restriction.

    Attributes:
        kinds: entries of these kinds.
        partition: a partition (`orders-0`), or a topic (`orders`) with all of its partitions.
        since_ms: from this time on.
        until_ms: before this time.
    """

    kinds: frozenset[str] | None = None
    partition: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, entry: JournalEntry) -> bool:
        """Tell whether an entry is wanted."""
        if self.kinds is not None and entry.kind not in self.kinds:
            return False
        if self.partition is not None and not self._is_of_partition(entry):
            return False
        if self.since_ms is not None and entry.time_ms < self.since_ms:
            return False
        return self.until_ms is None or entry.time_ms < self.until_ms

    def _is_of_partition(self, entry: JournalEntry) -> bool:
        if entry.partition is None:
            return False
        topic, _, number = entry.partition.rpartition("-")
        return entry.partition == self.partition or (topic == self.partition and number.isdecimal())


class JournalReader:
    """
    Reads the journal of a state directory, also while it is being written.

    Attributes:
        unreadable_lines: lines read so far that were not entries.
    """

    def __init__(self, fs: FileSystem, state_dir: Path) -> None:
        self.unreadable_lines = 0
        self._fs = fs
        self._state_dir = state_dir

    def entries(self, wanted: JournalFilter | None = None) -> Iterator[JournalEntry]:
        """
        Yield entries, the newest first.

        Raises:
            LogDirOfflineError: the disk failed, or a file of the journal is not a regular file.
        """
        for number in reversed(journal_numbers(self._fs, self._state_dir)):
            try:
                file = self._fs.open(journal_path(self._state_dir, number))
            except FileNotFoundError:
                continue  # the oldest file was removed since the listing
            with file:
                for line in _lines_backwards(file):
                    entry = JournalEntry.from_line(line)
                    if entry is None:
                        self.unreadable_lines += 1
                    elif wanted is None or wanted.matches(entry):
                        yield entry


def _lines_backwards(file: File) -> Iterator[bytes]:
    """Yield a file's lines that are not empty, the last one first."""
    end = file.size()
    rest = b""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        first, *lines = (file.read(end - start, start) + rest).split(b"\n")
        yield from (line for line in reversed(lines) if line)
        # A longer line is not an entry; the zero byte makes sure that its beginning is not read as one either.
        rest = first if len(first) <= MAX_LINE_BYTES else b"\0"
        end = start
    if rest:
        yield rest
