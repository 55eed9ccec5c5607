"""
The one writer of a partition, for many threads: append, roll, cut, flush, close.

An append is all or nothing: after an error the log is unchanged; an interrupted append was made or not. A crash during
an append leaves no part of it if it is one batch, and otherwise perhaps its first batches.

Each step (`writable_log.py`) runs alone, under one lock. Records are encoded before the lock is taken and forced to
disk after it is released: neither blocks another thread's append.

The log is closed permanently when its state on disk is unknown: after a failed fsync (C-2), or when a step stopped in
the middle and could not be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CleanerError,
    FailedFsyncError,
    LogClosedError,
    LogWriteError,
    OffsetOutOfRangeError,
    disk_error,
)
from cleaner.log.epochs import EpochEnd
from cleaner.log.interrupted import in_the_middle, require_unheld
from cleaner.log.new_batches import build_batches
from cleaner.log.opening import OpenedLog, open_log
from cleaner.log.origin import Origin
from cleaner.log.record import ProducerStamp, Records
from cleaner.log.retention import ExpiredSegments, expire
from cleaner.log.writable_log import WritableLog, WriterOptions
from cleaner.policy.retention import KeptLog
from cleaner.storage.fs.file_system import disk_errors
from cleaner.storage.log_dir import LogDir

__all__ = ["AppendResult", "PartitionWriter", "WriterOptions"]

_Result = TypeVar("_Result")


class AppendResult(NamedTuple):
    """The offsets of an append, both inclusive; `is_repeat`: the same producer had appended it before."""

    base_offset: int
    last_offset: int
    append_time_ms: int | None
    is_repeat: bool = False


class PartitionWriter:
    """
    The writer of one partition; made by `open`. Safe to share between threads, not with a forked child.

    Attributes:
        topic_partition: the partition.
        directory: the partition's.
        origin: the process that may use it: all calls and offsets raise ForkedError in a fork.
        truncated_bytes: how much recovery cut off at the opening.
        on_append: called after log end, flushed, stable or log start offset has moved, and when the log is closed; by
            the thread that did it, without a lock held. Must be quick and not raise.
    """

    def __init__(
        self, log_dir: LogDir, opened: OpenedLog, topic: TopicConfig, clock: Clock, options: WriterOptions
    ) -> None:
        self.topic_partition = opened.topic_partition
        self._name = str(opened.topic_partition)
        self.directory = opened.directory
        self.log_dir = log_dir
        self.truncated_bytes = opened.truncated_bytes
        self.on_append: list[Callable[[], None]] = []
        self._clock = clock
        self._options = options
        self.origin = Origin(self.directory)
        self._lock = concurrency.RLock()
        # Guarded by _lock, except single numbers of the log.
        self._log = WritableLog(log_dir, opened, topic, clock, options)
        self._end: LogClosedError | None = None
        self._was_closed_in_order = False
        # Seen by others as False: only the thread that holds the lock can meet itself here.
        self._is_running = False

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
        Load a partition's log, recover it if needed, and go on from its end; an empty directory becomes a new log.

        Open transactions are aborted: no process could end them any more.

        Args:
            log_dir: the caller has its lock as a writer (`log_dir_lock.acquire_for_writing`).
            was_closed: it had a clean-shutdown marker, which is removed by now.
            allow_truncate: let recovery cut below the checkpoint's recovery point.
        Raises:
            CorruptLogError: damage that recovery does not repair.
            TruncationRefusedError: recovery would have to cut below it; nothing was changed.
            LogChangedError: another process did not release the partition's lock.
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
            has_controller=chosen.has_controller,
            producer_id_expiration_ms=chosen.producer_id_expiration_ms,
        )
        writer = PartitionWriter(log_dir, opened, topic, clock, chosen)
        try:
            writer.run(lambda log: log.end_open_transactions())
        except BaseException:
            writer.abandon()
            raise
        return writer

    def __repr__(self) -> str:
        return f"PartitionWriter({self.directory}, [{self._log.log_start_offset}, {self._log.log_end_offset}))"

    # ---- what it is like -------------------------------------------------------------------------------------------

    @property
    def topic(self) -> TopicConfig:
        """The topic's settings, as used for the next append."""
        return self._own.topic

    @topic.setter
    def topic(self, topic: TopicConfig) -> None:
        """Change them, from the next append on. Raises ForkedError."""
        self.under_lock(lambda log: log.configure(topic))

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
        """Everything below is on disk."""
        return self._own.flushed_offset

    @property
    def high_watermark(self) -> int:
        """The same by Kafka's name: the log has no other replicas."""
        return self._own.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records go up to here: the first transaction not decided, at most the high watermark."""
        return self.under_lock(lambda log: log.last_stable_offset)

    @property
    def log_start_checkpoint(self) -> int | None:
        """The line of `log-start-offset-checkpoint`; None when the first segment says as much (R-118)."""
        return self._own.log_start_checkpoint

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._own.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended, as Kafka answers OffsetsForLeaderEpoch."""
        return self.under_lock(lambda log: log.epochs.end_offset_for(epoch, log.log_end_offset))

    @property
    def _own(self) -> WritableLog:
        """The log, for single numbers. Raises ForkedError: in a fork they stand still."""
        if self.origin.is_parents:
            self.origin.require_own()
        return self._log

    def under_lock(self, work: Callable[[WritableLog], _Result]) -> _Result:
        """Read more than a single number, while no step changes the log; closed or not. Raises ForkedError."""
        # In a fork the lock may be held by a thread that does not exist there.
        self.origin.require_own()
        with self._lock:
            return work(self._log)

    # ---- one step at a time, until it is closed --------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed, or had to be."""
        self.origin.require_own()
        return self._end is not None

    def require_open(self) -> None:
        """
        Make sure that the log can be used, and by this process.

        Raises:
            LogClosedError, FailedFsyncError, ForkedError: see there.
        """
        if self.origin.is_parents:
            self.origin.require_own()
        if self._end is not None:
            raise self._end.with_traceback(None)

    def _require_usable(self) -> None:
        """As `require_open`, for the holder of the lock, who can tell whether a step stopped in the middle."""
        if self._log.is_in_doubt and not self._is_running:
            self._close_if_in_doubt("an exception")
        self.require_open()

    def require_closed_in_order(self) -> None:
        """
        Make sure that the log was left as a clean stop leaves it: else its log dir must get no marker.

        Raises:
            LogClosedError: why it was not.
        """
        if not self._was_closed_in_order:
            raise self._end or LogClosedError(self.directory, "it is still open")

    def run(self, step: Callable[[WritableLog], _Result]) -> _Result:
        """
        Take one step under the lock; if the state of the log is unknown afterwards, it is closed permanently.

        Raises:
            LogClosedError, FailedFsyncError, ForkedError: see `require_open`.
            LogWriteError: called by a signal handler in the middle of another step of this thread.
            LogDirOfflineError, OutOfDescriptorsError: an `OSError` of the step.
        """
        # Before the lock, too: in a forked child it may be held by a thread that does not exist there.
        self.require_open()
        try:
            # The lock itself, not a function that takes it: no interrupt can come between the lock and the block.
            with self._lock:
                self._require_usable()
                if self._is_running:
                    raise in_the_middle(self.directory)
                self._is_running = True
                try:
                    try:
                        return step(self._log)
                    except OSError as error:
                        raise disk_error(self.directory, error) from error
                except LogClosedError as error:
                    self._close_permanently(error)
                    raise
                except BaseException as error:
                    self._close_if_in_doubt(type(error).__name__)
                    raise
                finally:
                    self._is_running = False
        finally:
            self._notify_listeners()

    def require_idle(self) -> None:
        """
        Make sure that this thread is not in the middle of a step, which would go on with closed files, or wait forever.

        Raises:
            LogWriteError: called by a signal handler.
        """
        require_unheld(self._lock, self.directory)

    def close(self) -> None:
        """
        Leave the log as a clean stop does: trimmed, flushed, with a snapshot at its end. A second call does nothing.

        Raises:
            FailedFsyncError, LogDirOfflineError, NoSpaceError, LogChangedError: that failed; it is closed anyway.
            ForkedError: it belongs to the parent.
        """
        self.origin.require_own()
        with self._lock:
            self._close_if_in_doubt("an exception")
            if self._end is not None:
                # Once more, as the first time may have been interrupted.
                self._log.release()
                return
            try:
                with disk_errors(self.directory):
                    self._log.finish()
                self._was_closed_in_order = True
            except LogClosedError as error:
                self._close_permanently(error)
                raise
            except CleanerError as error:
                self._close_permanently(LogClosedError(self.directory, f"closing it failed: {error}"))
                raise
            finally:
                self._close_permanently(LogClosedError(self.directory))
                self._notify_listeners()

    def abandon(self) -> None:
        """Close the files and leave the log as it is, as a killed process would. Raises ForkedError."""
        self.origin.require_own()
        with self._lock:
            self._close_permanently(LogClosedError(self.directory))
        self._notify_listeners()

    def _close_if_in_doubt(self, what: str) -> None:
        if self._log.is_in_doubt:
            reason = f"{what} came in the middle of a change; open the log again"
            self._close_permanently(LogClosedError(self.directory, reason))

    def _close_permanently(self, end: LogClosedError) -> None:
        if self._end is None:
            self._end = end
        self._log.release()

    def _notify_listeners(self) -> None:
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
            producer: with the sequence of the first record; for recognised repeats, or for a transaction.
            may_repeat: False: these are new records, whatever their sequence says.
        Raises:
            UsageError: no records, columns of different lengths, or values that are not bytes; names record and field.
            KeylessRecordError, InvalidTimestampError, RecordTooLargeError: see there.
            OutOfOrderSequenceError, ProducerFencedError, InvalidTxnStateError: see there.
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError, LogChangedError: the disk, too many open files, or
                another process does not release the partition's lock; nothing was appended.
            LogClosedError: the log is closed, or had to be, because a write could not be undone.
        """
        self.require_open()
        new = build_batches(
            self._name,
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
            return self.run(append)
        finally:
            new.return_buffers()

    def roll(self) -> None:
        """Begin a new segment, so that everything before may be cleaned; does nothing while the active one is empty."""
        self.run(lambda log: log.roll())

    def flush_to_disk(self) -> int:
        """
        Force everything appended before the call to disk; returns the flushed offset, exclusive.

        Raises:
            FailedFsyncError: now or earlier; it is unknown what is on disk beyond `flushed_offset`.
            LogClosedError: it was closed during the call.
            LogWriteError: called by a signal handler in the middle of an fsync of this thread.
        """
        self.require_open()
        with self._lock:
            self._require_usable()
            end, segment = self._log.log_end_offset, self._log.active
            if end == self._log.flushed_offset:
                return end
        error: CleanerError | None = None
        try:
            segment.fsync_log()
        except LogWriteError:
            raise
        except CleanerError as failed:
            error = failed
        with self._lock:
            if error is not None:
                self._close_permanently(FailedFsyncError(self.directory, error))
            # A roll has already noted it; after a cut other records have these offsets.
            elif not segment.is_retired:
                self._log.note_flushed(end)
            flushed, is_other = self._log.flushed_offset, self._log.active is not segment
        self._notify_listeners()
        self.require_open()
        # A roll was interrupted before it had noted it, or the log was cut.
        return self.flush_to_disk() if flushed < end and is_other else flushed

    # ---- producers -------------------------------------------------------------------------------------------------

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """End a producer's transaction, or raise its epoch; see `WritableLog.end_transaction`."""
        return self.run(lambda log: log.end_transaction(producer_id, epoch, commit=commit))

    def fence(self, producer_id: int, epoch: int) -> int | None:
        """Fence a producer's earlier epochs off; see `WritableLog.fence`."""
        return self.run(lambda log: log.fence(producer_id, epoch))

    def expire_producers(self) -> None:
        """Forget producers idle for `producer.id.expiration.ms`."""
        now_ms, expiration_ms = self._clock.now_ms(), self._options.producer_id_expiration_ms
        self.under_lock(lambda log: log.producers.expire(now_ms, expiration_ms))

    # ---- cutting and expiring --------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """
        Cut the log at an offset, durably; a leader epoch begins, so that readers notice the cut.

        If the offset is within a batch, or after records that cleaning has removed, the log ends where the last batch
        below it ends. Transactions that are open, or whose end is cut off, are aborted, and their producers are fenced
        off.

        Raises:
            OffsetOutOfRangeError: below the log start or beyond the log end.
            LogChangedError, LogDirOfflineError, CorruptLogError, OutOfDescriptorsError: nothing has changed.
            LogClosedError: it was closed, or had to be, because the disk failed on the way.
        """

        def truncate(log: WritableLog) -> None:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise OffsetOutOfRangeError(self.directory, offset, log.log_start_offset, log.log_end_offset)
            if offset < log.log_end_offset:
                log.truncate(offset)

        self.run(truncate)

    def expire(self, choose: Callable[[KeptLog], int]) -> ExpiredSegments:
        """Set the oldest segments aside, as many as `choose` says; see `retention.expire`."""
        return self.run(lambda log: expire(log, choose))
