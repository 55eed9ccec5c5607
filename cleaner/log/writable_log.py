"""
The steps by which a writer changes its log, for one caller at a time.

`PartitionWriter` locks and calls; `retention.py` drops expired segments. Names in the partition's directory change only
under the partition's lock, in the order that `docs/coexistence.md` promises to a cleaner in another process.

A step that fails has left the log unchanged, or the log's state is unknown: then it `is_in_doubt`, and only opening it
again helps. That holds for whatever ends a step, at whatever line: an error of the disk, an interrupt, a lack of
memory.

Source: rules R-123, R-126, R-407, R-653, R-903, R-920, R-921; `UnifiedLog.java`, `LocalLog.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import TypeVar

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, FailedFsyncError, LogClosedError, LogDirOfflineError, NoSpaceError
from cleaner.format.encode import place
from cleaner.log.active_segment import ActiveSegment, AppendMark, create_segment, discard_segment
from cleaner.log.epochs import LeaderEpochs
from cleaner.log.new_batches import NewBatches, build_marker
from cleaner.log.opening import OpenedLog, cut_log
from cleaner.log.producers import Fence, KnownProducer, Producers
from cleaner.log.record import SEQUENCES, ProducerStamp
from cleaner.read.snapshot import stable_offset_within
from cleaner.storage.files.producer_snapshot import write_snapshot
from cleaner.storage.load.leftovers import settle_swap
from cleaner.storage.lock.partition_lock import HeldByte, partition_lock
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment import names
from cleaner.storage.segment.segment import Segment

_CUT = "the log was cut while its transaction was open; make a new producer"

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class WriterOptions:
    """
    Options of a writer.

    Attributes:
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        batch_bytes: the most that a batch of several records may take unpacked; None: the topic's limit.
        random: chooses each segment's jitter (R-804).
        publish: publishes the high watermark to readers in other processes: after the fsync that raises it, and before
            the cut that lowers it. Must be quick and not raise.
        verdict: tells whether the open transaction of a producer and epoch is committed; None: it stays open.
        has_controller: a cluster's controller gives out the log's leader epochs, so that no opening begins one.
    """

    producer_id_expiration_ms: int = 86_400_000
    batch_bytes: int | None = None
    random: Random = field(default_factory=SystemRandom)
    publish: Callable[[int], None] = lambda _: None
    verdict: Callable[[TopicPartition, int, int], bool | None] = lambda *_: False
    has_controller: bool = False


class WritableLog:
    """
    The log of one partition, open for writing.

    Attributes:
        topic: the settings for the next appends; see `configure`.
        active: the active segment.
        producers, epochs: as of the log end.
        log_start_offset, log_end_offset: first offset a reader may ask for; the offset the next record will get.
        first_base_offset: of the first segment.
        flushed_offset: everything below is on disk, so it is the high watermark.
        is_in_doubt: a step has begun to change the log, and was neither finished nor undone.
    """

    def __init__(
        self, log_dir: LogDir, opened: OpenedLog, topic: TopicConfig, clock: Clock, options: WriterOptions
    ) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.topic = topic
        self.log_dir = log_dir
        self._fs = log_dir.fs
        self._clock = clock
        self._options = options
        self._lock = self._new_lock()
        # The base offset of a segment that is being created.
        self._rolling_to: int | None = None
        self._fences: dict[int, Fence] = {}
        self.is_in_doubt = False
        self._take(opened)

    def _take(self, opened: OpenedLog) -> None:
        self.log_start_offset = opened.log_start_offset
        self.first_base_offset = opened.first_base_offset
        self.log_end_offset = opened.log_end_offset
        self._set_flushed(opened.log_end_offset)
        self.producers = Producers(str(self.topic_partition), opened.producers, self._fences)
        self.epochs = LeaderEpochs(self._fs, self.directory, opened.epochs)
        if self.epochs.latest < opened.epoch:
            self.epochs.begin(opened.epoch, opened.log_end_offset)
        self.active = self._open_active(opened.active_segment)

    def _open_active(self, segment: Segment) -> ActiveSegment:
        max_ms = min(self.topic.segment_jitter_ms, self.topic.segment_ms)
        jitter_ms = self._options.random.randrange(max_ms) if max_ms else 0
        return ActiveSegment(self._fs, segment, self.topic, now_ms=self._clock.now_ms(), jitter_ms=jitter_ms)

    def configure(self, topic: TopicConfig) -> None:
        """Use other settings from now on."""
        self.topic = self.active.topic = topic

    @property
    def last_stable_offset(self) -> int:
        """The offset at which readers of committed records stop (R-407)."""
        unstable = self.producers.first_unstable_offset()
        return stable_offset_within(unstable, self.log_start_offset, self.flushed_offset)

    @property
    def log_start_checkpoint(self) -> int | None:
        """The line of `log-start-offset-checkpoint`; None if it equals the first base offset (R-118)."""
        return self.log_start_offset if self.log_start_offset > self.first_base_offset else None

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(self, new: NewBatches, producer: ProducerStamp | None) -> int:
        """
        Write batches at the log end, rolling where one does not fit; all or nothing. Returns the first offset.

        Raises:
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError: nothing has changed.
            LogClosedError: it could not be undone, or an fsync failed.
        """
        first_offset = self.log_end_offset

        def write() -> int:
            end_offset, flushed = self._write(new, producer)
            # Only now: no reader may see the beginning of an append that is undone.
            self.log_end_offset = end_offset
            return flushed

        flushed = self._all_or_nothing(None if producer is None else producer.producer_id, write)
        self.note_flushed(flushed)
        return first_offset

    def _write(self, new: NewBatches, producer: ProducerStamp | None) -> tuple[int, int]:
        """Write batches; returns the new log end, and the offset up to which rolls on the way have flushed the log."""
        first_offset, now_ms = self.log_end_offset, self._clock.now_ms()
        place(new.data, new.batches, first_offset, self.epochs.latest)
        begin, flushed, end_offset = new.batches[0].start, self.flushed_offset, first_offset
        for batch in new.batches:
            base_offset = first_offset + batch.first_record
            last_offset = base_offset + batch.record_count - 1
            if self.active.is_full(batch.size, batch.max_timestamp, last_offset, now_ms):
                self.active.commit(new.data[begin : batch.start])
                begin, flushed = batch.start, base_offset
                self._roll(base_offset)
            self.active.stage(batch.size, batch.max_timestamp, last_offset)
            if producer is not None:
                stamp = producer._replace(base_sequence=(producer.base_sequence + batch.first_record) % SEQUENCES)
                goes_on = batch.first_record > 0
                self.producers.remember(stamp, base_offset, last_offset, batch.max_timestamp, goes_on=goes_on)
            end_offset = last_offset + 1
        self.active.commit(new.data[begin : batch.start + batch.size])
        return end_offset, flushed

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """
        Write a marker, and the transaction index entry of an abort; returns the marker's offset.

        Raises:
            ProducerFencedError: the epoch is over.
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError, LogClosedError: as `append`.
        """
        self.producers.check_marker(producer_id, epoch)
        now_ms, offset = self._clock.now_ms(), self.log_end_offset
        marker = build_marker(producer_id, epoch, self.topic, commit=commit, now_ms=now_ms)

        def write() -> int:
            end_offset, flushed = self._write(marker, None)
            aborted = self.producers.remember_marker(producer_id, epoch, offset, now_ms, commit=commit)
            if aborted is not None:
                self.active.add_aborted([aborted])
            self.log_end_offset = end_offset
            return flushed

        flushed = self._all_or_nothing(producer_id, write)
        self.note_flushed(flushed)
        return offset

    def end_open_transactions(self) -> None:
        """Abort transactions that an earlier writer left open, or that a cut has reopened; commit what is decided."""
        for producer_id in self.producers.open_transactions():
            commit = self._options.verdict(self.topic_partition, producer_id, self.producers.epoch_of(producer_id))
            if commit is not None:
                self.end_transaction(producer_id, self.producers.latest_epoch(producer_id), commit=commit)

    def fence(self, producer_id: int, epoch: int) -> int | None:
        """
        Accept nothing more from a producer with an epoch below this one, and abort its transaction if one is open.

        Returns:
            The offset of the marker; None without a transaction.
        Raises:
            NoSpaceError, LogDirOfflineError, OutOfDescriptorsError, LogClosedError: as `append`.
        """
        # The marker first: it also raises the epoch. A fenced producer could not end its open transaction, and no other
        # caller might.
        marker_offset = None
        if self.producers.has_open_transaction(producer_id):
            marker_offset = self.end_transaction(producer_id, epoch, commit=False)
        self.producers.fence(producer_id, epoch)
        return marker_offset

    # ---- whole or undone -------------------------------------------------------------------------------------------

    def _all_or_nothing(self, producer_id: int | None, change: Callable[[], _Result]) -> _Result:
        """
        Change the log's end and a producer's state completely or not at all; otherwise the log stays in doubt.

        Invariant: `_undo` can find from the mark everything that `change` has altered, so it may stop at any line.
        """
        was_in_doubt = self.is_in_doubt
        before, end = self.active, self.log_end_offset
        mark = before.mark()
        saved = None if producer_id is None else self.producers.save(producer_id)
        self.is_in_doubt = True
        try:
            result = change()
            self.is_in_doubt = was_in_doubt
        except LogClosedError:
            raise
        except BaseException as error:
            if self.is_in_doubt:
                if before is not self.active:
                    before.retire()  # a roll that was interrupted between the new segment and this
                self._undo(mark, end, producer_id, saved, error)
                self.is_in_doubt = was_in_doubt
            raise
        return result

    def _undo(
        self, mark: AppendMark, end: int, producer_id: int | None, saved: KnownProducer | None, error: BaseException
    ) -> None:
        try:
            self._lock.release()
            if self._rolling_to is not None and self._rolling_to != self.active.base_offset:
                # A new `.log` must not stay while writes go on in the old one, nor a snapshot of undone appends.
                discard_segment(self._fs, self.directory, self._rolling_to)
                self._fs.remove(self.directory / names.snapshot_file_name(self._rolling_to))
                self._fs.fsync_dir(self.directory)
            self._rolling_to = None
            if self.active.base_offset == mark.base_offset:
                self.active.go_back(mark)
                self.log_end_offset = end
                if producer_id is not None:
                    self.producers.restore(producer_id, saved)
            else:
                self._cut(end, lambda _: None)
        except (CleanerError, OSError) as second:
            raise LogClosedError(self.directory, f"{error!r}; taking it back failed too: {second}") from error

    def _new_lock(self) -> HeldByte:
        return partition_lock(self._fs, self.log_dir.path, self.topic_partition, self._clock)

    def locked(self) -> HeldByte:
        """Return the partition's lock, for a `with` block; `_undo` releases it if an interrupt has left it taken."""
        self._lock.release()
        self._lock = self._new_lock()
        return self._lock

    # ---- rolling ---------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a new segment; does nothing while the active one is empty. Raises as `append`."""
        if self.active.size:
            self._all_or_nothing(None, lambda: self._roll(self.log_end_offset))
            self.note_flushed(self.log_end_offset)

    def _roll(self, base_offset: int) -> None:
        """
        Close the active segment and publish the next one (R-921); `_undo` reverts an unfinished roll.

        Invariant: every `.log` except the last is whole and on disk, and so is the snapshot at the last one's base
        offset. A cleaner in another process leaves only the last `.log` alone.
        """
        before = self.active
        with self.locked():
            self._finish_active()
            self._rolling_to = base_offset
            self._write_snapshot(base_offset)
            # Opened before the old one is closed: there may be no descriptors left.
            self.active = self._open_active(create_segment(self._fs, self.directory, base_offset))
            self._rolling_to = None
        before.retire()

    def _finish_active(self) -> None:
        self.active.become_inactive()
        try:
            self.active.fsync_all()
        except (LogDirOfflineError, NoSpaceError) as error:
            raise FailedFsyncError(self.directory, error) from error

    def _write_snapshot(self, offset: int) -> None:
        path = self.directory / names.snapshot_file_name(offset)
        write_snapshot(self._fs, path, self.producers.entries(), self.producers.max_known)

    def note_flushed(self, offset: int) -> None:
        """Note that everything below an offset is on disk."""
        if offset > self.flushed_offset:
            self._set_flushed(offset)
        self.producers.on_flushed(self.flushed_offset)

    def _set_flushed(self, offset: int) -> None:
        self._options.publish(offset)
        self.flushed_offset = offset

    # ---- cutting, closing ------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """
        Cut the log at an offset, durably, and load it again; a leader epoch begins.

        Producers with a transaction open are fenced off: part of it may be cut off, and it is aborted.

        Raises:
            LogChangedError, LogDirOfflineError, CorruptLogError, OutOfDescriptorsError: nothing has changed.
            LogClosedError: it failed on the way.
        """
        epochs = {each: self.producers.epoch_of(each) for each in self.producers.open_transactions()}

        def begin(end_offset: int) -> None:
            self.is_in_doubt = True
            for producer_id, epoch in epochs.items():
                self.producers.fence(producer_id, epoch + 1, _CUT)

        def cut() -> None:
            self._cut(offset, begin)
            self.end_open_transactions()
            self.is_in_doubt = False

        try:
            try:
                cut()
            except CleanerError:
                raise
            except BaseException:
                if self.is_in_doubt:
                    cut()  # every step can be repeated, and completes an interrupted cut
                raise
        except LogClosedError:
            raise
        except CleanerError as error:
            if not self.is_in_doubt:
                raise
            raise LogClosedError(self.directory, f"cutting it failed: {error}") from error

    def _cut(self, offset: int, begin: Callable[[int], None]) -> None:
        """Cut and load; `begin` is called with the new log end before anything changes."""

        def ending(end_offset: int) -> None:
            begin(end_offset)
            # Before the checkpoint lines: another thread may write the flushed offset into them at any time.
            self._set_flushed(min(self.flushed_offset, end_offset))
            self.active.retire()

        self._lock.release()
        if self.active.fsync_error is not None:
            # The next opening of these files would know nothing of it (C-2).
            raise FailedFsyncError(self.directory, self.active.fsync_error)
        opened = cut_log(
            self.log_dir,
            self.topic_partition,
            self.topic,
            self._clock,
            offset,
            lock=self.locked(),
            ending=ending,
            producer_id_expiration_ms=self._options.producer_id_expiration_ms,
        )
        self._take(opened)

    def finish(self) -> None:
        """
        Leave the files as a clean stop does: trimmed, flushed, with a snapshot at the end.

        Raises:
            FailedFsyncError, LogDirOfflineError, NoSpaceError, LogChangedError, CorruptLogError: that failed.
        """
        with self.locked():
            settle_swap(self._fs, self.directory, index_bytes=self.topic.segment_index_bytes)
            self._finish_active()
            # Kafka removes a snapshot at the log start.
            if self.log_end_offset > self.log_start_offset:
                self._write_snapshot(self.log_end_offset)
            self._fs.fsync_dir(self.directory)
        self.note_flushed(self.log_end_offset)

    def release(self) -> None:
        """Close the files and release the partition's lock, in whatever state a step left them; may be called again."""
        self._lock.release()
        self.active.retire()
