"""
How far a log reaches, found out from its directory alone: beside a writer or a daemon in another process, or at rest.

    log start         the line of `log-start-offset-checkpoint`, or the first segment's base offset
    log end           behind the last whole batch of the last segment, looked for from its last index entry on
    high watermark    what a living writer of ours publishes (`storage/files/published.py`), or else the line of
                      `replication-offset-checkpoint`; where there is none, nobody says that less than all is valid: the
                      log end. A log of a writer of ours has a line before its first record
    last stable       from the last producer snapshot on the batches are read for transactions, up to the high watermark

What was found is kept, and looked at again when its file has changed.
"""

from __future__ import annotations

import threading
from pathlib import Path

from cleaner.base.model import AbortedTxn, TopicPartition
from cleaner.errors import CorruptBatchError, LogTruncatedError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import ReadBuffer
from cleaner.log.cursor import LARGEST_CHUNK_BYTES, Cursor, identity_of
from cleaner.log.decisions import Decisions, open_at_snapshot
from cleaner.log.open_segment import OpenSegment
from cleaner.log.partition_files import PartitionFiles
from cleaner.log.view import Signal
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.files.published import Published
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import Aborts, abort_rows
from cleaner.storage.segment.names import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT

_BEYOND_ALL = 2**62
_MOST_UNLISTED = 4096
_LONGEST_PAUSE_SECONDS = 0.1
_PAUSE_BESIDE_WRITER_SECONDS = 0.01


class DirectoryView:
    """
    A `ReadView` of a partition's directory. Safe to share between threads.

    Args:
        files: the partition's.
    """

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        self._guard = threading.RLock()
        self._is_closed = False
        self._is_told = False  # of high watermarks, at once
        self._log_starts = _Line(files.fs, files.log_dir / LOG_START_CHECKPOINT, files.topic_partition)
        self._published = Published(files.fs, files.log_dir, files.topic_partition)
        self._high_watermarks = _Line(files.fs, files.log_dir / HIGH_WATERMARK_CHECKPOINT, files.topic_partition)
        self._end = _LogEnd(files)
        self._transactions = _Transactions(files)

    @property
    def signal(self) -> Signal | None:
        """Nobody tells."""
        return None

    def require_own(self) -> None:
        """Do nothing: a fork finds out from the directory as well."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def longest_pause_seconds(self) -> float:
        """How long to wait before looking again, at most: shorter beside a writer that tells at once."""
        return _PAUSE_BESIDE_WRITER_SECONDS if self._is_told else _LONGEST_PAUSE_SECONDS

    @property
    def leader_epoch(self) -> int | None:
        """It would have to be read."""
        return None

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for."""
        with self._guard:
            places = self._files.listing().places
            return max(self._log_starts.offset() or 0, places[0].base_offset if places else 0)

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last whole batch."""
        with self._guard:
            return max(self._end.offset(), self.log_start_offset)

    @property
    def high_watermark(self) -> int:
        """What a living writer publishes, or else the checkpoint says, within the log."""
        with self._guard:
            published = self._published.high_watermark()
            self._is_told = published is not None
            if published is not None:
                return published  # it is within the log, and asked for too often to look where that ends
            end = self.log_end_offset
            line = self._high_watermarks.offset()
            return end if line is None else min(max(line, self.log_start_offset), end)

    @property
    def last_stable_offset(self) -> int:
        """First offset of a transaction that is not decided below the high watermark."""
        with self._guard:
            high_watermark = self.high_watermark
            return min(high_watermark, self._transactions.first_unstable(self.log_start_offset, high_watermark))

    def unlisted_aborts(self) -> Aborts | None:
        """Return what was found on the way to the last stable offset."""
        with self._guard:
            return abort_rows(self._transactions.aborted)

    def close(self) -> None:
        """Close what is open."""
        with self._guard:
            self._is_closed = True
            self._published.close()
            self._end.close()
            self._transactions.close()


class _Line:
    """A partition's line of an offset checkpoint, read again when the file is another one."""

    def __init__(self, fs: FileSystem, path: Path, topic_partition: TopicPartition) -> None:
        self._fs = fs
        self._path = path
        self._topic_partition = topic_partition
        self._seen: tuple[int, int, int] | None = None
        self._offset: int | None = None

    def offset(self) -> int | None:
        """Return the line's offset; None without one."""
        try:
            about = self._fs.stat(self._path)
        except FileNotFoundError:
            return None
        seen = (about.st_ino, about.st_size, about.st_mtime_ns)
        if seen != self._seen:
            self._offset = read_offset_checkpoint(self._fs, self._path).get(self._topic_partition)
            self._seen = seen
        return self._offset


class _LogEnd:
    """Where a log ends, followed from look to look."""

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        self._segment: OpenSegment | None = None
        self._position = 0
        self._offset = 0
        self._last_batch: tuple[int, bytes] = (0, b"")
        self._buffer = ReadBuffer(LARGEST_CHUNK_BYTES)

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def offset(self) -> int:
        """Return the offset behind the last whole batch."""
        while True:
            listing = self._files.listing()
            if not listing.places:
                return 0
            place = listing.places[-1]
            segment = self._segment
            is_same = segment is not None and segment.base_offset == place.base_offset and segment.is_at(place)
            if segment is None or not is_same or self._is_cut(segment):
                try:
                    segment = self._open(OpenSegment(self._files.fs, place))
                except FileNotFoundError:
                    continue
            self._read_on(segment)
            if self._files.is_unchanged(listing):
                return self._offset

    def _open(self, segment: OpenSegment) -> OpenSegment:
        self.close()
        self._segment, self._offset, self._last_batch = segment, segment.base_offset, (0, b"")
        self._position = segment.position_at(_BEYOND_ALL)
        self._read_on(segment)
        if self._offset == segment.base_offset:
            self._position = 0  # the index led to no batch
        return segment

    def _is_cut(self, segment: OpenSegment) -> bool:
        position, head = self._last_batch
        return segment.file.read(len(head), position) != head

    def _read_on(self, segment: OpenSegment) -> None:
        size = segment.file.size()
        try:
            reader = SegmentReader(
                segment.file, size=size, start=self._position, buffer=self._buffer, check_order_from=self._offset
            )
            for chunk in reader:
                last, identity = chunk.batches[-1], identity_of(chunk, -1)
                position, offset = int(last["position"] + last["size"]), int(last["last_offset"]) + 1
                self._last_batch, self._position, self._offset = identity, position, offset
        except CorruptBatchError:
            # A batch that is being written, or was torn by a crash: the log ends before it.
            return


class _Transactions:
    """The transactions at the end of a log, followed from look to look."""

    def __init__(self, files: PartitionFiles) -> None:
        self._decisions = Decisions()
        self._files = files
        self._cursor: Cursor | None = None

    @property
    def aborted(self) -> list[AbortedTxn]:
        """Those found aborted that no index may name yet."""
        return self._decisions.aborted

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def first_unstable(self, log_start_offset: int, high_watermark: int) -> int:
        """Return the first offset of the transactions that are open at the high watermark, or that itself."""
        if self._cursor is None or self._cursor.next_offset > high_watermark:
            self._begin(log_start_offset, high_watermark)
        try:
            self._go_on(log_start_offset, high_watermark)
        except BaseException:
            self.close()  # a chunk may have been read and not been taken in; the next look begins anew
            raise
        return min(self._decisions.open.values(), default=high_watermark)

    def _go_on(self, log_start_offset: int, high_watermark: int) -> None:
        while self._cursor is not None:
            try:
                chunk = self._cursor.next_chunk(high_watermark)
            except LogTruncatedError:
                self._begin(log_start_offset, high_watermark)
                continue
            if chunk is None:
                break
            self._decisions.take(self._cursor.path, chunk, self._begun_at)
            self._forget_listed()

    def _begin(self, log_start_offset: int, high_watermark: int) -> None:
        """Begin anew at the last producer snapshot that can be read (R-125), or where the log does."""
        self.close()
        self._decisions = Decisions()
        begin = log_start_offset
        listing = self._files.listing()
        fs, directory = self._files.fs, self._files.directory
        found = open_at_snapshot(fs, directory, listing.snapshots, log_start_offset, high_watermark)
        if found is not None:
            begin, self._decisions.open = found
        self._begun_at = begin
        self._cursor = Cursor(self._files, begin)

    def _forget_listed(self) -> None:
        """Leave those to the transaction indexes that these name by now: of segments that are closed."""
        if len(self.aborted) > _MOST_UNLISTED:
            active = self._files.listing().places[-1].base_offset
            self._decisions.aborted = [abort for abort in self.aborted if abort.last_offset >= active]
