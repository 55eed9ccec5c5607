"""
One segment: a `.log` and its index files, read on demand and not kept in memory, except the shortest offset indexes.

A `Segment` is cheap (names, size, mtime), so that thousands of partitions can be listed; everything that opens a file
is a method.

Source: rules R-120, R-310 to R-324, R-330, R-416, R-537; `LogSegment.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptIndexError
from cleaner.format.chunks import Chunk, ReadBuffer
from cleaner.kernels.batch_header import HEADER_BYTES, max_timestamp_of
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment import names
from cleaner.storage.segment.batch_source import BatchSource, checked_batches
from cleaner.storage.segment.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    Aborts,
    Entries,
    abort_rows,
    lookup_position,
    read_offset_index,
    read_time_index,
    read_txn_index,
)

_NANOS_PER_MILLI = 1_000_000
# Enough for a segment of 1 MiB, the smallest that a broker's settings allow.
_SHORT_INDEX_BYTES = 2048


@dataclass(frozen=True)
class SegmentIndexes:
    """
    The content of a segment's index files, rebuilt from its log.

    Attributes:
        offsets: OFFSET_ENTRY rows.
        times: TIME_ENTRY rows.
        txns: None leaves the `.txnindex` file as it is.
    """

    offsets: Entries
    times: Entries
    txns: Sequence[AbortedTxn] | None

    @staticmethod
    def empty() -> SegmentIndexes:
        """Return the indexes of a segment without records."""
        return SegmentIndexes(np.empty(0, OFFSET_ENTRY), np.empty(0, TIME_ENTRY), ())


class Segment:
    """
    A segment of a log.

    Attributes:
        directory: the partition's directory.
        base_offset: lower bound of its offsets, in its file names.
        size: bytes of the `.log` file when it was listed.
        mtime_ns: modification time of the `.log` file, nanoseconds.
        inode: of the `.log` file; 0 if its status was not read.
        rebuilt: indexes that replace those on disk until they are written (`LoadedLog.settle`), else None.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        base_offset: int,
        *,
        size: int,
        mtime_ns: int,
        inode: int = 0,
        source: BatchSource = checked_batches,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.mtime_ns = mtime_ns
        self.inode = inode
        self._fs = fs
        self._source = source
        self._rebuilt: SegmentIndexes | None = None
        # Kept because loading, mapping and recopying thousands of tiny segments would each open every index.
        self._short_index: Entries | None = None
        self._index_sizes: dict[str, int] = {}

    @staticmethod
    def open(fs: FileSystem, directory: Path, base_offset: int, *, source: BatchSource = checked_batches) -> Segment:
        """Read the status of a segment's `.log`; its batches will come from `source`. Raises FileNotFoundError."""
        about = fs.stat(directory / names.segment_file_name(base_offset, names.LOG))
        return Segment(
            fs,
            directory,
            base_offset,
            size=about.st_size,
            mtime_ns=about.st_mtime_ns,
            inode=about.st_ino,
            source=source,
        )

    def __repr__(self) -> str:
        return f"Segment({self.log_path}, {self.size} bytes)"

    @property
    def rebuilt(self) -> SegmentIndexes | None:
        """Indexes that replace those on disk."""
        return self._rebuilt

    @rebuilt.setter
    def rebuilt(self, indexes: SegmentIndexes | None) -> None:
        """Replace them, and forget what was read from those on disk."""
        self._rebuilt = indexes
        self.forget()

    def forget(self) -> None:
        """Drop cached data of the index files, because they were changed."""
        self._short_index = None
        self._index_sizes.clear()

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with one of `names.SEGMENT_SUFFIXES`."""
        return self.directory / names.segment_file_name(self.base_offset, suffix)

    @cached_property
    def log_path(self) -> Path:
        """The `.log` file."""
        return self.path(names.LOG)

    @cached_property
    def index_path(self) -> Path:
        """The `.index` file."""
        return self.path(names.INDEX)

    @cached_property
    def time_index_path(self) -> Path:
        """The `.timeindex` file."""
        return self.path(names.TIME_INDEX)

    @cached_property
    def txn_index_path(self) -> Path:
        """The `.txnindex` file, which exists only once a transaction was aborted."""
        return self.path(names.TXN_INDEX)

    @property
    def mtime_ms(self) -> int:
        """Modification time of the `.log` file, milliseconds."""
        return self.mtime_ns // _NANOS_PER_MILLI

    @property
    def index_bytes(self) -> int:
        """Bytes in use in the offset index; a file counts as used up to its last whole entry, zeros too (R-310)."""
        if self.rebuilt is not None:
            return self.rebuilt.offsets.nbytes
        return self._whole_entries_bytes(names.INDEX, OFFSET_ENTRY.itemsize)

    @property
    def time_index_bytes(self) -> int:
        """Bytes in use in the time index (R-310)."""
        if self.rebuilt is not None:
            return self.rebuilt.times.nbytes
        return self._whole_entries_bytes(names.TIME_INDEX, TIME_ENTRY.itemsize)

    def _whole_entries_bytes(self, suffix: str, entry_bytes: int) -> int:
        size = self._index_sizes.get(suffix)
        if size is None:
            try:
                size = self._fs.stat(self.path(suffix)).st_size
            except FileNotFoundError:
                size = 0
            self._index_sizes[suffix] = size
        return size - size % entry_bytes

    def offset_index(self) -> Entries:
        """
        Read the offset index, without zeros at its end; a missing one is empty.

        Raises:
            CorruptIndexError: see `read_offset_index`.
        """
        if self.rebuilt is not None:
            return self.rebuilt.offsets
        if self._short_index is not None:
            return self._short_index
        zeros: list[int] = []
        try:
            entries = read_offset_index(self._fs, self.index_path, self.size, on_zeros=zeros.append)
        except FileNotFoundError:
            return np.empty(0, OFFSET_ENTRY)
        if not zeros:
            self._index_sizes[names.INDEX] = entries.nbytes
        if entries.nbytes <= _SHORT_INDEX_BYTES:
            self._short_index = entries = entries.copy()  # without the zeros behind it
        return entries

    def time_index(self) -> Entries:
        """
        Read the time index, without zeros at its end; a missing one is empty.

        Raises:
            CorruptIndexError: see `read_time_index`.
        """
        if self.rebuilt is not None:
            return self.rebuilt.times
        zeros: list[int] = []
        try:
            entries = read_time_index(self._fs, self.time_index_path, log_bytes=self.size, on_zeros=zeros.append)
        except FileNotFoundError:
            return np.empty(0, TIME_ENTRY)
        if not zeros:
            self._index_sizes[names.TIME_INDEX] = entries.nbytes
        return entries

    def aborted_txns(self) -> Aborts:
        """
        Read the transaction index; a missing one is empty.

        Raises:
            CorruptIndexError: see `read_txn_index`.
        """
        if self.rebuilt is not None and self.rebuilt.txns is not None:
            return abort_rows(self.rebuilt.txns)
        try:
            return read_txn_index(self._fs, self.txn_index_path, log_bytes=self.size)
        except FileNotFoundError:
            return abort_rows(())

    def largest_timestamp(self) -> int:
        """
        Return the largest timestamp (ms): the last of the time index, else the `.log`'s mtime (R-324).

        Unlike in Kafka, zeros at the end of the index do not count (D-02): they would make today's records expire as
        those of 1970. A single entry of zeros is real only if the first batch is that old. Without zeros only the last
        entry is read, so that listing many segments stays cheap.
        """
        used = self.time_index_bytes
        if not used:
            return self.mtime_ms
        if self.rebuilt is not None:
            last = self.rebuilt.times[-1:]
        else:
            with self._fs.open(self.time_index_path) as file:
                last = np.frombuffer(file.read(TIME_ENTRY.itemsize, used - TIME_ENTRY.itemsize), TIME_ENTRY)
            if last == np.zeros(1, TIME_ENTRY):
                is_real = used == TIME_ENTRY.itemsize and self.first_batch_timestamp() <= 0
                last = last if is_real else self.time_index()[-1:] if used > TIME_ENTRY.itemsize else last[:0]
        timestamp = int(last["timestamp"][0]) if len(last) else -1
        return timestamp if timestamp >= 0 else self.mtime_ms

    def first_batch_timestamp(self) -> int:
        """Return the maximum timestamp (ms) of the first batch; -1 without a batch, or for magic 0 (R-416)."""
        if not self.size:
            return -1
        with self.open_log() as file:
            return max_timestamp_of(file.read(HEADER_BYTES, 0))

    def is_unchanged(self) -> bool:
        """Tell whether the `.log` is still the listed file, with the same size and modification time."""
        try:
            about = self._fs.stat(self.log_path)
        except FileNotFoundError:
            return False
        return (about.st_ino, about.st_size, about.st_mtime_ns) == (self.inode, self.size, self.mtime_ns)

    def open_log(self) -> File:
        """Open the `.log` for reading."""
        return self._fs.open(self.log_path)

    def position_at(self, offset: int) -> int:
        """Return a batch position at or before the batch that holds `offset` (R-314)."""
        if offset <= self.base_offset or not self.size:
            return 0
        return lookup_position(self.offset_index(), offset - self.base_offset)

    def batch_at(self, offset: int) -> int | None:
        """
        Return the base offset of the batch that holds `offset`, or of the next one if none does; None beyond the last.
        """
        for chunk in self.chunks(start=self.position_at(offset)):
            rows = np.flatnonzero(chunk.batches["last_offset"] >= offset)
            if len(rows):
                return int(chunk.batches["base_offset"][rows[0]])
        return None

    def chunks(
        self, *, start: int = 0, buffer: ReadBuffer | None = None, check_order_from: int | None = None
    ) -> Iterator[Chunk]:
        """
        Read the batches from a batch position on; arguments and errors are those of `SegmentReader`.
        """
        if not self.size:
            return
        with self.open_log() as file:
            yield from self._source(file, size=self.size, start=start, buffer=buffer, check_order_from=check_order_from)

    def next_offset(self, *, buffer: ReadBuffer | None = None, check_order: bool = True) -> int:
        """
        Return the offset after the segment's last batch; its base offset if there is none (R-537).

        Reads from the last entry of the offset index to the end of the log.

        Args:
            buffer: to read into.
            check_order: require ascending offsets and sound headers.
        Raises:
            CorruptBatchError: damage in the batches read.
            CorruptIndexError: the last index entry names an offset beyond the last batch, or points into a batch.
        """
        if not self.size:
            return self.base_offset
        entries = self.offset_index()
        start = int(entries["position"][-1]) if len(entries) else 0
        next_offset = self.base_offset
        for chunk in self.chunks(
            start=start, buffer=buffer, check_order_from=self.base_offset if check_order else None
        ):
            next_offset = int(chunk.batches["last_offset"][-1]) + 1
        if len(entries) and next_offset <= self.base_offset + int(entries["relative_offset"][-1]):
            position = entries.nbytes - OFFSET_ENTRY.itemsize
            raise CorruptIndexError(
                self.index_path, position, f"an offset beyond the segment's last, {next_offset - 1}"
            )
        return next_offset
