"""
What a writer does to its log, step by step, for one caller at a time.

`PartitionWriter` locks and calls. Names in the partition's directory change under the partition's lock only, in the
orders that `docs/coexistence.md` promises to a cleaner next door.

A step that fails has left the log as it was, or says by a LogClosedError that nobody knows what it is like now: then
nothing but opening it again helps.

Source: rules R-123, R-126, R-407, R-653, R-903, R-913, R-920, R-921; `UnifiedLog.java`, `LocalLog.java`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random, SystemRandom

from cleaner.clock import Clock
from cleaner.config import TopicConfig
from cleaner.errors import CleanerError, FailedFsyncError, LogClosedError, LogDirOfflineError, NoSpaceError
from cleaner.format.encode import place
from cleaner.logs.active_segment import ActiveSegment, Mark, create_segment, discard_segment
from cleaner.logs.epochs import LeaderEpochs
from cleaner.logs.new_batches import NewBatches, build_marker
from cleaner.logs.opening import OpenedLog, cut_log
from cleaner.logs.producers import KnownProducer, Producers
from cleaner.logs.record import ProducerStamp
from cleaner.logs.retention import SetAside
from cleaner.policy.log_views import RetentionSegment
from cleaner.policy.retention import KeptLog
from cleaner.storage import names
from cleaner.storage.expiry import list_deleted, set_aside
from cleaner.storage.generation import raise_generation
from cleaner.storage.leftovers import settle_swap
from cleaner.storage.log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.partition_lock import partition_lock
from cleaner.storage.producer_snapshot import write_snapshot
from cleaner.storage.segment import Segment

_SEQUENCES = 2**31


@dataclass(frozen=True)
class WriterOptions:
    """
    What a writer is opened with.

    Attributes:
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        batch_bytes: what a batch of several records may take unpacked; None: what the topic allows.
        random: chooses each segment's jitter (R-804).
    """

    producer_id_expiration_ms: int = 86_400_000
    batch_bytes: int | None = None
    random: Random = field(default_factory=SystemRandom)


class WritableLog:
    """
    The log of one partition, open for writing.

    Attributes:
        topic: the settings that count for what comes next; see `configure`.
        active: the segment that is appended to.
        producers, epochs: as of the log end.
        log_start_offset, log_end_offset: first offset a reader may ask for; the offset the next record will get.
        flushed_offset: all below is on disk, so it is the high watermark.
    """

    def __init__(
        self, log_dir: LogDir, opened: OpenedLog, topic: TopicConfig, clock: Clock, options: WriterOptions
    ) -> None:
        self.topic_partition = opened.topic_partition
        self.directory = opened.directory
        self.topic = topic
        self._log_dir = log_dir
        self._fs = log_dir.fs
        self._clock = clock
        self._options = options
        self._take(opened)

    def _take(self, opened: OpenedLog) -> None:
        self.log_start_offset = opened.log_start_offset
        self._first_base_offset = opened.first_base_offset
        self.log_end_offset = self.flushed_offset = opened.log_end_offset
        self.producers = Producers(str(self.topic_partition), opened.producers)
        self.epochs = LeaderEpochs(self._fs, self.directory, opened.epochs)
        if self.epochs.latest < opened.epoch:
            self.epochs.begin(opened.epoch, opened.log_end_offset)
        self.active = self._open_active(opened.active_segment)

    def _open_active(self, segment: Segment) -> ActiveSegment:
        most_ms = min(self.topic.segment_jitter_ms, self.topic.segment_ms)
        jitter_ms = self._options.random.randrange(most_ms) if most_ms else 0
        return ActiveSegment(self._fs, segment, self.topic, now_ms=self._clock.now_ms(), jitter_ms=jitter_ms)

    def configure(self, topic: TopicConfig) -> None:
        """Go by other settings from now on."""
        self.topic = self.active.topic = topic

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop (R-407)."""
        unstable = self.producers.first_unstable_offset()
        return self.flushed_offset if unstable is None else min(unstable, self.flushed_offset)

    @property
    def log_start_checkpoint(self) -> int | None:
        """The line of `log-start-offset-checkpoint`; None where the first segment says as much (R-118)."""
        return self.log_start_offset if self.log_start_offset > self._first_base_offset else None

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(self, new: NewBatches, producer: ProducerStamp | None) -> int:
        """
        Write batches at the log end, rolling where one does not fit; all or nothing. Returns the first offset.

        Raises:
            NoSpaceError, LogDirOfflineError: the disk; nothing has changed.
            LogClosedError: it could not be taken back, or an fsync failed.
        """
        first_offset, now_ms = self.log_end_offset, self._clock.now_ms()
        place(new.data, new.batches, first_offset, self.epochs.latest)
        with self._undone_on_error(None if producer is None else producer.producer_id):
            begin, flushed = new.batches[0].start, self.flushed_offset
            for batch in new.batches:
                base_offset = first_offset + batch.first_record
                last_offset = base_offset + batch.record_count - 1
                if self.active.is_full(batch.size, batch.max_timestamp, last_offset, now_ms):
                    self.active.commit(new.data[begin : batch.start])
                    begin, flushed = batch.start, base_offset
                    self._roll(base_offset)
                self.active.stage(batch.size, batch.max_timestamp, last_offset)
                if producer is not None:
                    stamp = producer._replace(base_sequence=(producer.base_sequence + batch.first_record) % _SEQUENCES)
                    goes_on = batch.first_record > 0
                    self.producers.remember(stamp, base_offset, last_offset, batch.max_timestamp, goes_on=goes_on)
            self.active.commit(new.data[begin : batch.start + batch.size])
        # Not before: nobody is to see the beginning of an append that is taken back.
        self.log_end_offset = last_offset + 1
        self.note_flushed(flushed)
        return first_offset

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """
        Write a marker, and the transaction index entry of an abort; returns the marker's offset.

        Raises:
            ProducerFencedError: the epoch is over.
            NoSpaceError, LogDirOfflineError, LogClosedError: as `append`.
        """
        self.producers.check_marker(producer_id, epoch)
        now_ms, offset = self._clock.now_ms(), self.log_end_offset
        marker = build_marker(producer_id, epoch, self.topic, commit=commit, now_ms=now_ms)
        with self._undone_on_error(producer_id):
            self.append(marker, None)
            aborted = self.producers.remember_marker(producer_id, epoch, offset, now_ms, commit=commit)
            if aborted is not None:
                self.active.add_aborted([aborted])
        return offset

    def abort_open_transactions(self) -> None:
        """Abort what an earlier writer left open, or what a cut has reopened."""
        for producer_id in self.producers.open_transactions():
            self.end_transaction(producer_id, self.producers.epoch_of(producer_id), commit=False)

    @contextlib.contextmanager
    def _undone_on_error(self, producer_id: int | None) -> Iterator[None]:
        """Take back what a failed `with` block has written."""
        mark, end = self.active.mark(), self.log_end_offset
        saved = None if producer_id is None else self.producers.save(producer_id)
        try:
            yield
        except LogClosedError:
            raise
        except BaseException as error:
            self._undo(mark, end, producer_id, saved, error)
            raise

    def _undo(
        self, mark: Mark, end: int, producer_id: int | None, saved: KnownProducer | None, error: BaseException
    ) -> None:
        try:
            if self.active.base_offset == mark.base_offset:
                self.active.go_back(mark)
                self.log_end_offset = end
                if producer_id is not None:
                    self.producers.restore(producer_id, saved)
            else:
                self.cut(end)
        except CleanerError as second:
            raise LogClosedError(self.directory, f"{error}; taking it back failed too: {second}") from error

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return partition_lock(self._fs, self._log_dir.path, self.topic_partition, self._clock)

    # ---- rolling ---------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a new segment; nothing happens while the active one is empty. Raises as `append`."""
        if self.active.size:
            self._roll(self.log_end_offset)
            self.note_flushed(self.log_end_offset)

    def _roll(self, base_offset: int) -> None:
        """
        Close the active segment and publish the next one (R-921).

        Invariant: a `.log` that is not the last one is whole and on disk, and the snapshot at the last one's base
        offset is there. A cleaner next door takes the last `.log` for all that it must not look at.
        """
        with self._locked():
            self._finish_active()
            self._write_snapshot(base_offset)
            try:
                segment = create_segment(self._fs, self.directory, base_offset)
            except CleanerError as error:
                # A new `.log` must not stay while the old one is written on.
                try:
                    discard_segment(self._fs, self.directory, base_offset)
                except CleanerError:
                    raise LogClosedError(self.directory, f"rolling it failed: {error}") from error
                raise
        self.active.retire()
        self.active = self._open_active(segment)

    def _finish_active(self) -> None:
        self.active.close_time_index()
        try:
            self.active.fsync_all()
        except (LogDirOfflineError, NoSpaceError) as error:
            raise FailedFsyncError(self.directory, error) from error

    def _write_snapshot(self, offset: int) -> None:
        path = self.directory / names.snapshot_file_name(offset)
        write_snapshot(self._fs, path, self.producers.entries(), self.producers.most_known)

    def note_flushed(self, offset: int) -> None:
        """Note that all below an offset is on disk."""
        self.flushed_offset = max(self.flushed_offset, offset)
        self.producers.on_flushed(self.flushed_offset)

    # ---- cutting, expiring, closing --------------------------------------------------------------------------------

    def cut(self, offset: int) -> None:
        """
        Cut the log at an offset and load it again; a leader epoch begins.

        Raises:
            LogClosedError: it failed on the way.
        """
        self.active.retire()
        try:
            expiration_ms = self._options.producer_id_expiration_ms
            opened = cut_log(
                self._log_dir,
                self.topic_partition,
                self.topic,
                self._clock,
                offset,
                ending=self._is_going_to_end_at,
                producer_id_expiration_ms=expiration_ms,
            )
            self._take(opened)
        except CleanerError as error:
            raise LogClosedError(self.directory, f"cutting it failed: {error}") from error

    def _is_going_to_end_at(self, offset: int) -> None:
        # Before the lines of the checkpoints: another thread may write what is flushed into them at any time.
        self.flushed_offset = min(self.flushed_offset, offset)

    def expire(self, choose: Callable[[KeptLog], int]) -> SetAside:
        """
        Set the oldest segments aside, in the steps of `storage/expiry.py`; an empty one takes the place of all (R-913).

        Args:
            choose: how many; asked again before anything changes, and then with the active segment rolled if that was
                among them.
        Raises:
            LogDirOfflineError, NoSpaceError, LogChangedError, CorruptLogError: what has gone is gone.
            LogClosedError: an fsync failed.
        """
        with self._locked():
            kept = self._as_kept()
        count = choose(kept)
        if count and count == len(kept.segments):
            self.roll()
        return SetAside() if not count else self._set_aside(choose)

    def _as_kept(self) -> KeptLog:
        """Return the log as retention sees it: the active segment is on disk once it has been rolled."""
        listed = list_segments(self._fs, self.directory)
        segments: list[RetentionSegment] = [*listed[:-1], self.active.as_kept(listed[-1])]
        return KeptLog(segments, self.log_start_offset, self.log_end_offset, self.log_end_offset)

    def _set_aside(self, choose: Callable[[KeptLog], int]) -> SetAside:
        with self._locked():
            settle_swap(self._fs, self.directory)
            kept = self._as_kept()
            count = min(choose(kept), len(kept.segments) - 1)
            if not count:
                return SetAside()
            going, first = kept.segments[:count], kept.segments[count].base_offset
            # In memory first: whoever asks for what goes is told so, and the checkpoint never says less again.
            self.log_start_offset = max(self.log_start_offset, first)
            self._log_dir.put(OffsetKind.LOG_START, self.topic_partition, self.log_start_offset)
            raise_generation(self._fs, self._log_dir.path, self.topic_partition)
            self.epochs.cut_start(self.log_start_offset)
            set_aside(self._fs, self.directory, [segment.base_offset for segment in going])
            self._first_base_offset = first
            files = tuple(list_deleted(self._fs, self.directory))
        # The first segment says where the log begins; a line stays only for a start inside of it.
        self._log_dir.put(OffsetKind.LOG_START, self.topic_partition, self.log_start_checkpoint)
        return SetAside(count, sum(segment.size for segment in going), files)

    def finish(self) -> None:
        """
        Leave the files as a clean stop does: trimmed, flushed, with a snapshot at the end.

        Raises:
            FailedFsyncError, LogDirOfflineError, NoSpaceError, LogChangedError, CorruptLogError: it could not.
        """
        with self._locked():
            settle_swap(self._fs, self.directory)
            self._finish_active()
            # Kafka removes a snapshot at the log start.
            if self.log_end_offset > self.log_start_offset:
                self._write_snapshot(self.log_end_offset)
            self._fs.fsync_dir(self.directory)
        self.note_flushed(self.log_end_offset)
