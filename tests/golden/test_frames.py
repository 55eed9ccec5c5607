"""What a broker wrote, as a DataFrame's rows: what Kafka's consumer sees, from log dirs and from bare archives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.log.reader import open_reader
from cleaner.log.record import Record
from tests.golden.scenario import Step
from tests.golden.test_reading import SOUND, as_consumer, stages
from tests.support.log_builder import HIGH_WATERMARKS
from tests.unit.spark_source.reading import Row, rows_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_row(name: TopicPartition, record: Record) -> Row:
    """Return a record as Spark's Kafka source shows it."""
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": name.topic,
        "partition": name.partition,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms or 0),
        "headers": headers or None,
    }


def shown(path: Path, step: Step, **options: str) -> list[Row]:
    """Return the rows of a partition, without the kind of timestamp."""
    name = TopicPartition.parse(step.partition)
    chosen = {"topics": name.topic, "partitions": str(name.partition), "includeHeaders": "true", **options}
    return [{key: value for key, value in row.items() if key != "timestampType"} for row in rows_of(path, **chosen)]


def bare(directory: Path, target: Path) -> Path:
    """Copy a partition's segments, and how far they are replicated, but nothing else."""
    archive = target / directory.name
    archive.mkdir(parents=True)
    shutil.copy(directory.parent / HIGH_WATERMARKS, target)
    for log in directory.glob("*.log"):
        shutil.copy(log, archive)
    return archive


@pytest.mark.parametrize("step", SOUND, ids=str)
def test_frame_of_a_brokers_log_is_what_its_consumer_sees(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """Either isolation, cut into many tasks, with indexes and without, and the last record of every key."""
    name = TopicPartition.parse(step.partition)
    for number, log_dir in enumerate(stages(step, unpacked)):
        directory = log_dir / step.partition
        with open_reader(log_dir, *name) as reader:
            start, stable = reader.log_start_offset, reader.last_stable_offset
        everything = [as_row(name, r) for r in as_consumer(directory, committed=False)]
        committed = [as_row(name, r) for r in as_consumer(directory, committed=True) if (r.offset or 0) < stable]
        if number == 0:
            # Cleaning may take an open transaction's first records: then only a snapshot knows where it began.
            archive = bare(directory, tmp_path)
            assert shown(archive, step, isolationLevel="read_committed") == committed
        committed = [row for row in committed if row["offset"] >= start]
        assert shown(log_dir, step, maxPartitionBytes="1k") == [row for row in everything if row["offset"] >= start]
        assert shown(log_dir, step, isolationLevel="read_committed", maxPartitionBytes="1k") == committed
        latest = {row["key"]: row for row in committed if row["key"] is not None}
        kept = sorted(latest.values(), key=lambda row: row["offset"])
        options = {"isolationLevel": "read_committed", "latestPerKey": "true", "latestPerKeyMemory": "64k"}
        assert shown(log_dir, step, includeTombstones="true", **options) == kept
        assert shown(log_dir, step, **options) == [row for row in kept if row["value"] is not None]
