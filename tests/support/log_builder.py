"""
Builds whole logs and log dirs for tests, as a broker leaves them after a clean stop.

    log = LogBuilder()
    log.append(("k1", "v1"), ("k2", None), codec="gzip")
    log.roll()
    log.append(("k1", "v2"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=False)
    write_log_dir(tmp_path, log)

A builder keeps what a broker keeps: the index entries of each batch (R-320, R-322), the transaction index (R-303),
producer snapshots at every roll and at the end (R-125, R-126), leader epochs (R-123). `write_log_dir` adds the four
checkpoints, the marker and `meta.properties`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cleaner.base.model import EpochEntry, TopicPartition
from tests.support.batch_builder import (
    NO_PRODUCER,
    Producer,
    Record,
    data_batch,
    empty_batch,
    legacy_batch,
    marker_batch,
)
from tests.support.batch_reader import batch_info, split_batches
from tests.support.segment_builder import (
    ProducerState,
    SegmentBuilder,
    encode_snapshot,
    offset_name,
    remember_producer,
)

Pair = tuple[str | bytes | None, str | bytes | None]
START_MS = 1_700_000_000_000
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
TOPIC_ID = "AAAAAAAAQACAAAAAAAAAAQ"
_INT_MAX = 2**31 - 1


def offset_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """Return the text of an offset checkpoint (R-113)."""
    lines = ["0", str(len(entries)), *(f"{tp.topic} {tp.partition} {offset}" for tp, offset in entries.items())]
    return "".join(line + "\n" for line in lines).encode()


def as_record(pair: Pair | Record) -> Record:
    """Convert a (key, value) pair, text or bytes, to a record."""
    if isinstance(pair, Record):
        return pair
    key, value = (part.encode() if isinstance(part, str) else part for part in pair)
    return Record(key, value)


class LogBuilder:
    """
    One partition's log under construction. The builder keeps offsets and times; a caller may set either.

    Args:
        base_offset: of the first segment.
        segment_bytes: rolls before a batch that would not fit; None: rolls only on request, or if an index is full,
            or an offset is too far from the base offset.
        index_interval_bytes, segment_index_bytes: of the offset and time indexes (R-310, R-320).
    """

    def __init__(
        self,
        topic_partition: TopicPartition = TopicPartition("topic", 0),  # noqa: B008  an immutable value
        *,
        base_offset: int = 0,
        segment_bytes: int | None = None,
        index_interval_bytes: int = 4096,
        segment_index_bytes: int = 10 << 20,
        leader_epoch: int = 0,
        timestamp_ms: int = START_MS,
    ) -> None:
        self.topic_partition = topic_partition
        self.next_offset = base_offset
        self.timestamp_ms = timestamp_ms
        self.leader_epoch = leader_epoch
        self.epochs: list[EpochEntry] = []
        self.producers: dict[int, ProducerState] = {}
        self.snapshots: dict[int, bytes] = {}
        self.segment_bytes = segment_bytes
        self.index_interval_bytes = index_interval_bytes
        self.segment_index_bytes = segment_index_bytes
        self._segments = [SegmentBuilder(base_offset, index_interval_bytes, segment_index_bytes)]

    @property
    def base_offsets(self) -> list[int]:
        """The segments' base offsets, ascending."""
        return [segment.base_offset for segment in self._segments]

    def append(
        self,
        *records: Pair | Record,
        codec: str = "none",
        magic: int = 2,
        producer: Producer = NO_PRODUCER,
        timestamp_ms: int | None = None,
        append_time_ms: int | None = None,
        last_offset: int | None = None,
        delete_horizon_ms: int | None = None,
        overrides: Mapping[str, int] | None = None,
    ) -> int:
        """Append one batch at the log's end (magic 0 and 1 uncompressed: one a record); returns its first offset."""
        first = self.next_offset
        time = self._time(timestamp_ms)
        taken = [as_record(record) for record in records]
        if magic < 2:
            batch = legacy_batch(taken, first, magic, timestamp_ms=time, codec=codec, append_time_ms=append_time_ms)
        else:
            batch = data_batch(
                taken,
                first,
                timestamp_ms=time,
                last_offset=last_offset,
                codec=codec,
                producer=producer,
                append_time_ms=append_time_ms,
                delete_horizon_ms=delete_horizon_ms,
                leader_epoch=self.leader_epoch,
                overrides=overrides,
            )
        self.append_raw(batch)
        return first

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        timestamp_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> int:
        """Append a commit or abort marker; returns its offset."""
        offset = self.next_offset
        self.append_raw(
            marker_batch(
                offset,
                producer_id,
                epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=self._time(timestamp_ms),
                leader_epoch=self.leader_epoch,
                delete_horizon_ms=delete_horizon_ms,
            )
        )
        return offset

    def append_empty(self, offsets: int = 1, *, producer: Producer = NO_PRODUCER) -> int:
        """Append a batch without records that covers `offsets` offsets; returns the first."""
        first = self.next_offset
        time = self._time(None)
        self.append_raw(
            empty_batch(
                first, first + offsets - 1, max_timestamp_ms=time, producer=producer, leader_epoch=self.leader_epoch
            )
        )
        return first

    def append_raw(self, data: bytes) -> None:
        """Append finished batches with right lengths; update every index and the producers."""
        for batch in split_batches(data):
            segment, info = self._segments[-1], batch_info(batch)
            too_large = self.segment_bytes is not None and len(segment.log) + len(batch) > self.segment_bytes
            too_far = info.last_offset - segment.base_offset > _INT_MAX
            # If the offsets jump, even an empty segment is closed.
            if too_far or (segment.log and (too_large or segment.is_full)):
                segment = self.roll()
            segment.append(batch, info)
            if info.leader_epoch > (self.epochs[-1].epoch if self.epochs else -1):
                self.epochs.append(EpochEntry(info.leader_epoch, info.base_offset))
            if info.producer.producer_id >= 0:
                remember_producer(self.producers, segment, info, batch)
            self.next_offset = info.last_offset + 1

    def append_damaged(self, data: bytes) -> None:
        """Append any bytes, without index entries: for tests of damage."""
        self._segments[-1].log += data

    def skip(self, offsets: int) -> None:
        """Leave a gap in the offsets, as cleaning does."""
        self.next_offset += offsets

    def roll(self) -> SegmentBuilder:
        """Close the active segment and begin the next at the log end offset."""
        if self.next_offset == self._segments[-1].base_offset:
            raise ValueError("the active segment is empty")
        self.snapshots[self.next_offset] = self.snapshot()
        self._segments.append(SegmentBuilder(self.next_offset, self.index_interval_bytes, self.segment_index_bytes))
        return self._segments[-1]

    def set_mtime(self, mtime_ms: int, segment: int = -1) -> None:
        """Set the modification time of one segment's files (by default the last)."""
        self._segments[segment].mtime_ms = mtime_ms

    def snapshot(self) -> bytes:
        """Return a producer snapshot of the current state (R-125)."""
        return encode_snapshot(self.producers)

    def files(self) -> dict[str, bytes]:
        """Return the partition directory's files by name, as after a clean stop now."""
        found: dict[str, bytes] = {}
        for segment in self._segments:
            found |= segment.files()
        snapshots = dict(self.snapshots)
        if self.next_offset > self._segments[0].base_offset:
            # Kafka writes no snapshot for an empty log, and deletes one at the log start offset.
            snapshots[self.next_offset] = self.snapshot()
        for offset, snapshot in snapshots.items():
            found[offset_name(offset) + ".snapshot"] = snapshot
        lines = ["0", str(len(self.epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in self.epochs)]
        found["leader-epoch-checkpoint"] = "".join(line + "\n" for line in lines).encode()
        found["partition.metadata"] = f"version: 0\ntopic_id: {TOPIC_ID}".encode()
        return found

    def write(self, log_dir: Path) -> Path:
        """Write the partition directory into a log dir and set the files' times; returns the directory."""
        directory = log_dir / str(self.topic_partition)
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.files().items():
            (directory / name).write_bytes(data)
        for segment in self._segments:
            time = (self.timestamp_ms if segment.mtime_ms is None else segment.mtime_ms) * 1_000_000
            for suffix in (".log", ".index", ".timeindex"):
                os.utime(directory / (offset_name(segment.base_offset) + suffix), ns=(time, time))
        return directory

    def _time(self, timestamp_ms: int | None) -> int:
        self.timestamp_ms = self.timestamp_ms + 1 if timestamp_ms is None else timestamp_ms
        return self.timestamp_ms


def write_log_dir(
    path: Path,
    *logs: LogBuilder,
    cleaner_offsets: Mapping[TopicPartition, int] | None = None,
    high_watermarks: Mapping[TopicPartition, int] | None = None,
    log_start_offsets: Mapping[TopicPartition, int] | None = None,
    recovery_points: Mapping[TopicPartition, int] | None = None,
    clean_shutdown: bool = True,
) -> Path:
    """
    Write a log dir with these partitions; high watermarks and recovery points default to the log end offsets.

    An empty mapping writes an empty checkpoint, as after a broker's first start.
    """
    path.mkdir(parents=True, exist_ok=True)
    for log in logs:
        log.write(path)
    ends = {log.topic_partition: log.next_offset for log in logs}
    (path / CLEANER_OFFSETS).write_bytes(offset_checkpoint(cleaner_offsets or {}))
    (path / HIGH_WATERMARKS).write_bytes(offset_checkpoint(ends if high_watermarks is None else high_watermarks))
    (path / RECOVERY_POINTS).write_bytes(offset_checkpoint(ends if recovery_points is None else recovery_points))
    (path / LOG_START_OFFSETS).write_bytes(offset_checkpoint(log_start_offsets or {}))
    (path / "meta.properties").write_text(
        "#\n#Thu Nov 13 00:00:00 GMT 2025\ncluster.id=testcluster\n"
        "directory.id=AAAAAAAAQACAAAAAAAAAAg\nnode.id=1\nversion=1\n"
    )
    if clean_shutdown:
        (path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":-1}')
    return path
