"""
Reading one partition: from an offset or a time on, all records or the committed ones, as objects or as columns.

A reader needs the partition's directory and a view that says how far the log reaches: no writer, and no lock for longer
than a listing of the directory. It goes on while segments are appended to, rolled, cut, deleted and swapped for cleaned
ones; see `cursor.py` for how.

    a read from the log start on       sees the last value of every key, and every record of the dirty section
    an offset that was cleaned away    the next record at or above it comes
    control batches                    are never shown
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base import arguments, concurrency
from cleaner.base.clock import Clock, SystemClock
from cleaner.base.closing import Closing
from cleaner.base.model import TopicPartition
from cleaner.config.forms import given_survivor
from cleaner.errors import LogClosedError, OffsetOutOfRangeError, UnknownTopicError
from cleaner.log.broadcast import Broadcast
from cleaner.log.columns import Columns
from cleaner.log.epochs import EpochEnd, LeaderEpochs
from cleaner.log.follow import Follower
from cleaner.log.latest import Latest, take_latest
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, RecordStream, Until, reach
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.read.cursor import LARGEST_CHUNK_BYTES
from cleaner.read.directory_view import DirectoryView
from cleaner.read.partition_files import MAX_BATCH_BYTES, PartitionFiles
from cleaner.read.time_search import find_by_time
from cleaner.read.view import ReadView
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.remote import files_for
from cleaner.storage.log_dir import NEVER_FOLLOWED
from cleaner.storage.segment.names import LEADER_EPOCHS
from cleaner.storage.which_dir import why_no_log_dir

if TYPE_CHECKING:
    from cleaner.log.table import Table

_ISOLATIONS = ("read_uncommitted", "read_committed")
_UNTILS = ("high_watermark", "end")


class LogReader(Closing):
    """
    A reader of one partition. Safe to share between threads; each iterator belongs to the thread that uses it.

    Args:
        fs: the file system.
        log_dir: the log dir.
        topic_partition: the partition.
        view: how far the log reaches; None: found out from the directory.
        clock: for waits.
        batch_limit: returns the most bytes that one batch may unpack to; None: one GiB.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: Path,
        topic_partition: TopicPartition,
        view: ReadView | None = None,
        clock: Clock | None = None,
        batch_limit: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._fs = fs
        self._files = PartitionFiles(fs, real_path(log_dir), topic_partition, self._clock, batch_limit)
        self._is_closed = False
        self._guard = concurrency.RLock()
        # Guarded by _guard.
        self._broadcasts: dict[tuple[Isolation, Until], Broadcast] = {}
        self._own_view: DirectoryView | None = None
        if view is None:
            view = self._own_view = DirectoryView(self._files)
        self._view: ReadView = view

    def __repr__(self) -> str:
        return f"LogReader({self._files.directory})"

    def close(self) -> None:
        """
        Close the reader; a second call does nothing.

        Followers end; other iterators go on, and close their files when they end. Every other call is refused.

        Raises:
            ForkedError: it is of a log that the parent has open.
        """
        self._view.require_own()
        self._is_closed = True
        if self._own_view is not None:
            self._own_view.close()
        self._files.close()
        with self._guard:
            broadcasts = list(self._broadcasts.values())
        for each in broadcasts:
            each.close()

    @property
    def _open_view(self) -> ReadView:
        """Return the view that says how far the log reaches. Raises LogClosedError, ForkedError: it is not usable."""
        self._view.require_own()
        if self._is_closed:
            raise LogClosedError(self._files.directory, "the reader is closed")
        return self._view

    @property
    def log_start_offset(self) -> int:
        """First offset that may be asked for."""
        return self._open_view.log_start_offset

    @property
    def high_watermark(self) -> int:
        """First offset that could still be lost in a crash."""
        return self._open_view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction, at most the high watermark."""
        return self._open_view.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._open_view.log_end_offset

    def read(
        self,
        offset: int,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        isolation: Isolation = "read_uncommitted",
        until: Until = "high_watermark",
    ) -> Iterator[Record]:
        """
        Read records from an offset on, up to where the log reaches now.

        Args:
            offset: where to begin; between log start and log end, both included.
            max_records: how many at most.
            max_bytes: end after the chunk that reaches this many bytes of the log; at least one chunk is read.
            isolation: `read_committed` leaves out aborted records, and ends at the last stable offset.
            until: where to end: `high_watermark`, or `end`, which includes records that a crash could still lose.
        Raises:
            OffsetOutOfRangeError: the log does not have the offset; or retention was faster than the reader.
            LogTruncatedError: the log was cut below what was read.
            CorruptLogError: damage.
        """
        chunk_bytes = LARGEST_CHUNK_BYTES if max_bytes is None else arguments.whole("max_bytes", max_bytes)
        most = None if max_records is None else arguments.whole("max_records", max_records, 0)
        columns = self.columns(offset, max_bytes=max_bytes, chunk_bytes=chunk_bytes, isolation=isolation, until=until)
        records = (record for some in columns for record in some)
        return records if most is None else islice(records, most)

    def columns(
        self,
        offset: int,
        *,
        max_bytes: int | None = None,
        chunk_bytes: int = LARGEST_CHUNK_BYTES,
        isolation: Isolation = "read_uncommitted",
        until: Until = "high_watermark",
    ) -> Iterator[Columns]:
        """
        Read records as columns; arguments and errors are those of `read`.

        Args:
            chunk_bytes: about how many bytes of the log make up one `Columns`.
        """
        offset = self._checked(offset, isolation, until)
        chunk_bytes = max(1, min(arguments.whole("chunk_bytes", chunk_bytes), LARGEST_CHUNK_BYTES))
        max_bytes = None if max_bytes is None else arguments.whole("max_bytes", max_bytes)
        stream = RecordStream(self._files, self._view, offset, isolation, chunk_bytes)
        stream.reach(until)
        return self._columns(stream, max_bytes)

    def _columns(self, stream: RecordStream, max_bytes: int | None) -> Iterator[Columns]:
        try:
            while stream.next_offset < stream.end_offset and (max_bytes is None or stream.bytes_read < max_bytes):
                before = stream.next_offset
                if before < self._view.log_start_offset:
                    raise self._out_of_range(before)
                yield from stream.next_columns()
                if stream.next_offset == before:
                    return
        finally:
            stream.close()

    def follow(
        self,
        offset: int,
        *,
        isolation: Isolation = "read_uncommitted",
        until: Until = "high_watermark",
        timeout_seconds: float | None = None,
    ) -> Follower:
        """
        Read records from an offset on and wait for more: `for` or `async for`, until `close()`.

        Args:
            timeout_seconds: end when no record came for this long; None waits forever.
            others: as for `read`, as are errors.
        """
        offset = self._checked(offset, isolation, until)
        timeout_seconds = arguments.seconds("timeout_seconds", timeout_seconds)
        broadcast = self._broadcast_of(isolation, until)
        return Follower(self._files, self._view, offset, isolation, until, timeout_seconds, broadcast)

    def _broadcast_of(self, isolation: Isolation, until: Until) -> Broadcast | None:
        """Return the broadcast of followers with these arguments; None if the writer is in another process."""
        signal = self._view.signal
        if signal is None:
            return None
        with self._guard:
            shared = self._broadcasts.get((isolation, until))
            if shared is None:
                shared = Broadcast(self._files, self._view, signal, isolation, until)
                self._broadcasts[isolation, until] = shared
            return shared

    def latest(self, *, isolation: Isolation = "read_committed", survivor: str = "offset") -> Latest:
        """
        Return the last value of every key at one moment, and the offset to follow from.

        Args:
            isolation: as for `read`; state is seldom made of values that may still be aborted.
            survivor: which record of a key is the last one: the topic's `cleaner.survivor`.
        Raises:
            UsageError: no such survivor rule.
        """
        arguments.one_of("isolation", isolation, _ISOLATIONS)
        rule = survivor_rule_of(given_survivor(survivor))
        return take_latest(self._files, self._open_view, isolation, rule)

    def table(self, directory: Path | str | None = None) -> Table:
        """
        Return the values of all keys for lookups, by an index on disk: without a map of them in memory.

        Args:
            directory: for the index; no log dir, nor in one; made if missing. None: a directory of the partition's name
                in `<log dir>.tables`, beside the log dir.
        Raises:
            StateDirLockedError: another table has the index in this directory.
            others: see `Table`.
        """
        from cleaner.log.table import Table  # its index has a lock, which readers elsewhere than on Linux go without

        return Table(self, self._files, self._open_view, arguments.optional_path("directory", directory))

    def offset_for_time(self, timestamp_ms: int | datetime, *, isolation: Isolation = "read_uncommitted") -> int | None:
        """
        Return the offset of the first record with this timestamp or a later one; None when there is none.

        As Kafka's `offsetsForTimes`: timestamps need not ascend, and a later record may be older. Also None when that
        record is at or above the high watermark (`read_committed`: the last stable offset).

        Args:
            timestamp_ms: milliseconds since 1970, or a `datetime` that has a time zone.
            isolation: as for `read`.
        """
        wanted_ms = arguments.moment_ms("timestamp_ms", timestamp_ms)
        arguments.one_of("isolation", isolation, _ISOLATIONS)
        view, log = self._open_view, self._files.listing()
        end_offset = reach(view, isolation, "high_watermark")
        return find_by_time(self._files, log, view.log_start_offset, end_offset, wanted_ms)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended, as Kafka answers OffsetsForLeaderEpoch."""
        epoch, files, view = arguments.whole("epoch", epoch), self._files, self._open_view
        epochs = LeaderEpochs(self._fs, files.directory, read_leader_epochs(self._fs, files.directory / LEADER_EPOCHS))
        return epochs.end_offset_for(epoch, view.log_end_offset)

    def _checked(self, offset: int, isolation: Isolation, until: Until) -> int:
        """Return the offset, if the log has it and the other arguments are valid."""
        offset = arguments.whole("offset", offset)
        arguments.one_of("isolation", isolation, _ISOLATIONS)
        arguments.one_of("until", until, _UNTILS)
        view = self._open_view
        if not view.log_start_offset <= offset <= view.log_end_offset:
            raise self._out_of_range(offset)
        return offset

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        view = self._view
        return OffsetOutOfRangeError(self._files.directory, offset, view.log_start_offset, view.log_end_offset)


def open_reader(
    log_dir: Path | str,
    topic: str,
    partition: int = 0,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    max_decompressed_batch_bytes: int = MAX_BATCH_BYTES,
) -> LogReader:
    """
    Open a partition for reading: next to a writer or a daemon in other processes, or in an archive, on any system.

    Nothing is locked for longer than a listing and nothing is written. How far the log reaches is found out from its
    directory. A `LogManager` on this machine publishes its high watermarks, so that readers have them at once; the high
    watermark of a broker or of a killed writer is the checkpoint's.

    Args:
        log_dir: the log dir, one entry of `log.dirs`.
        max_decompressed_batch_bytes: a larger batch counts as damage or an attack, and is never unpacked. A manager's
            own logs use their settings.
    Raises:
        UnknownTopicError: there is no such partition, or it is a symbolic link. If `log_dir` is no log dir, the error
            says what it is.
    """
    log_dir = arguments.path("log_dir", log_dir, may_be_remote=True)
    topic_partition = TopicPartition(arguments.text("topic", topic), arguments.whole("partition", partition, 0))
    arguments.require_methods("fs", fs, "open", "stat", "list_files")
    arguments.require_methods("clock", clock, "now_ms", "monotonic_ns", "sleep")
    limit = arguments.whole("max_decompressed_batch_bytes", max_decompressed_batch_bytes, 1)
    fs = files_for(fs, log_dir)
    directory = real_path(log_dir) / str(topic_partition)
    # An invalid topic name might lead out of the log dir.
    if not topic_partition.is_legal or not fs.exists(directory):
        reason = why_no_log_dir(fs, log_dir)
        raise UnknownTopicError(
            str(topic_partition), f"no such partition in {log_dir}{f': {reason}' if reason else ''}"
        )
    try:
        is_link = stat.S_ISLNK(fs.stat(directory).st_mode)
    except FileNotFoundError as error:
        raise UnknownTopicError(str(topic_partition), f"{directory}: it was just deleted") from error
    if is_link:
        raise UnknownTopicError(str(topic_partition), f"{directory}: {NEVER_FOLLOWED}")
    return LogReader(fs, log_dir, topic_partition, clock=clock, batch_limit=lambda: limit)
