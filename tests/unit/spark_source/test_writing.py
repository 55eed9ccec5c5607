"""A log dir made of rows: as a broker would have left it, complete or not at all."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cleaner import LogManager, Record, open_reader
from cleaner.base.model import TopicPartition
from cleaner.errors import InvalidTopicError, LogDirLockedError, UsageError
from cleaner.log.partitioner import partition_of
from cleaner.spark.source.publish import discard, publish
from cleaner.spark.source.write_options import check_columns, write_options
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir
from tests.unit.spark_source.reading import Row, rows_of
from tests.unit.spark_source.writing import JOB, NOW_MS, record_batch, write_frame

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

START = datetime(2024, 5, 1, tzinfo=UTC)


def a_row(number: int, topic: str = "t", partition: int = 0, **others: Any) -> Row:
    """Return a row of all kinds."""
    return {
        "key": None if number % 7 == 3 else b"k%d" % number,
        "value": None if number % 5 == 2 else b"v%d" % number * 9,
        "topic": topic,
        "partition": partition,
        "timestamp": START + timedelta(milliseconds=number),
        "headers": [{"key": "h", "value": None}, {"key": "ü", "value": b"%d" % number}] if number % 4 == 0 else None,
        **others,
    }


def as_read(rows: list[Row]) -> list[Row]:
    """Return rows as they should be read back: with offsets, by partition."""
    ends: dict[tuple[str, int], int] = {}
    found = []
    for row in rows:
        place = (row["topic"], row["partition"])
        found.append({**row, "offset": ends.setdefault(place, 0)})
        ends[place] += 1
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def shown(path: Path) -> list[Row]:
    """Return all rows, without the kind of timestamp."""
    return [
        {name: value for name, value in row.items() if name != "timestampType"}
        for row in rows_of(path, includeHeaders="true")
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_read_back_as_they_were_written(tmp_path: Path, codec: str) -> None:
    """The tasks' rows follow each other, by partition, with offsets without gaps, over many segments."""
    tasks = [[a_row(number + 100 * task, partition=number % 3) for number in range(100)] for task in range(4)]
    ends = write_frame(tmp_path / "logs", *tasks, compression=codec, segmentBytes="1k", batchBytes="200")
    assert ends == {TopicPartition("t", 0): 136, TopicPartition("t", 1): 132, TopicPartition("t", 2): 132}
    assert shown(tmp_path / "logs") == as_read([row for rows in tasks for row in rows])
    assert len(list((tmp_path / "logs" / "t-0").glob("*.log"))) > 4


def test_written_log_dir_is_one_that_was_closed_in_order(tmp_path: Path) -> None:
    """It is opened without recovery, appended to, and read by offset and by time through its indexes."""
    rows = [a_row(number) for number in range(500)]
    write_frame(tmp_path / "logs", rows[:250], rows[250:], segmentBytes="4k", batchBytes="100")
    fs, log_dir = FileSystem(), LogDir(FileSystem(), tmp_path / "logs")
    name = TopicPartition("t", 0)
    assert log_dir.has_clean_shutdown_marker()
    assert log_dir.recovery_points == log_dir.high_watermarks == {name: 500}
    assert {path.suffix for path in (tmp_path / "logs" / "t-0").iterdir()} == {
        *(".log", ".index", ".timeindex", ".snapshot", ".metadata"),
        "",
    }
    with open_reader(tmp_path / "logs", "t") as reader:
        assert (reader.log_end_offset, reader.high_watermark, reader.last_stable_offset) == (500, 500, 500)
        assert [next(reader.read(offset)).offset for offset in (0, 249, 250, 251, 499)] == [0, 249, 250, 251, 499]
        start_ms = int(START.timestamp() * 1000)
        assert [reader.offset_for_time(start_ms + more) for more in (0, 300, 499, 500)] == [0, 300, 499, None]
    before = {path: path.read_bytes() for path in (tmp_path / "logs" / "t-0").glob("*index")}
    with LogManager(tmp_path / "logs", cleaner=False) as manager:
        assert manager.failed == {}
        assert manager.log("t").append([Record(b"k", b"v")]).base_offset == 500
    assert all(path.read_bytes().startswith(data) for path, data in before.items())
    assert read_topic_id(fs, tmp_path / "logs" / "t-0" / "partition.metadata") is not None
    assert read_meta_properties(fs, tmp_path / "logs" / "meta.properties") is not None


def test_columns_that_are_left_out_have_defaults(tmp_path: Path) -> None:
    """One topic for all, partition 0, no key, no headers, the time of the write."""
    write_frame(tmp_path / "logs", [{"value": b"v"}], topic="named")
    (row,) = shown(tmp_path / "logs")
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert row == {
        "key": None, "value": b"v", "topic": "named", "partition": 0, "offset": 0, "timestamp": now, "headers": None,
    }  # fmt: skip


def test_partition_is_chosen_by_key_as_a_producer_would(tmp_path: Path) -> None:
    """If a row names none; a row without a key is refused."""
    rows = [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2", "partition": 9}, {"key": b"b", "value": b"3"}]
    write_frame(tmp_path / "logs", rows, topic="t", numPartitions="10")
    found = {(row["key"], row["value"]): row["partition"] for row in shown(tmp_path / "logs")}
    assert found[b"b", b"2"] == 9
    assert (found[b"a", b"1"], found[b"b", b"3"]) == (partition_of(b"a", 10), partition_of(b"b", 10))
    with pytest.raises(UsageError, match="a row without partition and key"):
        write_frame(tmp_path / "others", [{"value": b"v"}], topic="t", numPartitions="10")


def test_identity_is_written_as_given_or_left_to_the_caller(tmp_path: Path) -> None:
    """Cluster, node and topic ids, so that a broker takes the log for its own."""
    topic_id = format_uuid(uuid.UUID(int=12345))
    options = {"clusterId": "a-cluster", "nodeId": "7", "topicIds": f'{{"t": "{topic_id}"}}'}
    write_frame(tmp_path / "logs", [a_row(1)], **options)
    meta = read_meta_properties(FileSystem(), tmp_path / "logs" / "meta.properties")
    assert meta is not None and (meta.cluster_id, meta.node_id) == ("a-cluster", 7)
    assert read_topic_id(FileSystem(), tmp_path / "logs" / "t-0" / "partition.metadata") == uuid.UUID(int=12345)
    write_frame(tmp_path / "logs", [a_row(1, partition=1)])
    assert read_topic_id(FileSystem(), tmp_path / "logs" / "t-1" / "partition.metadata") == uuid.UUID(int=12345)
    write_frame(tmp_path / "bare", [a_row(1)], meta="leave")
    assert not list((tmp_path / "bare").rglob("*meta*"))
    with pytest.raises(UsageError, match="belongs to cluster a-cluster, not to other"):
        write_frame(tmp_path / "logs", [a_row(1, partition=2)], clusterId="other")


def test_topic_that_was_deleted_leaves_its_id_to_none(tmp_path: Path) -> None:
    """Neither to a topic of the same name, nor to its further partitions: a broker would set these aside."""
    logs = tmp_path / "logs"
    write_frame(logs, [a_row(1, partition=2)])
    old = read_topic_id(FileSystem(), logs / "t-2" / "partition.metadata")
    (logs / "t-2").rename(logs / f"t-2.{'a' * 32}-delete")
    for partition in (0, 1):
        write_frame(logs, [a_row(1, partition=partition)])
    ids = [read_topic_id(FileSystem(), logs / f"t-{partition}" / "partition.metadata") for partition in (0, 1)]
    assert ids[0] == ids[1] != old


def test_existing_partition_is_not_touched(tmp_path: Path) -> None:
    """Nothing of the write appears, and nothing is left after it is aborted."""
    write_frame(tmp_path / "logs", [a_row(1)])
    before = {path: path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="t-0: exists already; a write creates partitions"):
        write_frame(tmp_path / "logs", [a_row(2), a_row(3, partition=1)])
    discard(FileSystem(), write_options({"path": str(tmp_path / "logs")}), JOB)
    assert {path: path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in (tmp_path / "logs").iterdir() if path.is_dir()) == ["t-0"]


def test_log_dir_that_another_process_writes_to_is_refused(tmp_path: Path) -> None:
    """As any writer is."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False), pytest.raises(LogDirLockedError):
        write_frame(tmp_path / "logs", [a_row(1)])


def test_attempts_that_failed_leave_nothing_in_the_log(tmp_path: Path) -> None:
    """A task that ran twice, and one that died halfway."""
    from cleaner.spark.source.staging import Stage

    options = write_options({"path": str(tmp_path / "logs")})
    stages = [Stage(FileSystem(), options, JOB, f"0-{attempt}", NOW_MS) for attempt in range(3)]
    stages[0].write([record_batch([a_row(1)])])
    with pytest.raises(UsageError, match="a row without a topic"):
        stages[1].write([record_batch([a_row(1)]), record_batch([a_row(2, topic=None)])])  # type: ignore[arg-type]
    publish(FileSystem(), options, JOB, stages[2].write([record_batch([a_row(1)])]))
    assert len(shown(tmp_path / "logs")) == 1
    names = sorted(path.name for path in (tmp_path / "logs" / "t-0").iterdir())
    zeros = "0" * 20
    assert names == [
        *(f"{zeros}.index", f"{zeros}.log", f"{zeros}.timeindex", f"{'0' * 19}1.snapshot"),
        *("leader-epoch-checkpoint", "partition.metadata"),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"partition": -1}, "partition -1: they count from 0"),
        ({"timestamp": datetime(1960, 1, 1, tzinfo=UTC)}, "it counts milliseconds since 1970"),
    ],
)
def test_row_that_is_no_record_is_refused(tmp_path: Path, row: Row, reason: str) -> None:
    """The error says what is wrong with it, and never shows its content."""
    with pytest.raises(UsageError, match=reason):
        write_frame(tmp_path / "logs", [a_row(1) | row])


def test_topic_that_kafka_would_refuse_is_refused(tmp_path: Path) -> None:
    """Names become directories."""
    with pytest.raises(InvalidTopicError):
        write_frame(tmp_path / "logs", [a_row(1, topic="../etc")])
    assert not (tmp_path / "etc-0").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs the whole path"),
        ({"path": "relative"}, "needs the whole path"),
        ({"path": "/l", "compress": "gzip"}, "no option 'compress'; the nearest is 'compression'"),
        ({"path": "/l", "compression": "brotli"}, "must be one of none, gzip, snappy, lz4, zstd"),
        ({"path": "/l", "segmentBytes": "3g"}, "a segment has at most 2147483647 bytes"),
        ({"path": "/l", "topicIds": '{"t": 5}'}, "must be JSON with Kafka's ids"),
    ],
)
def test_option_that_makes_no_sense_is_refused(options: dict[str, str], reason: str) -> None:
    """What is wrong, and with which option."""
    with pytest.raises(UsageError, match=reason):
        write_options(options)


@pytest.mark.parametrize(
    ("columns", "topic", "reason"),
    [
        ({"key": "binary", "topic": "string"}, None, "needs a column 'value'"),
        ({"value": "binary"}, None, "needs a column 'topic', or the option topic=NAME"),
        ({"value": "binary", "price": "double"}, "t", "no place for column 'price' in a log; select key, value"),
        ({"value": "bigint"}, "t", "column 'value' is of type bigint; it must be binary"),
        ({"value": "string", "partition": "bigint"}, "t", "column 'partition' is of type bigint; it must be int"),
    ],
)
def test_frame_that_is_no_log_is_refused(columns: dict[str, str], topic: str | None, reason: str) -> None:
    """By its columns; those that a log assigns itself are ignored."""
    with pytest.raises(UsageError, match=reason):
        check_columns(columns, topic)
    check_columns({"value": "string", "offset": "bigint", "timestampType": "int"}, "t")
