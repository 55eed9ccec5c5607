"""
The one writer of a partition, for many threads: append, roll, cut, flush, close.

An append is all or nothing: an error that is reported has left the log as it was; one that is interrupted was made or
not. A crash in the middle of one leaves no part of it if it is one batch, and perhaps the first of its batches
otherwise. A failed fsync closes the log for good (C-2).

Records are encoded before the lock is taken, and forced to disk after it was given back (`guarded_log.py`): a flush
does not hold up appends. What is done under the lock is told in `writable_log.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import OffsetOutOfRangeError
from cleaner.log.epochs import EpochEnd
from cleaner.log.guarded_log import GuardedLog
from cleaner.log.new_batches import build_batches
from cleaner.log.opening import OpenedLog, open_log
from cleaner.log.producers import EndedTransaction
from cleaner.log.record import ProducerStamp, Records
from cleaner.log.retention import ExpiredSegments
from cleaner.log.writable_log import WritableLog, WriterOptions
from cleaner.policy.retention import KeptLog
from cleaner.storage.log_dir import LogDir

__all__ = ["AppendResult", "PartitionWriter", "WriterOptions"]


class AppendResult(NamedTuple):
    """Where an append lies, both inclusive; `is_repeat`: it was there before, by the same producer."""

    base_offset: int
    last_offset: int
    append_time_ms: int | None
    is_repeat: bool = False


class PartitionWriter:
    """
    The writer of one partition; made by `open`. Safe to share between threads, not with a forked child.

    Attributes:
        topic_partition: whose log it is.
        directory: the partition's.
        origin: the process that may use it: all calls and offsets raise ForkedError in a fork.
        truncated_bytes: what recovery has cut off when it was opened.
        on_append: called after the log end, what is flushed or stable, or the log start has moved, and when the log is
            closed; by the thread that did it, holding no lock. Must be quick and not raise.
    """

    def __init__(
        self, log_dir: LogDir, opened: OpenedLog, topic: TopicConfig, clock: Clock, options: WriterOptions
    ) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.log_dir = log_dir
        self.truncated_bytes = opened.truncated_bytes
        self.on_append: list[Callable[[], None]] = []
        self._clock = clock
        self._options = options
        # Single numbers are read without the guard.
        self._log = WritableLog(log_dir, opened, topic, clock, options)
        self._guard = GuardedLog(self._log, self.directory, self._tell)
        self.origin = self._guard.origin

    @staticmethod
    def open(
        log_dir: LogDir,
        topic_partition: TopicPartition,
        topic: TopicConfig,
        clock: Clock,
        *,
        was_closed: bool,
        allow_truncate: bool = True,
        options: WriterOptions | None = None,
    ) -> PartitionWriter:
        """
        Load a partition's log, recover it if need be, and go on from its end; an empty directory becomes a new log.

        Transactions that were left open are aborted: nobody is there who could end them.

        Args:
            log_dir: the caller has its lock as a writer (`locks.acquire_for_writing`).
            was_closed: its clean-shutdown marker was there; it is removed by now.
            allow_truncate: let recovery cut even what a checkpoint says is on disk.
        Raises:
            CorruptLogError: damage that recovery does not mend.
            TruncationRefusedError: recovery would have to; nothing was changed.
            LogChangedError: somebody else held the partition's lock all the time.
            LogDirOfflineError, NoSpaceError: the disk.
        """
        chosen = options or WriterOptions()
        opened = open_log(
            log_dir,
            topic_partition,
            topic,
            clock,
            was_closed=was_closed,
            allow_truncate=allow_truncate,
            producer_id_expiration_ms=chosen.producer_id_expiration_ms,
        )
        writer = PartitionWriter(log_dir, opened, topic, clock, chosen)
        try:
            writer._guard.run(lambda log: log.abort_open_transactions())
        except BaseException:
            writer.abandon()
            raise
        return writer

    def __repr__(self) -> str:
        return f"PartitionWriter({self.directory}, [{self._log.log_start_offset}, {self._log.log_end_offset}))"

    # ---- what it is like -------------------------------------------------------------------------------------------

    @property
    def topic(self) -> TopicConfig:
        """The topic's settings, as they count for what is appended next."""
        return self._own.topic

    @topic.setter
    def topic(self, topic: TopicConfig) -> None:
        with self._guard.lock:
            self._log.configure(topic)

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for."""
        return self._own.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._own.log_end_offset

    @property
    def flushed_offset(self) -> int:
        """All below is on disk."""
        return self._own.flushed_offset

    @property
    def high_watermark(self) -> int:
        """The same by its name in Kafka: the log has no other replicas."""
        return self._own.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records go up to here: the first transaction not decided, at most the high watermark."""
        with self._guard.lock:
            return self._log.last_stable_offset

    @property
    def log_start_checkpoint(self) -> int | None:
        """The line of `log-start-offset-checkpoint`; None when the first segment says as much (R-118)."""
        return self._own.log_start_checkpoint

    @property
    def active_base_offset(self) -> int:
        """Base offset of the segment that is appended to."""
        return self._own.active.base_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._own.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended, as Kafka answers OffsetsForLeaderEpoch."""
        with self._guard.lock:
            return self._log.epochs.end_offset_for(epoch, self._log.log_end_offset)

    @property
    def _own(self) -> WritableLog:
        """The log, for single numbers. Raises ForkedError: in a fork they stand still."""
        if self.origin.is_parents:
            self.origin.require_own()
        return self._log

    # ---- open and closed -------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed, or had to be."""
        self.origin.require_own()
        return self._guard.is_closed

    def require_open(self) -> None:
        """Make sure that the log can be used, and by this process; raises as `GuardedLog.require_open`."""
        self._guard.require_open()

    def require_closed_in_order(self) -> None:
        """
        Make sure that the log was left as a clean stop leaves it: else its log dir must get no marker.

        Raises:
            LogClosedError: why it was not.
        """
        self._guard.require_closed_in_order()

    def close(self) -> None:
        """Leave the log as a clean stop does; see `GuardedLog.close`."""
        self._guard.close()

    def abandon(self) -> None:
        """Let go of the files and leave the log as it is, as a killed process would."""
        self._guard.abandon()

    def _tell(self) -> None:
        for listener in tuple(self.on_append):
            listener()

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Records,
        *,
        producer: ProducerStamp | None = None,
        may_repeat: bool = True,
    ) -> AppendResult:
        """
        Append records; all of them, or none and an error.

        Args:
            records: at least one.
            producer: with the sequence of the first record; for who wants repeats recognised, or a transaction.
            may_repeat: False: these are new records, whatever their sequence says.
        Raises:
            UsageError: no records, columns of different lengths, or what is not bytes; names the record and its field.
            KeylessRecordError, InvalidTimestampError, RecordTooLargeError: see there.
            OutOfOrderSequenceError, ProducerFencedError, InvalidTxnStateError: see there.
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError, LogChangedError: the disk, too many open files, or
                somebody has the partition's lock for good; nothing was appended.
            LogClosedError: the log is closed, or had to be, as what was written could not be taken back.
        """
        self.require_open()
        new = build_batches(
            str(self.topic_partition),
            records,
            self._log.topic,
            now_ms=self._clock.now_ms(),
            batch_bytes=self._options.batch_bytes,
            producer=producer,
        )

        def append(log: WritableLog) -> AppendResult:
            if producer is not None:
                repeated = log.producers.find_repeat(producer, new.record_count) if may_repeat else None
                if repeated is not None:
                    return AppendResult(repeated.base_offset, repeated.last_offset, new.append_time_ms, True)
                log.producers.check(producer)
            base_offset = log.append(new, producer)
            return AppendResult(base_offset, base_offset + new.record_count - 1, new.append_time_ms)

        try:
            return self._guard.run(append)
        finally:
            new.let_go()

    def roll(self) -> None:
        """Begin a new segment, so that all before may be cleaned; nothing happens while the active one is empty."""
        self._guard.run(lambda log: log.roll())

    def flush_to_disk(self) -> int:
        """
        Force all that was appended up to now to disk; returns the offset up to which, exclusive, all is there.

        Raises:
            FailedFsyncError: now or earlier; what is on disk beyond `flushed_offset` is not known.
            LogClosedError: closed meanwhile.
        """
        return self._guard.flush_to_disk()

    # ---- transactions ----------------------------------------------------------------------------------------------

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """
        Append the marker that ends a producer's transaction, or raises its epoch; returns the marker's offset.

        Raises:
            ProducerFencedError: the epoch is over.
            LogClosedError, NoSpaceError, LogDirOfflineError: as `append`.
        """
        return self._guard.run(lambda log: log.end_transaction(producer_id, epoch, commit=commit))

    def fence(self, producer_id: int, epoch: int) -> int | None:
        """
        Take nothing more from a producer with an epoch below this one, and abort its transaction if one is open.

        Returns:
            The offset of the marker; None without a transaction.
        Raises:
            LogClosedError, NoSpaceError, LogDirOfflineError: as `append`.
        """
        return self._guard.run(lambda log: log.fence(producer_id, epoch))

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Return the sequence that the log expects of a producer's epoch; None where it knows none of its appends."""
        with self._guard.lock:
            return self._log.producers.next_sequence(producer_id, epoch)

    def last_end(self, producer_id: int) -> EndedTransaction | None:
        """Return how a producer's last transaction ended; None where none has since the log was loaded."""
        with self._guard.lock:
            return self._log.producers.last_end(producer_id)

    def has_open_transaction(self, producer_id: int) -> bool:
        """Tell whether a producer has a transaction open."""
        with self._guard.lock:
            return self._log.producers.has_open_transaction(producer_id)

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        with self._guard.lock:
            return self._log.producers.open_transactions()

    def producer_epoch(self, producer_id: int) -> int:
        """Return the epoch of a producer, -1 when it is not known."""
        with self._guard.lock:
            return self._log.producers.epoch_of(producer_id)

    def require_epoch(self, producer_id: int, epoch: int) -> None:
        """Make sure that a producer's epoch is not over; raises ProducerFencedError."""
        with self._guard.lock:
            self._log.producers.check_marker(producer_id, epoch)

    def expire_producers(self) -> None:
        """Forget producers idle for `producer.id.expiration.ms`."""
        with self._guard.lock:
            self._log.producers.expire(self._clock.now_ms(), self._options.producer_id_expiration_ms)

    # ---- cutting and expiring --------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """
        Cut the log so that it ends at an offset, durably; a leader epoch begins, so that readers can tell.

        Where the offset lies within a batch, or behind records that cleaning has removed, the log ends where the last
        batch below it ends. Transactions whose end is cut off are aborted, and so are those that are open: their
        producers are fenced off.

        Raises:
            OffsetOutOfRangeError: below the log start or beyond the log end.
            LogChangedError, LogDirOfflineError, CorruptLogError, OutOfDescriptorsError: nothing has changed.
            LogClosedError: it was closed, or had to be, as the disk failed on the way.
        """

        def truncate(log: WritableLog) -> None:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise OffsetOutOfRangeError(self.directory, offset, log.log_start_offset, log.log_end_offset)
            if offset < log.log_end_offset:
                log.truncate(offset)

        self._guard.run(truncate)

    def expire(self, choose: Callable[[KeptLog], int]) -> ExpiredSegments:
        """
        Set aside as many of the oldest segments as `choose` says, given the log; their files are to be removed later.

        Raises:
            LogDirOfflineError, NoSpaceError, LogChangedError, CorruptLogError: what has gone is gone.
            LogClosedError: it was closed, or an fsync failed.
        """
        return self._guard.run(lambda log: log.expire(choose))
