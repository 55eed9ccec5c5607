"""Our log dir with a log to hand over, and a broker's log dir with empty topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import cleaner
from cleaner import LogManager, Record, open_reader
from cleaner.base.model import TopicPartition
from cleaner.storage.files.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.segment.names import PARTITION_METADATA
from tests.support.metadata_builder import TOPIC, config_record, partition_record, topic_record, write_snapshot

PRICES = "prices"
TOPIC_ID = UUID("22f18111-b129-4501-af65-61b62645f05b")
FIRST = TopicPartition(PRICES, 0)
START, END = 7, 62
FS = FileSystem()


def write_ours(path: Path, *, partitions: int = 2) -> Path:
    """Write logs of three segments, that begin at offset 7 and have seen two unclean stops; closed in order."""
    with LogManager(path, create=True, tasks=False, cleaner=False) as manager:
        manager.create_topic(PRICES, partitions, {"cleanup.policy": "compact,delete"})
    for life in range(3):
        with LogManager(path, tasks=False, cleaner=False) as manager:
            for number in range(partitions):
                log = manager.log(PRICES, number)
                log.append([Record(b"k%d" % (each % 5), b"%d of %d" % (each, life)) for each in range(20)])
                if life == 1:
                    with log.producer("importer").transaction() as transaction:
                        transaction.append([Record(b"k", b"paid")])
                log.roll()
        if life < 2:
            (path / ".kafka_cleanshutdown").unlink()
    starts = {TopicPartition(PRICES, number): START for number in range(partitions)}
    write_offset_checkpoint(FS, path / OffsetKind.LOG_START.value, starts)
    cleaner.recover(path)  # leader epochs begin where the log does, once it was loaded
    return path


def write_brokers(path: Path, *, partitions: int = 2, with_metadata: bool = True, replicas: int = 1) -> Path:
    """Write empty logs under the cluster's id, closed in order."""
    with LogManager(path, create=True, tasks=False, cleaner=False) as manager:
        manager.create_topic("other", 1)
        manager.create_topic(PRICES, partitions, topic_id=TOPIC_ID)
        manager.log("other").append([Record(b"o", b"1")])
    (path / "cleaner-topics.properties").unlink(missing_ok=True)
    if with_metadata:
        records = [topic_record(PRICES, TOPIC_ID), config_record(TOPIC, PRICES, "cleanup.policy", "compact")]
        records += [partition_record(TOPIC_ID, number, range(1, replicas + 1)) for number in range(partitions)]
        write_snapshot(path / "__cluster_metadata-0", 9, records)
    return path


def lines(log_dir: Path, partition: TopicPartition = FIRST) -> dict[OffsetKind, int | None]:
    """Return a partition's lines of the four checkpoints."""
    return {kind: read_offset_checkpoint(FS, log_dir / kind.value).get(partition) for kind in OffsetKind}


def records(log_dir: Path, partition: TopicPartition = FIRST) -> list[tuple[object, ...]]:
    """Return all records that a reader gets."""
    with open_reader(log_dir, partition.topic, partition.partition) as reader:
        return [
            (each.offset, each.timestamp_ms, each.key, each.value)
            for each in reader.read(reader.log_start_offset, until="end")
        ]


def topic_id_of(log_dir: Path, partition: TopicPartition = FIRST) -> UUID | None:
    """Return the contents of a partition's `partition.metadata`."""
    return read_topic_id(FS, log_dir / str(partition) / PARTITION_METADATA)


def directories(log_dir: Path) -> set[str]:
    """Return the names of the directories."""
    return {path.name for path in log_dir.iterdir() if path.is_dir()}


def contents(log_dir: Path) -> Mapping[str, bytes]:
    """Return all files but the lock's, by their paths."""
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in sorted(log_dir.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
