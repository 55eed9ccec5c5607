"""
Derives how far a log reaches from its directory alone, whether another process writes or cleans it, or none does.

    log start         the line of `log-start-offset-checkpoint`, or the first segment's base offset
    log end           behind the last whole batch of the last segment, searched from its last index entry on
    high watermark    the one that a live writer of ours publishes (`storage/files/published.py`), or the line of
                      `replication-offset-checkpoint`, or without a line the log end: nothing says that less is valid.
                      A log of our writer has a line before its first record
    last stable       from the last producer snapshot on, batches are read for transactions, up to the high watermark

Results are kept until their file changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.model import AbortedTxn, TopicPartition
from cleaner.errors import CorruptBatchError, CorruptCheckpointError, LogTruncatedError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import Chunk, ReadableFile, ReadBuffer
from cleaner.read.cursor import LARGEST_CHUNK_BYTES, Cursor, identity_of
from cleaner.read.log_end import LogEnd, end_after, end_of
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import PartitionFiles, PartitionListing
from cleaner.read.snapshot import first_offset_of, high_watermark_within, stable_offset_within
from cleaner.read.transactions import Transactions
from cleaner.read.view import Signal
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.files.published import Published
from cleaner.storage.fs.file_system import is_local_disk
from cleaner.storage.fs.readable import ReadableFiles
from cleaner.storage.segment.indexes import Aborts, abort_rows
from cleaner.storage.segment.names import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCHS, LOG_START_CHECKPOINT

_LONGEST_PAUSE_SECONDS = 0.1
_PAUSE_BESIDE_WRITER_SECONDS = 0.01
_MOST_CUTS = 10
"""In one search: each takes a writer that cuts the log at this very moment."""


class DirectoryView:
    """
    A `ReadView` of a partition's directory. Safe to share between threads.

    Args:
        files: the partition's.
    """

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        self._guard = concurrency.RLock()
        self._is_closed = False
        self._is_published = False  # whether a live writer published the last high watermark
        self._log_starts = _Line(files.fs, files.log_dir / LOG_START_CHECKPOINT, files.topic_partition)
        self._published = (
            Published(files.fs, files.log_dir, files.topic_partition)
            if is_local_disk(files.fs, files.log_dir)
            else None
        )
        self._high_watermarks = _Line(files.fs, files.log_dir / HIGH_WATERMARK_CHECKPOINT, files.topic_partition)
        self._end = _FollowedEnd(files)
        self._transactions = _FollowedTransactions(files)

    @property
    def signal(self) -> Signal | None:
        """None: there is no notification; look again from time to time."""
        return None

    def require_own(self) -> None:
        """Do nothing: a forked process may read the directory as well."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def is_beside_writer(self) -> bool:
        """Whether a live writer of ours had published the last high watermark that was asked for."""
        return self._is_published

    @property
    def longest_pause_seconds(self) -> float:
        """The longest wait before looking again: shorter if a live writer publishes its high watermark."""
        return _PAUSE_BESIDE_WRITER_SECONDS if self._is_published else _LONGEST_PAUSE_SECONDS

    @property
    def leader_epoch(self) -> int | None:
        """None: it would have to be read from the file."""
        return None

    @property
    def log_start_offset(self) -> int:
        """First offset that a reader may request."""
        return self._of_one_log(self._log_start)

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last whole batch."""
        return self._of_one_log(self._log_end)

    @property
    def high_watermark(self) -> int:
        """The one a live writer publishes, or the checkpoint's, limited to the log."""
        with self._guard:
            published = self._published_offset()
            # This is called too often to search the log's end for what is within the log anyway.
            return self._of_one_log(self._checkpointed) if published is None else published

    @property
    def last_stable_offset(self) -> int:
        """First offset of a transaction that is undecided at the high watermark, or that watermark."""
        return self._of_one_log(self._last_stable)

    def _log_start(self, log: PartitionListing) -> int:
        return first_offset_of(log.places, self._log_starts.offset())

    def _log_end(self, log: PartitionListing) -> int:
        return max(self._end.offset(), self._log_start(log))

    def _published_offset(self) -> int | None:
        published = None if self._published is None else self._published.high_watermark()
        self._is_published = published is not None
        return published

    def _checkpointed(self, log: PartitionListing) -> int:
        return high_watermark_within(self._high_watermarks.offset(), self._log_start(log), self._log_end(log))

    def _last_stable(self, log: PartitionListing) -> int:
        published = self._published_offset()
        high_watermark = self._checkpointed(log) if published is None else published
        start = self._log_start(log)
        return stable_offset_within(self._transactions.first_open(start, high_watermark), start, high_watermark)

    def _of_one_log(self, find_out: Callable[[PartitionListing], int]) -> int:
        """Return what several files say, all of one log: a topic may be deleted and made again in between."""
        with self._guard:
            while True:
                log = self._files.listing()
                try:
                    found = find_out(log)
                except CorruptBatchError:
                    # What is no batch in the new log may be below the end of the old one.
                    if self._files.is_of_log(log):
                        raise
                    continue
                if self._files.is_of_log(log):
                    return found

    def unlisted_aborts(self) -> Aborts | None:
        """Return the aborted transactions found while searching the last stable offset."""
        with self._guard:
            return abort_rows(self._transactions.aborted)

    def close(self) -> None:
        """Close all files."""
        with self._guard:
            self._is_closed = True
            if self._published is not None:
                self._published.close()
            self._end.close()
            self._transactions.close()


class _Line:
    """A partition's line in an offset checkpoint; read again when the file was replaced."""

    def __init__(self, fs: ReadableFiles, path: Path, topic_partition: TopicPartition) -> None:
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


class _FollowedEnd:
    """The end of a log; each call goes on from the last one."""

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        self._segment: OpenSegment | None = None
        self._end = LogEnd(0, 0)
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
            try:
                self._look(listing.places[-1])
            except FileNotFoundError:
                continue
            except BaseException:
                self.close()  # the end may be of the file before, or below the last batch; the next call starts again
                raise
            if self._files.is_unchanged(listing):
                return self._end.offset

    def _look(self, place: SegmentFiles) -> None:
        segment = self._segment
        is_same = segment is not None and segment.base_offset == place.base_offset and segment.is_at(place)
        if segment is None or not is_same or self._is_cut(segment):
            self.close()
            self._segment = segment = OpenSegment(self._files.fs, place)
            self._last_batch = (0, b"")
            self._end = end_of(segment, segment.file.size(), self._checked)
        else:
            # The log ends before a batch that is being written, or was torn by a crash.
            self._end = end_after(segment, self._end, segment.file.size(), self._checked)

    def _is_cut(self, segment: OpenSegment) -> bool:
        position, head = self._last_batch
        return segment.file.read(len(head), position) != head

    def _checked(
        self, file: ReadableFile, *, size: int, start: int, check_order_from: int | None = None
    ) -> Iterator[Chunk]:
        for chunk in SegmentReader(
            file, size=size, start=start, buffer=self._buffer, check_order_from=check_order_from
        ):
            self._last_batch = identity_of(chunk, -1)
            yield chunk


class _FollowedTransactions:
    """The transactions at the end of a log; each call goes on from the last one."""

    def __init__(self, files: PartitionFiles) -> None:
        self._transactions = Transactions()
        self._files = files
        self._cursor: Cursor | None = None
        self._generation = 0

    @property
    def aborted(self) -> list[AbortedTxn]:
        """Aborted transactions that may not be in an index yet."""
        return self._transactions.aborted

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def first_open(self, log_start_offset: int, high_watermark: int) -> int:
        """Return the first offset of the transactions open at the high watermark, or that watermark."""
        # Where the log was cut and has grown again to the same end, the cursor would not look at what is there now.
        is_changed = self._files.generation() != self._generation
        if self._cursor is None or self._cursor.next_offset > high_watermark or is_changed:
            self._begin(log_start_offset, high_watermark)
        try:
            self._go_on(log_start_offset, high_watermark)
        except BaseException:
            self.close()  # a chunk may have been read but not added; the next call starts again
            raise
        return self._transactions.first_open(high_watermark)

    def _go_on(self, log_start_offset: int, high_watermark: int) -> None:
        cuts = 0
        while self._cursor is not None:
            try:
                chunk = self._cursor.next_chunk(high_watermark)
            except LogTruncatedError as cut:
                cuts += 1
                if cuts > _MOST_CUTS:
                    path = self._files.directory / LEADER_EPOCHS
                    reason = "by it an epoch ended below batches of that epoch that are there"
                    raise CorruptCheckpointError(path, 0, reason) from cut
                self._begin(log_start_offset, high_watermark)
                continue
            if chunk is None:
                break
            self._transactions.take(self._cursor.path, chunk)
            self._forget_listed()

    def _begin(self, log_start_offset: int, high_watermark: int) -> None:
        self.close()
        self._generation = self._files.generation()  # before the listing
        fs, directory, snapshots = self._files.fs, self._files.directory, self._files.listing().snapshots
        self._transactions = Transactions.at_snapshot(fs, directory, snapshots, log_start_offset, high_watermark)
        self._cursor = Cursor(self._files, self._transactions.begin)

    def _forget_listed(self) -> None:
        """Forget transactions of closed segments: the transaction indexes have them by now."""
        places = self._files.listing().places if self.aborted else ()
        if places and self.aborted[0].last_offset < places[-1].base_offset:
            active = places[-1].base_offset
            self._transactions.aborted = [abort for abort in self.aborted if abort.last_offset >= active]
