"""
A small writer that keeps to the protocol: what the cleaner is tried beside.

It knows no indexes of its active segment (they are made when it rolls), keeps a segment in memory, and takes what it
appends as flushed only when told; but each of its steps that the cleaner relies on is done as `docs/coexistence.md`
says: loading, rolling, cutting, deleting, stopping.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.storage.files.producer_snapshot import read_snapshot
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.leftovers import settle_swap
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.load.loader import load_log
from cleaner.storage.lock.log_dir_lock import acquire_for_writing
from cleaner.storage.lock.partition_lock import checkpoint_lock, partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment import names
from cleaner.storage.segment.generation import Generations
from cleaner.storage.segment.segment import Segment
from tests.coexistence.truth import as_line
from tests.support.batch_builder import NO_PRODUCER, Producer, Record, data_batch, marker_batch
from tests.support.batch_reader import batch_info, split_batches
from tests.support.segment_builder import ProducerState, SegmentBuilder, encode_snapshot, remember_producer

INTERVAL_BYTES = 100
TOPIC = TopicConfig(index_interval_bytes=INTERVAL_BYTES)
_PATIENCE_MS = 20_000
_PREALLOCATED_BYTES = 480
_INDEXES = (names.INDEX, names.TIME_INDEX)


class ModelWriter:
    """
    A writer in one log dir.

    Args:
        fs: the file system.
        log_dir: the log dir.
        journal: what it notes its deeds in (`truth.py`); None: nowhere.
        clock: to wait by.
        partitions: its logs; made where they are missing.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_dir: Path,
        journal: Path | None,
        clock: Clock,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.fs = fs
        self.clock = clock
        self.log_dir = LogDir(fs, log_dir)
        self._journal = -1 if journal is None else os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.lock = acquire_for_writing(fs, log_dir, clock, patience_ms=_PATIENCE_MS)
        self.generations = Generations(fs, self.log_dir.path)
        had_marker = self.log_dir.has_clean_shutdown_marker()
        self.log_dir.remove_marker()
        self.logs = [ModelLog(self, partition, was_closed=had_marker) for partition in partitions]
        self.lock.logs.admit_cleaner()

    def note(self, partition: TopicPartition, op: str, **note: object) -> None:
        """Add a line to the journal."""
        if self._journal >= 0:
            os.write(self._journal, as_line(str(partition), op, **note))

    def stop(self) -> None:
        """Close all logs in order and leave the marker."""
        for log in self.logs:
            log.close()
        self.log_dir.write_marker()
        self.abandon()

    def abandon(self) -> None:
        """Let go of everything as a killed process would."""
        for log in self.logs:
            log.file.close()
        self.generations.close()
        self.lock.release()
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1


class ModelLog:
    """One log of a `ModelWriter`."""

    file: File

    def __init__(self, writer: ModelWriter, partition: TopicPartition, *, was_closed: bool) -> None:
        self.writer = writer
        self.partition = partition
        self.directory = writer.log_dir.path / str(partition)
        self.directory.mkdir(exist_ok=True)
        with self._locked():
            self._load(was_closed=was_closed, recovery_point=self._line(OffsetKind.RECOVERY_POINT))
        self.abort_transactions()

    def _locked(self) -> AbstractContextManager[object]:
        return partition_lock(self.writer.fs, self.writer.log_dir.path, self.partition, self.writer.clock)

    def _line(self, kind: OffsetKind) -> int:
        return self.writer.log_dir.offsets(kind).get(self.partition, 0)

    def _lower(self, kind: OffsetKind, offset: int) -> None:
        if self._line(kind) > offset:
            self.writer.log_dir.put(kind, self.partition, offset)

    def _load(self, *, was_closed: bool, recovery_point: int) -> None:
        """Load, recover and settle the log, and go on from its end."""
        fs = self.writer.fs
        log = load_log(
            fs,
            self.directory,
            self.partition,
            topic=TOPIC,
            log_start_offset=self._line(OffsetKind.LOG_START),
            recovery_point=recovery_point,
            high_watermark=self._line(OffsetKind.HIGH_WATERMARK),
            clean_shutdown=was_closed,
            producer_id_expiration_ms=86_400_000,
            now_ms=self.writer.clock.now_ms(),
        )
        log.close(fs, nullcontext)
        self._go_on_with(log.active_segment)
        assert self.end == log.log_end_offset
        self.epoch = 1 + max((producer.epoch for producer in self.producers.values()), default=-1)

    def _go_on_with(self, active: Segment) -> None:
        """Take a segment into memory; its indexes on disk are as long as a broker's, and say nothing."""
        fs = self.writer.fs
        snapshot = self.directory / names.snapshot_file_name(active.base_offset)
        rows = read_snapshot(fs, snapshot).tolist() if fs.exists(snapshot) else []
        self.producers = {row[0]: ProducerState(*row) for row in rows}
        self.active = SegmentBuilder(active.base_offset, INTERVAL_BYTES, 10 << 20)
        self.file = fs.open(active.log_path, write=True)
        self.end = active.base_offset
        for batch in split_batches(self.file.read(self.file.size(), 0)):
            self._take(batch)
        fs.remove(active.txn_index_path)
        for suffix in _INDEXES:
            with fs.open(active.path(suffix), write=True) as index:
                index.truncate(_PREALLOCATED_BYTES)
        self.writer.note(self.partition, "open", end=self.end)

    def _take(self, batch: bytes) -> None:
        info = batch_info(batch)
        self.active.append(batch, info)
        if info.producer.producer_id >= 0:
            remember_producer(self.producers, self.active, info, batch)
        self.end = info.last_offset + 1

    # ---- appending -------------------------------------------------------------------------------------------------

    def append(self, *pairs: tuple[str, str | None], producer: int = -1) -> int:
        """Append a batch, of a transaction if there is a producer; returns its first offset."""
        base = self.end
        self.writer.note(self.partition, "append", base=base, records=pairs, producer=producer)
        records = [Record(key.encode(), None if value is None else value.encode()) for key, value in pairs]
        transaction = NO_PRODUCER
        if producer >= 0:
            known = self.producers.get(producer)
            sequence = known.last_sequence + 1 if known is not None and known.epoch == self.epoch else 0
            transaction = Producer(producer, self.epoch, sequence, transactional=True)
        self._append(data_batch(records, base, timestamp_ms=self.writer.clock.now_ms(), producer=transaction))
        return base

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Append a marker."""
        self.writer.note(self.partition, "marker", base=self.end, producer=producer, commit=commit)
        epoch = self.producers[producer].epoch
        now_ms = self.writer.clock.now_ms()
        self._append(marker_batch(self.end, producer, epoch, commit=commit, timestamp_ms=now_ms))

    def open_transactions(self) -> list[int]:
        """Return the producers that have one."""
        return [producer.producer_id for producer in self.producers.values() if producer.txn_first_offset >= 0]

    def abort_transactions(self) -> None:
        """Abort what an earlier writer left open."""
        for producer in self.open_transactions():
            self.end_transaction(producer, commit=False)

    def _append(self, batch: bytes) -> None:
        position = len(self.active.log)
        self._take(batch)
        # In two writes: who looks in between sees a torn end.
        self.file.write(batch[: len(batch) // 2], position)
        self.file.write(batch[len(batch) // 2 :], position + len(batch) // 2)

    def flush(self) -> None:
        """Force everything to disk; it counts as replicated then."""
        self.file.fsync()
        self.writer.log_dir.put(OffsetKind.RECOVERY_POINT, self.partition, self.end)
        self.writer.note(self.partition, "flush", end=self.end)
        self.writer.log_dir.put(OffsetKind.HIGH_WATERMARK, self.partition, self.end)

    # ---- what the cleaner relies on --------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment and begin the next: trim, flush, snapshot, and only then publish the new `.log`."""
        if not self.active.log:
            return
        fs = self.writer.fs
        with self._locked():
            self._close_active()
            snapshot = self.directory / names.snapshot_file_name(self.end)
            fs.write_atomically(snapshot, encode_snapshot(self.producers))
            for suffix in (*_INDEXES, names.LOG):
                with fs.create(self._path(self.end, suffix), like=self.directory) as file:
                    file.fsync()
            fs.fsync_dir(self.directory)
            self._go_on_with(Segment.open(fs, self.directory, self.end))

    def _close_active(self) -> None:
        fs = self.writer.fs
        for name, data in self.active.files().items():
            if name.endswith(names.LOG):
                continue
            path = self.directory / name
            with fs.open(path, write=True) if fs.exists(path) else fs.create(path, like=self.directory) as file:
                file.write(data, 0)
                file.truncate(len(data))
                file.fsync()
        self.file.fsync()
        self.file.close()

    def cut(self, to_offset: int) -> None:
        """
        Cut the log to end at an offset, a batch's first; the segment that holds it becomes the active one.

        The lines of the checkpoints first, then the last segments, then the one that is cut: at no moment is anything
        taken for clean or for replicated that is not there.
        """
        fs = self.writer.fs
        self.writer.note(self.partition, "cut", to=to_offset)
        with self._locked():
            settle_swap(fs, self.directory, index_bytes=1024)
            segments = list_segments(fs, self.directory)
            target = next((s for s in reversed(segments) if s.base_offset <= to_offset), segments[0])
            self._lower(OffsetKind.HIGH_WATERMARK, to_offset)
            self._lower(OffsetKind.RECOVERY_POINT, target.base_offset)
            with checkpoint_lock(fs, self.writer.log_dir.path, self.writer.clock):
                self._lower(OffsetKind.CLEANER, target.base_offset)
            self.file.close()
            for segment in reversed(segments[segments.index(target) + 1 :]):
                self._delete(segment.base_offset)
            with fs.open(target.log_path, write=True) as file:
                batches = split_batches(file.read(target.size, 0))
                kept = (len(batch) for batch in batches if batch_info(batch).last_offset < to_offset)
                file.truncate(sum(kept))
                file.fsync()
            self._remove_snapshots_above(target.base_offset)
            self._go_on_with(target)
        self.abort_transactions()

    def _remove_snapshots_above(self, base_offset: int) -> None:
        fs = self.writer.fs
        found = [name for name in fs.list_files(self.directory) if name.endswith(names.SNAPSHOT)]
        fs.remove_all(self.directory, [name for name in found if names.offset_of(name) > base_offset])

    def delete_oldest(self) -> None:
        """Delete the oldest segment, as retention does; the files stay under another name for a while."""
        fs = self.writer.fs
        with self._locked():
            settle_swap(fs, self.directory, index_bytes=1024)
            segments = list_segments(fs, self.directory)
            if len(segments) < 3 or segments[1].base_offset > self._line(OffsetKind.HIGH_WATERMARK):
                return
            self.writer.note(self.partition, "start", to=segments[1].base_offset)
            self._delete(segments[0].base_offset, remove=False)

    def remove_deleted(self) -> None:
        """Remove what waits for it."""
        with self._locked():
            found = self.writer.fs.list_files(self.directory)
            self.writer.fs.remove_all(self.directory, [name for name in found if name.endswith(names.DELETED)])

    def _delete(self, base_offset: int, *, remove: bool = True) -> None:
        fs = self.writer.fs
        files = [names.segment_file_name(base_offset, s) for s in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)]
        fs.rename_all(self.directory, [(name, name + names.DELETED) for name in files])
        fs.fsync_dir(self.directory)
        if remove:
            fs.remove_all(self.directory, [name + names.DELETED for name in files])

    def batch_offsets(self, segments: int) -> list[int]:
        """Return where the batches of the last segments begin: where the log may be cut."""
        with self._locked():
            last = list_segments(self.writer.fs, self.directory)[-segments:]
            logs = [self.writer.fs.read_bytes(segment.log_path) for segment in last]
        return [batch_info(batch).base_offset for log in logs for batch in split_batches(log)]

    def close(self) -> None:
        """Leave the log as a clean stop does."""
        fs = self.writer.fs
        with self._locked():
            self._close_active()
            if self.end > self._line(OffsetKind.LOG_START):
                fs.write_atomically(
                    self.directory / names.snapshot_file_name(self.end), encode_snapshot(self.producers)
                )
            fs.fsync_dir(self.directory)
        self.writer.log_dir.put(OffsetKind.RECOVERY_POINT, self.partition, self.end)
        self.writer.note(self.partition, "flush", end=self.end)
        self.writer.log_dir.put(OffsetKind.HIGH_WATERMARK, self.partition, self.end)

    def _path(self, base_offset: int, suffix: str) -> Path:
        return self.directory / names.segment_file_name(base_offset, suffix)
