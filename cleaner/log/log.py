"""`Log`: one partition as a library's user sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from cleaner.base import arguments, concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import ForkedError, UsageError
from cleaner.log.epochs import EpochEnd
from cleaner.log.flusher import LogFlusher
from cleaner.log.interrupted import require_uninterrupted
from cleaner.log.log_producer import DEFAULT_TRANSACTION_TIMEOUT_MS, LogProducer, resume_producer
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.reach import Reach, WriterView
from cleaner.log.reader import LogReader
from cleaner.log.record import Appended, ProducerStamp, Records, checked_stamp
from cleaner.log.transactional_ids import Identity, TransactionalIds, new_producer_id

if TYPE_CHECKING:
    from cleaner.log.group_offsets import GroupOffsets

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


def _of_reader(method: Callable[Concatenate[LogReader, _P], _Result]) -> Callable[Concatenate[Log, _P], _Result]:
    """Return a method of the log's reader as a method of the log."""

    @functools.wraps(method)
    def read(self: Log, /, *arguments: _P.args, **options: _P.kwargs) -> _Result:
        return method(self.reader, *arguments, **options)

    return read


async def _when_durable(appended: Appended) -> Appended:
    await asyncio.wrap_future(appended.durable)
    return appended


class Log(Reach):
    """
    One partition, open for writing; made by `LogManager.log`. Safe to share between threads, not with a forked child.

        appended = log.append([Record(b"p5", b"14")])
        appended.durable.result()

    Args:
        writer: does the writing.
        flusher: forces it to disk.
        clock: measures the timeouts of transactions.
        batch_limit: returns the most bytes that a batch of a topic may unpack to; None: the settings' default.
        offsets: returns the stored place of a group; None: nothing keeps one.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        flusher: LogFlusher,
        clock: Clock,
        batch_limit: Callable[[TopicConfig], int] | None = None,
        offsets: Callable[[object, TopicPartition], GroupOffsets] | None = None,
    ) -> None:
        self._writer = writer
        self._flusher = flusher
        self._clock = clock
        self._ids = TransactionalIds(writer.log_dir.fs, writer.directory)
        self._view = WriterView(writer)
        log_dir, limit_of = writer.log_dir, batch_limit or CleanerConfig().batch_limit_bytes
        self._reader = LogReader(
            log_dir.fs,
            log_dir.path,
            writer.topic_partition,
            self._view,
            clock,
            lambda: limit_of(writer.topic),
        )
        self._offsets = offsets
        self._guard = concurrency.RLock()
        # Guarded by _guard: the current instance of each transactional id.
        self._producers: dict[str, LogProducer] = {}
        self._resumed: dict[str, LogProducer] = {}

    def __repr__(self) -> str:
        return repr(self._writer).replace("PartitionWriter", "Log", 1)

    # ---- what it is like -------------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self._writer.topic_partition

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self._writer.directory

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended, as Kafka answers OffsetsForLeaderEpoch."""
        return self._writer.end_offset_for_epoch(arguments.whole("epoch", epoch))

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed, or had to be."""
        return self._writer.is_closed

    # ---- writing ---------------------------------------------------------------------------------------------------

    def append(self, records: Records, *, producer: ProducerStamp | None = None) -> Appended:
        """
        Append records; all of them, or none and an error.

        Readers up to the log end see them at once; they survive a crash once `durable` is done.

        Args:
            records: one or more. `RecordColumns` are faster for many.
            producer: the numbers of an idempotent producer whose caller keeps them; the method `producer` keeps them
                for you.
        Raises:
            UsageError: no records, columns of different lengths, or values that are not bytes; names record and field.
            KeylessRecordError, InvalidTimestampError, RecordTooLargeError: the topic refuses a record.
            OutOfOrderSequenceError, ProducerFencedError, InvalidTxnStateError: the producer's state refuses them.
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError, LogChangedError: the disk, too many open files, or
                another process does not release the partition's lock; nothing was appended.
            LogClosedError, ForkedError: the log is closed, or had to be, or was opened by this process's parent.
        """
        if producer is not None and not isinstance(producer, ProducerStamp):
            raise UsageError(f"producer is a {type(producer).__name__}; a ProducerStamp is needed")
        stamp = None if producer is None else checked_stamp(producer)
        result = self._writer.append(records, producer=stamp)
        return self.appended_at(*result[:3], is_repeat=result.is_repeat)

    def append_durable(self, records: Records, *, producer: ProducerStamp | None = None) -> Awaitable[Appended]:
        """
        Append records at once, and return an awaitable of the answer that is done when they are on disk.

            appended = await log.append_durable([Record(b"p5", b"14")])

        Raises:
            CleanerError: as `append`, at the call; the awaitable fails with FailedFsyncError or LogClosedError.
        """
        return _when_durable(self.append(records, producer=producer))

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a listener at each change, in the changing thread; returns a function to stop. For followers."""
        self._writer.require_open()
        return self._view.signal.listen(listener)

    def appended_at(
        self, base_offset: int, last_offset: int, append_time_ms: int | None, *, is_repeat: bool = False
    ) -> Appended:
        """Count an append and return its answer; for producers of this log."""
        if not is_repeat:
            self._flusher.appended()
        return Appended(base_offset, last_offset, append_time_ms, self._durable, is_repeat=is_repeat)

    def _durable(self, last_offset: int) -> concurrency.Future[None]:
        """Return a future that is done once everything up to an offset, inclusive, is on disk. Raises ForkedError."""
        self._writer.origin.require_own()
        return self._flusher.durable(last_offset)

    def fence(self, identity: Identity) -> None:
        """
        Fence off the earlier instances of a producer; for producers of this log.

        If that ends a transaction, its marker is flushed soon: readers of committed records wait for it, and no other
        caller might request the flush.

        Raises:
            CleanerError: as `PartitionWriter.fence`.
        """
        marker_offset = self._writer.fence(*identity)
        if marker_offset is not None:
            self._flusher.appended()
            self._flusher.durable(marker_offset)

    def flush(self) -> int:
        """
        Wait until everything appended before the call is on disk; returns the flushed offset, exclusive.

        Raises:
            FailedFsyncError, LogClosedError: it is not, and will not be.
        """
        self._writer.require_open()
        return self._flusher.flush()

    def roll(self) -> None:
        """Begin a new segment, so that everything before may be cleaned; raises as `append`."""
        self._writer.roll()

    def truncate_to(self, offset: int) -> None:
        """
        Cut the log at an offset, durably; within a batch, where the last batch below it ends.

        Transactions that are open, or whose end is cut off, are aborted, and their producers are fenced off.

        Raises:
            OffsetOutOfRangeError: below the log start or beyond the log end.
            LogChangedError, LogDirOfflineError, CorruptLogError, OutOfDescriptorsError: nothing has changed.
            LogClosedError, ForkedError: it was closed, or had to be, because the disk failed on the way; or it was
                opened by this process's parent.
        """
        self._writer.truncate_to(arguments.whole("offset", offset))

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> LogReader:
        """
        The log's reader: the methods below, as an object. One per log, safe to share between threads.

        Raises:
            LogClosedError, ForkedError: the log is closed, or was opened by this process's parent.
        """
        self._writer.require_open()
        return self._reader

    read = _of_reader(LogReader.read)
    columns = _of_reader(LogReader.columns)
    follow = _of_reader(LogReader.follow)
    latest = _of_reader(LogReader.latest)
    table = _of_reader(LogReader.table)
    offset_for_time = _of_reader(LogReader.offset_for_time)

    def offsets(self, group: str) -> GroupOffsets:
        """
        Return the stored place of a group of readers, kept in the log dirs as Kafka keeps it.

        Raises:
            UsageError: an empty name, or one of more than 32767 bytes.
            LogClosedError, ForkedError: the log is closed, or was opened by this process's parent.
        """
        self._writer.require_open()
        if self._offsets is None:
            raise UsageError(f"{self.topic_partition}: a log without a manager has no place for offsets")
        return self._offsets(group, self.topic_partition)

    # ---- producers -------------------------------------------------------------------------------------------------

    def producer(
        self,
        transactional_id: str | None = None,
        *,
        resume: bool = False,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
    ) -> LogProducer:
        """
        Make a producer, whose appends are numbered so that repeats are recognised.

        Args:
            transactional_id: allows transactions; the earlier instance with this id is fenced off, and its open
                transaction is aborted.
            resume: the id names a producer without transactions that goes on where it was, in this process or an
                earlier one: `next_sequence` is how many records the log has taken from it. The same object each time.
            transaction_timeout_ms: a transaction that takes longer is aborted, and its producer fenced off.
        Raises:
            UsageError: an empty id, or a timeout that is not above 0; an id used both with and without `resume`.
            CorruptCheckpointError: the file of transactional ids is damaged.
            LogClosedError, NoSpaceError, LogDirOfflineError: as `append`.
        """
        self._writer.require_open()
        timeout_ms = arguments.whole("transaction_timeout_ms", transaction_timeout_ms)
        if arguments.flag("resume", resume):
            return self._resume(
                "" if transactional_id is None else arguments.text("transactional_id", transactional_id)
            )
        if transactional_id is None:
            return LogProducer(self, self._writer, self._clock, Identity(new_producer_id(), 0))
        if not arguments.text("transactional_id", transactional_id) or timeout_ms <= 0:
            raise UsageError(f"transactional id {transactional_id!r} with a timeout of {timeout_ms} ms")
        with self._guard:
            now_ms = self._clock.now_ms()
            identity = self._writer.run(lambda log: self._ids.begin(transactional_id, log.producers.epoch_of, now_ms))
            before = self._producers.get(transactional_id)
            if before is not None and before.identity.producer_id != identity.producer_id:
                self.fence(before.identity._replace(epoch=before.identity.epoch + 1))
            self.fence(identity)
            made = LogProducer(
                self,
                self._writer,
                self._clock,
                identity,
                ids=self._ids,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            self._producers[transactional_id] = made
            return made

    def _resume(self, name: str) -> LogProducer:
        if not name:
            raise UsageError("a producer that resumes needs an id, under which it is found again")
        with self._guard:
            if name not in self._resumed:
                identity = self._writer.run(lambda log: resume_producer(log, self._ids, name, self._clock.now_ms()))
                self._resumed[name] = LogProducer(self, self._writer, self._clock, identity, name=name)
            return self._resumed[name]

    def end_late_transactions(self) -> int:
        """
        Abort the transactions that take longer than their timeout; returns how many. To be called at intervals.

        Raises:
            CleanerError: one could not be aborted; it is tried again the next time.
        """
        self._writer.origin.require_own()
        with self._guard:
            producers = list(self._producers.values())
        now_ms = self._clock.now_ms()
        return sum(producer.end_if_late(now_ms) for producer in producers)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """
        Leave the log as a clean stop does, with no transaction open.

        No process could end them later. A broker that takes the log over knows no coordinator for them either, and
        would let readers of committed records wait at the first of them forever.

        Raises:
            CleanerError: as `PartitionWriter.close`; it is closed anyway.
            LogWriteError: called by a signal handler in the middle of another call; it is open.
            ForkedError: it is the parent's, and stays open there. Leaving the block does not close it.
        """
        self._writer.origin.require_own()
        require_uninterrupted(self.directory)
        self._close()

    def _close(self) -> None:
        try:
            if not self._writer.is_closed:
                self._writer.require_open()
                self._writer.run(lambda log: log.end_open_transactions())
        finally:
            try:
                self._writer.close()
            finally:
                self._flusher.close()
                self._reader.close()

    def abandon(self) -> None:
        """Close the files and leave the log as it is, as a killed process would."""
        self._writer.origin.require_own()
        require_uninterrupted(self.directory)
        self._abandon()

    def _abandon(self) -> None:
        self._writer.abandon()
        self._flusher.close()
        self._reader.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ForkedError):
            self.close()


def close_log(log: Log) -> None:
    """Do as `Log.close`, for a manager, which has asked whether this thread is in the middle of another call."""
    log._close()


def abandon_log(log: Log) -> None:
    """The same for `Log.abandon`."""
    log._abandon()
