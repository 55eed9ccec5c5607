"""
The active segment, to which records are appended: its files, its indexes, and when it is full.

Batches are *staged* one by one, which decides their index entries and whether the next one still fits, and then
*committed*: all bytes in one write, then the index entries. After a failure the segment is restored to a mark.

The index entries are those Kafka writes (R-320, `index_builder.py`). Unlike Kafka's, the index files are not
preallocated (R-310): they hold only the entries, so that a concurrent reader finds nothing else in them. They are not
forced to disk until the segment is closed: a load without a clean-shutdown marker rebuilds the indexes of the last
segment in any case.

With `preallocate` the `.log` has room behind its batches: zeros, up to a mebibyte of them. A record that is written
over zeros which are on disk leaves the file's length alone, and so the file system's journal: forcing it takes a
quarter less. The room is cut off when the segment is closed; after a crash a recovery cuts it off, as it does after a
broker's.

Source: rules R-301 to R-324, R-804, R-920, R-921; `LogSegment.java`, `OffsetIndex.java`, `TimeIndex.java`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.base import concurrency
from cleaner.base.model import AbortedTxn
from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CleanerError,
    CorruptIndexError,
    LogDirOfflineError,
    LogWriteError,
    NoSpaceError,
    OffsetsOutOfOrderError,
    OutOfDescriptorsError,
)
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment import names
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE, IndexBuilder, IndexMark
from cleaner.storage.segment.indexes import TIME_ENTRY, txn_index_bytes
from cleaner.storage.segment.segment import Segment

_WRITEBACK_BYTES = 8 << 20
"""Writeback is started after this many bytes, so that a roll has little left to wait for."""
_ROOM = bytes(1 << 20)
_SMALL_BYTES = 64 << 10
"""An append of more bytes makes no room: forcing it takes as long without, and the zeros are written twice."""


@dataclass(frozen=True)
class ActiveSegmentView:
    """The segment as retention sees it: its size and largest timestamp are known here, and may not be on disk yet."""

    base_offset: int
    size: int
    timestamp_ms: int

    def largest_timestamp(self) -> int:
        """Return the largest timestamp, or when it was last written to (R-324)."""
        return self.timestamp_ms


class AppendMark(NamedTuple):
    """A state of an active segment that can be restored."""

    base_offset: int
    indexes: IndexMark
    first_timestamp: int | None
    txn_index_bytes: int


class ActiveSegment:
    """
    The last segment of a log open for writing; the caller has the log's lock for every call.

    Args:
        fs: the file system.
        segment: the loaded segment; zeros at the end of its indexes are cut off.
        topic: sizes and intervals.
        now_ms: the time of its creation, used only while it has no batch with a timestamp (R-920).
        jitter_ms: subtracted from `segment.ms` for this segment.
    Raises:
        FileNotFoundError, LogDirOfflineError: a file is missing or cannot be opened.
        CorruptIndexError: an index is not valid.
    """

    def __init__(self, fs: FileSystem, segment: Segment, topic: TopicConfig, *, now_ms: int, jitter_ms: int) -> None:
        self.base_offset = segment.base_offset
        self.directory = segment.directory
        self.topic = topic
        self._fs = fs
        # Held while files are forced to disk, and while they are closed.
        self._fsync_guard = concurrency.RLock()
        # The system reports a failed fsync only once, so the error is kept for later callers.
        self._fsync_error: CleanerError | None = None
        # Made here: an fsync is nearly as quick as making an error.
        self._interrupted = LogDirOfflineError(self.directory, OSError(errno.EINTR, "an fsync was interrupted"))
        self._is_retired = False
        self._is_forcing = False
        self._is_txn_index_touched = False
        self._created_ms = now_ms
        self._jitter_ms = jitter_ms
        # The end of the segment: `_indexes.position` includes staged batches, `_size` only what is in the files.
        self._indexes = IndexBuilder(
            segment.log_path,
            self.base_offset,
            interval_bytes=topic.index_interval_bytes,
            max_index_bytes=topic.segment_index_bytes,
        )
        entries = (segment.offset_index(), segment.time_index())
        self._indexes.go_on(segment.size, *entries)
        self._staged = np.zeros(1, WRITTEN_DTYPE)
        self._size = self._written_back = self._room_end = segment.size
        self._first_timestamp = segment.first_batch_timestamp() if segment.size else None
        self._txn_index_bytes = _size_of(fs, segment.txn_index_path)
        self._files: list[File] = []
        try:
            for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
                self._files.append(fs.open(segment.path(suffix), write=True))
            for file, index in zip(self._files[1:], entries, strict=True):
                if file.size() > index.nbytes:
                    file.truncate(index.nbytes)
        except BaseException:
            self.retire()
            raise

    @property
    def is_retired(self) -> bool:
        """Tell whether its files are closed."""
        return self._is_retired

    @property
    def fsync_error(self) -> CleanerError | None:
        """Why it is unknown what is on disk, once no fsync is under way; None while it is known (C-2)."""
        with self._fsync_guard:
            return None if self._is_forcing else self._fsync_error

    @property
    def size(self) -> int:
        """Bytes of the `.log`, staged ones included."""
        return self._indexes.position

    def for_retention(self, listed: Segment) -> ActiveSegmentView:
        """Return it as retention sees it; `listed` is the same segment as listed from disk."""
        timestamp_ms = self._indexes.max_timestamp
        return ActiveSegmentView(self.base_offset, self.size, timestamp_ms if timestamp_ms >= 0 else listed.mtime_ms)

    # ---- rolling ---------------------------------------------------------------------------------------------------

    def is_full(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Tell whether a batch needs a new segment (R-920)."""
        topic, present = self.topic, self._indexes.position
        return (
            present > topic.segment_bytes - size
            or (present > 0 and self._waited_ms(max_timestamp, now_ms) > topic.max_segment_ms - self._jitter_ms)
            or self._indexes.is_full(topic.segment_index_bytes)
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        first = self._first_timestamp
        return max_timestamp - first if first is not None and first >= 0 else now_ms - self._created_ms

    # ---- appending -------------------------------------------------------------------------------------------------

    def stage(self, size: int, max_timestamp: int, last_offset: int) -> None:
        """Take in a batch whose bytes are going to be committed (R-320)."""
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp
        self._staged[0] = (size, last_offset, max_timestamp)
        self._indexes.interval_bytes, self._indexes.max_index_bytes = (
            self.topic.index_interval_bytes,
            self.topic.segment_index_bytes,
        )
        self._indexes.append(self._staged)

    def commit(self, data: memoryview | bytes | bytearray) -> None:
        """
        Write the bytes of the staged batches; on an error the caller goes back to a mark.

        Raises:
            NoSpaceError, LogDirOfflineError: the disk.
        """
        end = self._indexes.position
        if len(data) != end - self._size:
            raise ValueError(f"{len(data)} bytes for {end - self._size} staged ones")
        if end <= self._room_end or not self.topic.preallocate or not self._write_with_room(data):
            self._files[0].write(data, self._size)
        if self._indexes.has_new_entries:
            self._write_entries()
        self._size = end
        if end - self._written_back >= _WRITEBACK_BYTES:
            self._files[0].begin_writeback(self._written_back, end - self._written_back)
            self._written_back = end

    def _write_with_room(self, data: memoryview | bytes | bytearray) -> bool:
        """Write bytes at the end and room behind them, in one write; False: room is not worth it, or there is none."""
        end = self._size + len(data)
        room_end = min(end + len(_ROOM), self.topic.segment_bytes)
        if len(data) > _SMALL_BYTES or room_end <= end:
            return False
        try:
            self._files[0].write(b"".join((data, _ROOM[: room_end - end])), self._size)
        except NoSpaceError:
            # The bytes alone may fit, and what follows them: index entries, other logs.
            self._room_end = self._size
            self._files[0].truncate(self._size)
            return False
        self._room_end = room_end
        return True

    def _write_entries(self) -> None:
        """Append the staged index entries to the index files."""
        offsets, times = self._indexes.offset_index, self._indexes.time_index
        if offsets:
            self._files[1].write(offsets, self._indexes.offset_index_bytes - len(offsets))
        if times:
            self._files[2].write(times, self._indexes.time_index_bytes - len(times))
        self._indexes.taken()

    def add_aborted(self, txns: Sequence[AbortedTxn]) -> None:
        """Add entries to the transaction index, which is made with the first one (R-303)."""
        path = self.directory / names.segment_file_name(self.base_offset, names.TXN_INDEX)
        self._is_txn_index_touched = True
        with (
            self._fs.open(path, write=True)
            if self._fs.exists(path)
            else self._fs.create(path, like=self.directory) as file
        ):
            data = txn_index_bytes(txns)
            file.write(data, self._txn_index_bytes)
        self._txn_index_bytes += len(data)

    def mark(self) -> AppendMark:
        """Return the present state; nothing is staged."""
        self._is_txn_index_touched = False
        return AppendMark(self.base_offset, self._indexes.mark(), self._first_timestamp, self._txn_index_bytes)

    def go_back(self, mark: AppendMark) -> None:
        """
        Undo everything that was staged or written since a mark, durably.

        Without an fsync a power cut could bring the undone batches back, where others have got their offsets since.
        Of the other files none is needed: a recovery rebuilds them.

        Raises:
            NoSpaceError, LogDirOfflineError: the disk failed; the contents of the files are unknown.
        """
        self._indexes.go_back(mark.indexes)
        self._first_timestamp, self._txn_index_bytes = mark.first_timestamp, mark.txn_index_bytes
        self._size = self._room_end = self._indexes.position
        self._written_back = min(self._written_back, self._size)
        sizes = (self._size, self._indexes.offset_index_bytes, self._indexes.time_index_bytes)
        for file, size in zip(self._files, sizes, strict=True):
            if file.size() > size:
                file.truncate(size)
                if file is self._files[0]:
                    self.fsync_log()
        if not self._is_txn_index_touched:
            return  # reading its size needs a descriptor, and none may be left
        txn_index = self.directory / names.segment_file_name(self.base_offset, names.TXN_INDEX)
        if _size_of(self._fs, txn_index) > mark.txn_index_bytes:
            with self._fs.open(txn_index, write=True) as file:
                file.truncate(mark.txn_index_bytes)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """
        Cut off the room behind the batches, and write the entry that closes the time index (R-322).

        Raises:
            NoSpaceError, LogDirOfflineError: the disk.
            CorruptIndexError: the last entry lies above the segment's records, so that none can follow it.
        """
        try:
            self._indexes.close()
        except OffsetsOutOfOrderError as error:
            reason = f"it cannot be closed: {error.reason}; the next opening of the log rebuilds it"
            position = self._indexes.time_index_bytes - TIME_ENTRY.itemsize
            raise CorruptIndexError(self._files[2].path, position, reason) from error
        self._write_entries()
        self._room_end = self._size
        if self._files[0].size() > self._size:
            self._files[0].truncate(self._size)

    def fsync_log(self) -> None:
        """
        Force the `.log` to disk; may be called without the log's lock. Nothing is done once it is retired.

        Raises:
            NoSpaceError, LogDirOfflineError: now or earlier; final (C-2).
        """
        self._force(self._files[:1], (), data_only=True)

    def fsync_all(self) -> None:
        """
        Force all files to disk.

        Raises:
            NoSpaceError, LogDirOfflineError: now or earlier; final (C-2).
            OutOfDescriptorsError: nothing is lost; it can be tried again.
        """
        self._force(self._files, [names.segment_file_name(self.base_offset, names.TXN_INDEX)])

    def _force(self, files: Sequence[File], others: Sequence[str], *, data_only: bool = False) -> None:
        with self._fsync_guard:
            if self._is_forcing:
                raise LogWriteError(self.directory, "called by a signal handler, in the middle of an fsync")
            if self._fsync_error is not None:
                raise self._fsync_error.with_traceback(None)
            if self._is_retired:
                return
            # Failed until it is known to have succeeded: another exception, such as an interrupt, may replace the error
            # that the system reports only once.
            # Nothing is called from here to the `try`: an interrupt there would leave `_is_forcing` set forever.
            self._is_forcing, self._fsync_error = True, self._interrupted
            try:
                for file in files:
                    file.fsync(data_only=data_only)
                if others:
                    self._fs.fsync_all(self.directory, others)
            except OutOfDescriptorsError:
                self._fsync_error = None
                raise
            except CleanerError as error:
                self._fsync_error = error
                raise
            except BaseException as error:
                if not _replaces_an_os_error(error):
                    self._fsync_error = None
                raise
            finally:
                self._is_forcing = False
                if self._is_retired:
                    self._close()
            self._fsync_error = None

    def retire(self) -> None:
        """Close the files, or let a running fsync close them at its end; a second call does nothing."""
        with self._fsync_guard:
            self._is_retired = True
            # Otherwise this is a signal handler, and the interrupted `_force` closes them.
            if not self._is_forcing:
                self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()


def _replaces_an_os_error(error: BaseException) -> bool:
    """Tell whether an exception was raised while an OSError was being handled or propagated."""
    context = error.__context__
    while context is not None:
        if isinstance(context, OSError):
            return True
        context = context.__context__
    return False


def create_segment(fs: FileSystem, directory: Path, base_offset: int) -> Segment:
    """
    Make an empty segment, durably; its `.log` is published last (`docs/coexistence.md`).

    Raises:
        NoSpaceError, LogDirOfflineError: the disk.
    """
    # Files that an earlier attempt left.
    stale = [names.segment_file_name(base_offset, suffix) for suffix in names.SEGMENT_SUFFIXES]
    fs.remove_all(directory, stale)
    for suffix in (names.INDEX, names.TIME_INDEX, names.LOG):
        with fs.create(directory / names.segment_file_name(base_offset, suffix), like=directory) as file:
            file.fsync()
    fs.fsync_dir(directory)
    return Segment.open(fs, directory, base_offset)


def discard_segment(fs: FileSystem, directory: Path, base_offset: int) -> None:
    """Remove, durably, the files that a failed `create_segment` left; the `.log` first."""
    fs.remove(directory / names.segment_file_name(base_offset, names.LOG))
    fs.fsync_dir(directory)
    fs.remove_all(directory, [names.segment_file_name(base_offset, suffix) for suffix in names.SEGMENT_SUFFIXES])


def _size_of(fs: FileSystem, path: Path) -> int:
    try:
        return fs.stat(path).st_size
    except FileNotFoundError:
        return 0
