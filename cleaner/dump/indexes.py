"""Shows the entries of index files, and checks them against their log as Kafka's own dump does."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cleaner.dump.dump_items import Viewer
from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.headers import HeaderReader
from cleaner.storage.fs.readable import OpenedFile, ReadableFiles
from cleaner.storage.segment import names
from cleaner.storage.segment.batch_source import checked_batches
from cleaner.storage.segment.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    Entries,
    lookup_position,
    read_entries,
    unknown_versions,
)

_HEAD = struct.Struct(">q8xb6xi")  # base offset, magic, last offset delta
_MAGIC_2 = 2
_NOT_FOUND = -1


@dataclass
class IndexDump:
    """
    Shows the index files of segments.

    Attributes:
        sanity_only: say only whether an index would pass a broker's check at its start.
        verify_only: report inconsistencies, show no entries.
        limit_bytes: the most a batch may unpack to.
    """

    fs: ReadableFiles
    viewer: Viewer
    sanity_only: bool
    verify_only: bool
    limit_bytes: int
    _mistakes: dict[str, list[str]] = field(default_factory=dict)

    def show_offset_index(self, path: Path, shown_path: str) -> None:
        """Show an offset index. Raises FileNotFoundError: it or its log is missing."""
        base = names.offset_of(path.name)
        with self.fs.open(path.with_suffix(names.LOG)) as log:
            entries, trouble = self._entries(path, OFFSET_ENTRY)
            if not len(entries):
                self.viewer.on_verdict(shown_path, f"{shown_path} is empty.", "empty")
                return
            if self.sanity_only:
                self._judge(shown_path, entries, trouble)
                return
            heading = f"Mismatches in :{path.absolute()}"
            found: list[tuple[int, int]] = []
            for slot, (relative, position) in enumerate(entries.tolist()):
                if relative == 0 and slot:
                    break  # unused preallocated room: the index was not closed
                offset = base + relative
                in_log = _last_offset_at(log, position)
                if in_log != offset:
                    found.append((offset, in_log))
                if not self.verify_only:
                    self.viewer.on_entry("offset", offset=offset, position=position)
            lines = [
                f"  Index offset: {offset}, log offset: {in_log}" for offset, in_log in sorted(found, reverse=True)
            ]
            self._note(heading, *lines)

    def show_time_index(self, path: Path, shown_path: str) -> None:
        """Show a time index. Raises FileNotFoundError: it, its log or its offset index is missing."""
        base = names.offset_of(path.name)
        with self.fs.open(path.with_suffix(names.LOG)) as log:
            offsets, _ = self._entries(path.with_suffix(names.INDEX), OFFSET_ENTRY)
            entries, trouble = self._entries(path, TIME_ENTRY)
            if self.sanity_only:
                if len(entries) and entries["timestamp"][-1] < entries["timestamp"][0]:
                    trouble = trouble or "its last timestamp is below its first"
                self._judge(shown_path, entries, trouble)
                return
            places = _Places(log, self.limit_bytes)
            previous = -1
            for slot, (timestamp, relative) in enumerate(entries.tolist()):
                if relative == 0 and slot:
                    break
                offset = base + relative
                start = lookup_position(offsets, relative)
                self._hold_time(path, places, start, offset, timestamp, previous)
                if not self.verify_only:
                    self.viewer.on_entry("time", timestamp=timestamp, offset=offset)
                previous = timestamp

    def _hold_time(self, path: Path, places: _Places, start: int, offset: int, timestamp: int, previous: int) -> None:
        found = places.last_offset_from(start, offset)
        if found != offset:
            line = f"Indexed offset: {offset}, found log offset: {found}"
            self._note(f"The following indexed offsets are not found in :{path.absolute()}", line)
            return
        latest = places.latest_timestamp(offset)
        if latest != timestamp:
            line = f"  Index timestamp: {timestamp}, log timestamp: {latest}"
            self._note(f"Found timestamp mismatch in :{path.absolute()}", line)
        if previous >= timestamp:
            line = f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
            self._note(f"Found out of order timestamp in :{path.absolute()}", line)

    def show_txn_index(self, path: Path) -> None:
        """Show a transaction index, and report entries of an unknown version; a partial entry at its end is ignored."""
        with self.fs.open(path) as file:
            data = file.read(file.size(), 0)
        entries = np.frombuffer(data, TXN_ENTRY, len(data) // TXN_ENTRY.itemsize)
        heading = f"Entries of an unknown version in :{path.absolute()}"
        for row in np.flatnonzero(unknown_versions(entries)).tolist():
            self._note(heading, f"  Position: {row * TXN_ENTRY.itemsize}, version: {entries['version'][row]}")
        for version, producer_id, first_offset, last_offset, last_stable_offset in entries.tolist():
            self.viewer.on_entry(
                "transaction",
                version=version,
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=last_offset,
                last_stable_offset=last_stable_offset,
            )

    def finish(self) -> None:
        """Report the inconsistencies, after all files were shown."""
        for heading, lines in self._mistakes.items():
            self.viewer.on_mistake(heading, lines)

    def _note(self, heading: str, *lines: str) -> None:
        if lines:
            self._mistakes.setdefault(heading, []).extend(lines)

    def _entries(self, path: Path, entry: np.dtype[np.void]) -> tuple[Entries, str | None]:
        trouble: list[str] = []

        def note(error: CorruptIndexError) -> None:
            trouble.append(error.reason)

        return read_entries(self.fs, path, entry, note), next(iter(trouble), None)

    def _judge(self, shown_path: str, entries: Entries, trouble: str | None) -> None:
        if len(entries) and entries["relative_offset"][-1] < 0:
            trouble = trouble or "its last offset is below the segment's base offset"
        if trouble is None:
            self.viewer.on_verdict(shown_path, f"{shown_path} passed sanity check.", "passed")
        else:
            self.viewer.on_verdict(shown_path, f"{shown_path} did not pass the sanity check: {trouble}", "failed")


def _last_offset_at(log: OpenedFile, position: int) -> int:
    """Return the last offset of the batch at a position; -1 if no header fits there."""
    head = log.read(_HEAD.size, position) if position >= 0 else b""
    if len(head) < _HEAD.size:
        return _NOT_FOUND
    base_offset, magic, last_delta = _HEAD.unpack(head)
    return int(base_offset) + (int(last_delta) if magic == _MAGIC_2 else 0)


class _Places:
    """The positions of a log's batches, up to the first unreadable header."""

    def __init__(self, log: OpenedFile, limit_bytes: int) -> None:
        self._log = log
        self._limit_bytes = limit_bytes
        parts = []
        try:
            for chunk in HeaderReader(log, size=log.size()):
                parts.append(np.stack([chunk.batches[name] for name in ("position", "size", "last_offset")]))
        except CorruptBatchError:
            pass
        self._table = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), np.int64)

    def last_offset_from(self, position: int, offset: int) -> int:
        """Return the last offset of the first batch from a position on that reaches an offset; -1 without one."""
        row = self._row(position, offset)
        return _NOT_FOUND if row is None else int(self._table[2][row])

    def _row(self, position: int, offset: int) -> int | None:
        first = int(np.searchsorted(self._table[0], position))
        rows = np.flatnonzero(self._table[2][first:] >= offset)
        return first + int(rows[0]) if len(rows) else None

    def latest_timestamp(self, last_offset: int) -> int:
        """Return the largest timestamp of the records of the batch that ends at an offset; -1 if it cannot be read."""
        row = self._row(0, last_offset)
        if row is None:
            return -1
        from cleaner.format.layout import lay_out  # loads the kernels
        from cleaner.format.records import Unpacker

        start, size = (int(self._table[column][row]) for column in (0, 1))
        unpacker = Unpacker(self._limit_bytes)
        latest = -1
        try:
            for chunk in checked_batches(self._log, size=start + size, start=start):
                for block in unpacker.blocks(self._log.path, chunk):
                    skipped = np.zeros(len(block.batches), np.uint8)
                    times = lay_out(self._log.path, block, skipped, -(2**63), 2**63 - 1).timestamps_ms
                    latest = max(latest, int(times.max(initial=-1)))
        except CorruptBatchError:
            return -1
        return latest
