"""Record batches: every column is compared with the written records, for any codec, 65536 rows at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.spark.source.columns import BATCH_FIELDS, SELECTABLE
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.spark_source.reading import batches_of, rows_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
pytestmark = pytest.mark.kernels

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELD = st.none() | st.binary(max_size=40)
RECORD = st.builds(
    Record,
    FIELD,
    FIELD,
    offset=st.none(),
    timestamp_ms=st.integers(0, 2**41),
    attributes=st.just(0),
    headers=st.lists(st.tuples(st.text(max_size=3).map(str.encode), FIELD), max_size=3).map(tuple),
)
BATCH = st.tuples(st.lists(RECORD, min_size=1, max_size=6), st.sampled_from(["none", "gzip", "lz4", "snappy", "zstd"]))


def moment(timestamp_ms: int) -> datetime:
    """Return a time as Arrow shows it."""
    return EPOCH + timedelta(milliseconds=timestamp_ms)


@given(st.lists(BATCH, min_size=1, max_size=5))
def test_columns_equal_the_written_records(batches: list[tuple[list[Record], str]]) -> None:
    """Nulls, empty fields, headers of the same name, times that go back."""
    log = LogBuilder()
    expected: list[dict[str, Any]] = []
    for records, codec in batches:
        first = log.append(*records, codec=codec)
        expected += [
            {
                "key": record.key,
                "value": record.value,
                "topic": "topic",
                "partition": 0,
                "offset": first + number,
                "timestamp": moment(record.timestamp_ms or 0),
                "timestampType": 0,
                "headers": [{"key": name.decode(), "value": value} for name, value in record.headers] or None,
            }
            for number, record in enumerate(records)
        ]
    with scratch_directory() as directory:
        log.write(directory)
        assert rows_of(directory, includeHeaders="true") == expected


def test_batch_fields_are_those_of_the_batch_around_a_record(tmp_path: Path) -> None:
    """On request, in the requested order; sizes and positions are those in the file."""
    log = LogBuilder(leader_epoch=4)
    log.append(("a", "1"), ("b", "2"), codec="gzip", timestamp_ms=START_MS)
    log.append(("c", "3"), producer=Producer(7, 2, 30, transactional=True), timestamp_ms=START_MS + 5)
    log.end_transaction(7, 2, commit=True)
    log.roll()
    log.append(("d", "4"), append_time_ms=START_MS + 9)
    directory = write_log_dir(tmp_path, log) / "topic-0"
    rows = rows_of(tmp_path, columns=",".join(("offset", "compression", "isTransactional", "file", *BATCH_FIELDS)))
    assert [list(row.values())[:3] for row in rows] == [
        [0, "gzip", False],
        [1, "gzip", False],
        [2, "none", True],
        [4, "none", False],
    ]
    assert [Path(row["file"]).name for row in rows] == [f"{base:020d}.log" for base in (0, 0, 0, 4)]
    sizes = [row["batchSize"] for row in rows]
    fields = [[row[name] for name in BATCH_FIELDS if name != "batchSize"] for row in rows]
    assert fields == [
        [0, 1, 0, START_MS, 2, -1, -1, -1, 4],
        [0, 1, 0, START_MS, 2, -1, -1, -1, 4],
        [2, 2, sizes[0], START_MS + 5, 2, 7, 2, 30, 4],
        [4, 4, 0, START_MS + 9, 2, -1, -1, -1, 4],
    ]
    assert sizes[3] == (directory / f"{4:020d}.log").stat().st_size


def test_kinds_of_timestamps_have_kafkas_numbers(tmp_path: Path) -> None:
    """0 by the producer, 1 by the log, -1 for magic 0, which has none; a time beyond all bounds is the last one."""
    log = LogBuilder()
    log.append(("a", "1"), timestamp_ms=START_MS)
    log.append(("b", "2"), ("c", "3"), append_time_ms=START_MS + 7)
    log.append(("d", "4"), ("e", "5"), magic=0, codec="gzip")
    log.append(("f", "6"), magic=1, append_time_ms=START_MS + 8)
    log.append(("g", "7"), timestamp_ms=2**62)
    write_log_dir(tmp_path, log)
    batch = batches_of(tmp_path)[0]
    assert batch.column("timestampType").to_pylist() == [0, 1, 1, -1, -1, 1, 0]
    micros = batch.column("timestamp").cast("int64").to_pylist()
    assert micros == [1000 * (START_MS + more) for more in (0, 7, 7)] + [
        -1000, -1000, 1000 * (START_MS + 8), (2**63 - 1) // 1000 * 1000,
    ]  # fmt: skip


def test_header_names_that_are_no_utf8_are_read_as_java_reads_them(tmp_path: Path) -> None:
    """Malformed bytes become the replacement character; the values stay bytes."""
    log = LogBuilder()
    log.append(Record(b"k", b"v", headers=((b"a\xff", b"\xff"), ("ü".encode(), None))))
    write_log_dir(tmp_path, log)
    (row,) = rows_of(tmp_path, columns="headers")
    assert row == {"headers": [{"key": "a\ufffd", "value": b"\xff"}, {"key": "ü", "value": None}]}


def test_batches_are_full_with_65536_rows_and_hold_one_partition(tmp_path: Path) -> None:
    """They span segments of a partition, but not partitions."""
    logs = [LogBuilder(), LogBuilder()]
    logs[1].topic_partition = logs[0].topic_partition._replace(partition=1)
    for log in logs:
        for _ in range(7):
            log.append(*[("k", None)] * 10_000)
            log.roll()
    write_log_dir(tmp_path, *logs)
    found = [(batch.num_rows, set(batch.column("partition").to_pylist())) for batch in batches_of(tmp_path)]
    assert found == [(65536, {0}), (4464, {0}), (65536, {1}), (4464, {1})]


def test_batch_ends_early_when_its_records_are_large(tmp_path: Path) -> None:
    """Memory is bounded by bytes, too."""
    log = LogBuilder()
    for _ in range(9):
        log.append(*[("k", b"v" * (4 << 20))] * 5)
    write_log_dir(tmp_path, log)
    batches = batches_of(tmp_path, columns="key,value")
    assert sum(batch.num_rows for batch in batches) == 45
    assert len(batches) == 3
    assert max(batch.nbytes for batch in batches) < 100 << 20


def test_every_column_can_be_read_alone(tmp_path: Path) -> None:
    """None depends on another."""
    log = LogBuilder()
    log.append(("a", "1"), ("b", None))
    write_log_dir(tmp_path, log)
    for name in SELECTABLE:
        assert [list(row) for row in rows_of(tmp_path, columns=name)] == [[name], [name]]
