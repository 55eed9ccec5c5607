"""
The one writer of a partition: append, roll, cut, flush, close.

What other processes rely on is told in `docs/coexistence.md`: names in the partition's directory change only under the
partition's lock, and a new `.log` is published only when all before it is trimmed, flushed and snapshotted. Between two
rolls nothing but the end of the active segment changes, which nobody else looks at but readers.

An append is all or nothing: an error that is reported has left the log as it was. (A process killed in the middle of
one may leave its first batches; it has not answered then.) A failed fsync closes the log for good (R3).

Threads may call everything at once. Records are encoded before the lock is taken, and forced to disk after it was given
back, so a flush does not hold up appends.

Source: rules R-123, R-126, R-407, R-641, R-653, R-920, R-921; `UnifiedLog.java`.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cleaner.clock import Clock
from cleaner.config import TopicConfig
from cleaner.errors import (
    CleanerError,
    FailedFsyncError,
    ForkedError,
    KeylessRecordError,
    LogClosedError,
    LogDirOfflineError,
    NoSpaceError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UsageError,
)
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import CODEC_NAMES, NONE
from cleaner.format.encode import (
    NO_PRODUCER,
    BatchProducer,
    Columns,
    NewBatch,
    encode_batches,
    join_columns,
    marker_batch,
    place,
)
from cleaner.logs.active_segment import ActiveSegment, Mark, create_segment
from cleaner.logs.epochs import EpochEnd, LeaderEpochs
from cleaner.logs.opening import OpenedLog, cut_log, open_log
from cleaner.logs.producers import KnownProducer, Producers
from cleaner.logs.record import ProducerStamp, Record, RecordColumns
from cleaner.logs.retention import Expired, KeptLog
from cleaner.model import TopicPartition
from cleaner.policy.retention import RetentionSegment
from cleaner.storage import names
from cleaner.storage.expiry import list_deleted, set_aside
from cleaner.storage.fs import FileSystem
from cleaner.storage.generation import raise_generation
from cleaner.storage.leftovers import settle_swap
from cleaner.storage.log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.partition_lock import partition_lock
from cleaner.storage.producer_snapshot import write_snapshot
from cleaner.storage.segment import Segment

BATCH_BYTES = 64 << 10
"""A batch is full then, unpacked. Larger ones hardly pack better, and who reads one record has to unpack them all."""

_KEPT_BUFFER_BYTES = 16 << 20
_UNCOMPRESSED = ("producer", "uncompressed")  # what a producer packs with by default is nothing


class _Buffers(threading.local):
    """What a thread encodes into, kept for its next append."""

    def __init__(self) -> None:
        self.batches = GrowingBuffer()
        self.records = GrowingBuffer()

    def shrink(self) -> None:
        self.batches.shrink(_KEPT_BUFFER_BYTES)
        self.records.shrink(_KEPT_BUFFER_BYTES)


_buffers = _Buffers()


class AppendResult(NamedTuple):
    """Where an append lies; `is_repeat`: it was there before."""

    base_offset: int
    last_offset: int
    append_time_ms: int | None
    is_repeat: bool = False


@dataclass(frozen=True)
class WriterOptions:
    """
    What a writer is opened with.

    Attributes:
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        batch_bytes: what a batch of several records may take unpacked.
        random: chooses each segment's jitter (R-804).
    """

    producer_id_expiration_ms: int = 86_400_000
    batch_bytes: int = BATCH_BYTES
    random: random.Random = field(default_factory=random.SystemRandom)


class PartitionWriter:
    """
    The writer of one partition; made by `open`. Safe to share between threads, not with a forked child.

    Attributes:
        topic_partition: whose log it is.
        directory: the partition's.
        truncated_bytes: what recovery has cut off when it was opened.
        on_append: called after the log end, what is flushed or stable, or the log start has moved, and when the log is
            closed; by the thread that did it, holding no lock. Must be quick and not raise.
    """

    def __init__(
        self, log_dir: LogDir, opened: OpenedLog, topic: TopicConfig, clock: Clock, options: WriterOptions
    ) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.truncated_bytes = opened.truncated_bytes
        self.on_append: list[Callable[[], None]] = []
        self._log_dir = log_dir
        self._fs: FileSystem = log_dir.fs
        self._clock = clock
        self._options = options
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # All below is guarded by _lock.
        self._topic = topic
        self._error: LogClosedError | None = None
        self._is_in_order = False
        self._take(opened)

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
            TruncationRefusedError: recovery would have to; nothing was changed.
            CorruptLogError: damage that recovery does not mend.
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
            producer_id_expiration_ms=chosen.producer_id_expiration_ms,
            allow_truncate=allow_truncate,
        )
        writer = PartitionWriter(log_dir, opened, topic, clock, chosen)
        try:
            writer._abort_open_transactions()
        except BaseException:
            writer.abandon()
            raise
        return writer

    def _take(self, opened: OpenedLog) -> None:
        self._log_start_offset = opened.log_start_offset
        self._first_base_offset = opened.first_base_offset
        self._log_end_offset = self._flushed_offset = opened.log_end_offset
        self._producers = Producers(str(self.topic_partition), opened.producers)
        self._epochs = LeaderEpochs(self._fs, self.directory, opened.epochs)
        if self._epochs.latest < opened.epoch:
            self._epochs.begin(opened.epoch, opened.log_end_offset)
        self._active = self._open_active(opened.active_segment)

    def _open_active(self, segment: Segment) -> ActiveSegment:
        most_ms = min(self._topic.segment_jitter_ms, self._topic.segment_ms)
        jitter_ms = self._options.random.randrange(most_ms) if most_ms else 0
        return ActiveSegment(self._fs, segment, self._topic, now_ms=self._clock.now_ms(), jitter_ms=jitter_ms)

    def __repr__(self) -> str:
        return f"PartitionWriter({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    # ---- what it is like -------------------------------------------------------------------------------------------

    @property
    def topic(self) -> TopicConfig:
        """The topic's settings, as they count for what is appended next."""
        return self._topic

    @topic.setter
    def topic(self, topic: TopicConfig) -> None:
        with self._lock:
            self._topic = topic
            self._active.topic = topic

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may ask for."""
        return self._log_start_offset

    @property
    def log_start_checkpoint(self) -> int | None:
        """The line of `log-start-offset-checkpoint`; None where the first segment says as much (R-118)."""
        start = self._log_start_offset
        return start if start > self._first_base_offset else None

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._log_end_offset

    @property
    def flushed_offset(self) -> int:
        """All below is on disk; the high watermark of a log that has no other replicas."""
        return self._flushed_offset

    @property
    def high_watermark(self) -> int:
        """The same by its name in Kafka."""
        return self._flushed_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records go up to here: the first transaction not decided, at most the high watermark."""
        with self._lock:
            unstable = self._producers.first_unstable_offset()
            return self._flushed_offset if unstable is None else min(unstable, self._flushed_offset)

    @property
    def active_base_offset(self) -> int:
        """Base offset of the segment that is appended to."""
        return self._active.base_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return where a leader epoch ended, as Kafka answers OffsetsForLeaderEpoch."""
        with self._lock:
            return self._epochs.end_offset_for(epoch, self._log_end_offset)

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed, or a failed fsync has closed it."""
        return self._error is not None

    def require_open(self) -> None:
        """
        Make sure that the log can be used by this process.

        Raises:
            LogClosedError, FailedFsyncError, ForkedError: see there.
        """
        if os.getpid() != self._pid:
            raise ForkedError(self.directory, self._pid)
        error = self._error
        if error is not None:
            raise error.with_traceback(None)

    def _tell(self) -> None:
        for listener in tuple(self.on_append):
            listener()

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(
        self, records: Sequence[Record] | RecordColumns, *, producer: ProducerStamp | None = None
    ) -> AppendResult:
        """
        Append records; all of them, or none and an error.

        Args:
            records: at least one.
            producer: of the first record, where a producer wants repeats recognised, or a transaction.
        Raises:
            UsageError: no records, columns of different lengths, or what is not bytes.
            KeylessRecordError, RecordTooLargeError: see there.
            OutOfOrderSequenceError, ProducerFencedError, InvalidTxnStateError: see there.
            NoSpaceError, LogDirOfflineError: the disk; nothing was appended.
            LogClosedError: the log is closed, or had to be closed now, as what was written could not be taken back.
        """
        self.require_open()
        now_ms = self._clock.now_ms()
        topic = self._topic
        columns = self._join(records, now_ms)
        if topic.compact and columns.has_null_keys:
            row = int(columns.key_lengths.argmin())
            raise KeylessRecordError(str(self.topic_partition), f"record {row} has no key, and the topic is compacted")
        append_time_ms = now_ms if topic.message_timestamp_type == "LogAppendTime" else None
        stamp = NO_PRODUCER if producer is None else BatchProducer(*producer)
        batches = self._encode(columns, topic, append_time_ms, stamp)
        try:
            with self._lock:
                self.require_open()
                if producer is not None:
                    repeated = self._producers.find_repeat(producer, len(columns))
                    if repeated is not None:
                        return AppendResult(repeated.base_offset, repeated.last_offset, append_time_ms, is_repeat=True)
                    self._producers.check(producer)
                base_offset = self._log_end_offset
                place(_buffers.batches.view, batches, base_offset, self._epochs.latest)
                self._write(_buffers.batches.view, batches, now_ms, producer)
        finally:
            _buffers.shrink()
        self._tell()
        return AppendResult(base_offset, base_offset + len(columns) - 1, append_time_ms)

    @staticmethod
    def _join(records: Sequence[Record] | RecordColumns, now_ms: int) -> Columns:
        columns = records if isinstance(records, RecordColumns) else RecordColumns.of(records, now_ms)
        if not len(columns):
            raise UsageError("an append without records")
        times = now_ms if columns.timestamps_ms is None else columns.timestamps_ms
        try:
            return join_columns(columns.values, columns.keys, times, columns.headers)
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"records that cannot be appended: {error}") from error

    def _encode(
        self, columns: Columns, topic: TopicConfig, append_time_ms: int | None, producer: BatchProducer
    ) -> list[NewBatch]:
        """Build the batches, with fewer records in each where one came out larger than the topic allows."""
        name = topic.compression_type
        codec = NONE if name in _UNCOMPRESSED else CODEC_NAMES.index(name)
        batch_bytes = min(self._options.batch_bytes, topic.max_message_bytes, topic.segment_bytes)
        most_bytes = min(topic.max_message_bytes, topic.segment_bytes)
        while True:
            batches = encode_batches(
                columns,
                _buffers.batches,
                codec=codec,
                batch_bytes=batch_bytes,
                append_time_ms=append_time_ms,
                producer=producer,
                scratch=_buffers.records,
            )
            largest = max(batches, key=lambda batch: batch.size)
            if largest.size <= most_bytes:
                return batches
            if all(batch.record_count == 1 for batch in batches if batch.size > most_bytes):
                limit = "max.message.bytes" if most_bytes == topic.max_message_bytes else "segment.bytes"
                raise RecordTooLargeError(
                    str(self.topic_partition),
                    f"record {largest.first_record} makes a batch of {largest.size} bytes; {limit} is {most_bytes}",
                )
            batch_bytes //= 2  # packing has made it larger

    # ---- under the lock --------------------------------------------------------------------------------------------

    def _write(
        self, data: memoryview, batches: Sequence[NewBatch], now_ms: int, producer: ProducerStamp | None
    ) -> None:
        """Write placed batches at the log end, rolling where one does not fit; all or nothing."""
        with self._undone_on_error(None if producer is None else producer.producer_id):
            begin, flushed = batches[0].start, self._flushed_offset
            for batch in batches:
                base_offset = self._log_end_offset + batch.first_record
                last_offset = base_offset + batch.record_count - 1
                if self._active.is_full(batch.size, batch.max_timestamp, last_offset, now_ms):
                    self._active.commit(data[begin : batch.start])
                    begin = batch.start
                    self._roll(base_offset)
                    flushed = base_offset
                self._active.stage(batch.size, batch.max_timestamp, last_offset)
                if producer is not None:
                    self._remember(producer, batch, base_offset, last_offset)
            self._active.commit(data[begin : batches[-1].start + batches[-1].size])
            self._log_end_offset = last_offset + 1
        # Not before: who reads up to what is flushed must not see the beginning of an append that is taken back.
        self._note_flushed(flushed)

    def _remember(self, producer: ProducerStamp, batch: NewBatch, base_offset: int, last_offset: int) -> None:
        stamp = producer._replace(base_sequence=(producer.base_sequence + batch.first_record) % 2**31)
        goes_on = batch.first_record > 0
        self._producers.remember(stamp, base_offset, last_offset, batch.max_timestamp, goes_on=goes_on)

    @contextlib.contextmanager
    def _undone_on_error(self, producer_id: int | None) -> Iterator[None]:
        """Take back what a failed `with` block has written; close the log for good where that fails too."""
        mark, end = self._active.mark(), self._log_end_offset
        saved = None if producer_id is None else self._producers.save(producer_id)
        try:
            yield
        except BaseException as error:
            if self._error is None:
                self._undo(mark, end, producer_id, saved, error)
            raise

    def _undo(
        self, mark: Mark, end: int, producer_id: int | None, saved: KnownProducer | None, error: BaseException
    ) -> None:
        try:
            if self._active.base_offset == mark.base_offset:
                self._active.go_back(mark)
                self._log_end_offset = end
                if producer_id is not None:
                    self._producers.restore(producer_id, saved)
            else:
                self._cut(end)
        except CleanerError as second:
            self._close_for_good(LogClosedError(self.directory, f"{error}; taking it back failed too: {second}"))

    def _close_for_good(self, error: LogClosedError) -> None:
        self._error = error
        self._active.retire()

    @contextlib.contextmanager
    def _fsyncing(self) -> Iterator[None]:
        """Close the log for good when an fsync of what it holds fails (R3)."""
        try:
            yield
        except (LogDirOfflineError, NoSpaceError) as error:
            self._close_for_good(FailedFsyncError(self.directory, error))
            self.require_open()

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return partition_lock(self._fs, self._log_dir.path, self.topic_partition, self._clock)

    # ---- rolling ---------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a new segment, so that all before may be cleaned; nothing happens while the active one is empty."""
        with self._lock:
            self.require_open()
            if self._active.size:
                self._roll(self._log_end_offset)
                self._note_flushed(self._log_end_offset)
        self._tell()

    def _roll(self, base_offset: int) -> None:
        """Close the active segment and publish the next one (R-921, `docs/coexistence.md`)."""
        with self._locked():
            self._active.close_time_index()
            with self._fsyncing():
                self._active.fsync_all()
            self._write_snapshot(base_offset)
            segment = create_segment(self._fs, self.directory, base_offset)
        self._active.retire()
        self._active = self._open_active(segment)

    def _write_snapshot(self, offset: int) -> None:
        path = self.directory / names.snapshot_file_name(offset)
        write_snapshot(self._fs, path, self._producers.entries(), self._producers.most_known)

    # ---- flushing --------------------------------------------------------------------------------------------------

    def flush_to_disk(self) -> int:
        """
        Force all that was appended up to now to disk; returns the offset up to which, exclusive, all is there.

        Raises:
            FailedFsyncError: now or earlier; what is on disk beyond `flushed_offset` is not known.
            LogClosedError: closed meanwhile.
        """
        with self._lock:
            self.require_open()
            end, segment = self._log_end_offset, self._active
            if end == self._flushed_offset:
                return end
            segment.flushes += 1
        error: CleanerError | None = None
        try:
            segment.fsync_log()
        except CleanerError as failed:
            error = failed
        with self._lock:
            segment.flushes -= 1
            if segment.is_retired:
                segment.retire()
            if error is not None and self._error is None:
                self._close_for_good(FailedFsyncError(self.directory, error))
            self.require_open()
            # A roll has noted it already; after a cut other records have these offsets.
            if not segment.is_retired:
                self._note_flushed(end)
            flushed = self._flushed_offset
        self._tell()
        return flushed

    def _note_flushed(self, offset: int) -> None:
        if offset > self._flushed_offset:
            self._flushed_offset = offset
        self._producers.on_flushed(self._flushed_offset)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        with self._lock:
            return self._producers.open_transactions()

    def producer_epoch(self, producer_id: int) -> int:
        """Return the epoch of a producer, -1 when it is not known."""
        with self._lock:
            return self._producers.epoch_of(producer_id)

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """
        Append the marker that ends a producer's transaction, or raises its epoch; returns the marker's offset.

        Raises:
            ProducerFencedError: the epoch is over.
            LogClosedError, NoSpaceError, LogDirOfflineError: as `append`.
        """
        with self._lock:
            self.require_open()
            self._producers.check_marker(producer_id, epoch)
            now_ms = self._clock.now_ms()
            data = marker_batch(
                producer_id,
                epoch,
                commit=commit,
                timestamp_ms=now_ms,
                is_append_time=self._topic.message_timestamp_type == "LogAppendTime",
            )
            batch = NewBatch(0, len(data), 0, 1, now_ms)
            offset = self._log_end_offset
            place(memoryview(data), [batch], offset, self._epochs.latest)
            with self._undone_on_error(producer_id):
                self._write(memoryview(data), [batch], now_ms, None)
                aborted = self._producers.remember_marker(producer_id, epoch, offset, now_ms, commit=commit)
                if aborted is not None:
                    self._active.add_aborted([aborted])
        self._tell()
        return offset

    def _abort_open_transactions(self) -> None:
        for producer_id in self.open_transactions():
            self.end_transaction(producer_id, self.producer_epoch(producer_id), commit=False)

    def expire_producers(self) -> None:
        """Forget producers idle for `producer.id.expiration.ms`."""
        with self._lock:
            self._producers.expire(self._clock.now_ms(), self._options.producer_id_expiration_ms)

    # ---- cutting ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """
        Cut the log so that it ends at an offset, durably; a leader epoch begins, so that readers can tell.

        Where the offset lies within a batch, the log ends where that batch begins, as in Kafka. Transactions whose end
        is cut off are aborted.

        Raises:
            OffsetOutOfRangeError: below the log start or beyond the log end.
            LogChangedError: somebody else held the partition's lock all the time.
            LogClosedError: it was closed, or had to be, as the disk failed on the way.
        """
        with self._lock:
            self.require_open()
            if not self._log_start_offset <= offset <= self._log_end_offset:
                raise OffsetOutOfRangeError(self.directory, offset, self._log_start_offset, self._log_end_offset)
            if offset < self._log_end_offset:
                self._cut(offset)
                self._abort_open_transactions()
        self._tell()

    def _cut(self, offset: int) -> None:
        # Before the lines of the checkpoints: another thread may write what is flushed into them at any time.
        self._flushed_offset = min(self._flushed_offset, offset)
        self._active.retire()
        try:
            opened = cut_log(
                self._log_dir,
                self.topic_partition,
                self._topic,
                self._clock,
                offset,
                producer_id_expiration_ms=self._options.producer_id_expiration_ms,
            )
            self._take(opened)
        except CleanerError as error:
            self._close_for_good(LogClosedError(self.directory, f"cutting it failed: {error}"))
            raise

    # ---- deleting --------------------------------------------------------------------------------------------------

    def expire(self, choose: Callable[[KeptLog], int]) -> Expired:
        """
        Set the oldest segments aside, in the steps of `storage/expiry.py`; an empty one takes the place of all (R-913).

        Args:
            choose: how many; asked again before anything changes, and then with the active segment rolled if that was
                among them.
        Raises:
            LogChangedError: somebody else held the partition's lock all the time.
            LogClosedError, LogDirOfflineError, NoSpaceError: see there. What has gone is gone.
        """
        with self._lock:
            self.require_open()
            with self._locked():
                kept = self._as_kept()
            count = choose(kept)
            if count and count == len(kept.segments):
                self.roll()
            gone = Expired() if not count else self._set_aside(choose)
        if gone.segments:
            self._tell()
        return gone

    def _as_kept(self) -> KeptLog:
        """Return the log as retention sees it: the active segment is on disk once it has been rolled."""
        listed = list_segments(self._fs, self.directory)
        segments: list[RetentionSegment] = [*listed[:-1], self._active.as_kept(listed[-1])]
        return KeptLog(segments, self._log_start_offset, self._log_end_offset, self._log_end_offset)

    def _set_aside(self, choose: Callable[[KeptLog], int]) -> Expired:
        with self._locked():
            settle_swap(self._fs, self.directory)
            kept = self._as_kept()
            count = min(choose(kept), len(kept.segments) - 1)
            if not count:
                return Expired()
            going, first = kept.segments[:count], kept.segments[count].base_offset
            # In memory first: whoever asks for what goes is told so, and the checkpoint never says less again.
            self._log_start_offset = max(self._log_start_offset, first)
            self._log_dir.put(OffsetKind.LOG_START, self.topic_partition, self._log_start_offset)
            raise_generation(self._fs, self._log_dir.path, self.topic_partition)
            self._epochs.cut_start(self._log_start_offset)
            set_aside(self._fs, self.directory, [segment.base_offset for segment in going])
            self._first_base_offset = first
            files = tuple(list_deleted(self._fs, self.directory))
        # The first segment says where the log begins; a line stays only for a start inside of it.
        self._log_dir.put(OffsetKind.LOG_START, self.topic_partition, self.log_start_checkpoint)
        return Expired(count, sum(segment.size for segment in going), files)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """
        Leave the log as a clean stop does: trimmed, flushed, with a snapshot at its end. A second call does nothing.

        Raises:
            FailedFsyncError, LogDirOfflineError, NoSpaceError: it could not; the log dir must get no marker then.
        """
        with self._lock:
            if self._error is not None:
                return
            try:
                self.require_open()
                with self._locked():
                    settle_swap(self._fs, self.directory)
                    self._active.close_time_index()
                    with self._fsyncing():
                        self._active.fsync_all()
                    # Kafka removes a snapshot at the log start.
                    if self._log_end_offset > self._log_start_offset:
                        self._write_snapshot(self._log_end_offset)
                    self._fs.fsync_dir(self.directory)
                self._note_flushed(self._log_end_offset)
                self._is_in_order = True
            finally:
                if self._error is None:
                    self._close_for_good(LogClosedError(self.directory))
        self._tell()

    def require_in_order(self) -> None:
        """
        Make sure that `close` has left the log as a clean stop does.

        Raises:
            FailedFsyncError, LogClosedError: it has not; say why.
        """
        if not self._is_in_order:
            raise self._error or LogClosedError(self.directory, "the log is not closed")

    def abandon(self) -> None:
        """Let go of the files and leave the log as it is, as a killed process would."""
        with self._lock:
            if self._error is None:
                self._close_for_good(LogClosedError(self.directory))
        self._tell()

    @property
    def path(self) -> Path:
        """The partition's directory."""
        return self.directory
