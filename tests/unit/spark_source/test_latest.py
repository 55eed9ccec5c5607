"""The last record of every key: in offset order, within bounds, and with little memory."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from cleaner.log.reader import open_reader
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import LatestTask
from cleaner.spark.source.task import run_task
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.spark_source.reading import offsets_of, rows_of, tasks_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")
pytestmark = pytest.mark.kernels


def a_log(keys: int = 50, partition: int = 0, records: int = 600) -> LogBuilder:
    """Random updates and deletions over several segments, some records without a key."""
    chooser = random.Random(partition)
    log = LogBuilder()
    log.topic_partition = log.topic_partition._replace(partition=partition)
    for number in range(0, records, 5):
        if number and number % 100 == 0:
            log.roll()
        pairs = [(f"k{chooser.randrange(keys)}", chooser.choice(["v", None])) for _ in range(4)]
        log.append(*pairs, (None, "keyless"), codec=chooser.choice(["none", "lz4"]))
    return log


def expected(path: Path, first: int = 0, end: int = 2**62) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of the last records of all keys, from all rows."""
    last = {
        row["key"]: row
        for row in rows_of(path)
        if row["key"] is not None and first <= row["offset"] < end
    }  # fmt: skip
    return sorted((row["offset"], row["key"], row["value"]) for row in last.values())


def shown(path: Path, **options: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of a query's rows."""
    return [(row["offset"], row["key"], row["value"]) for row in rows_of(path, latestPerKey="true", **options)]


def test_last_record_of_every_key_in_offset_order(tmp_path: Path) -> None:
    """Tombstones on request; a key that is in two partitions has a last record in each."""
    write_log_dir(tmp_path, a_log(), a_log(partition=1))
    all_last = [found for partition in (0, 1) for found in expected(tmp_path / f"topic-{partition}")]
    assert len(tasks_of(tmp_path, latestPerKey="true")) == 2
    assert shown(tmp_path, includeTombstones="true") == all_last
    assert shown(tmp_path) == [found for found in all_last if found[2] is not None]


@pytest.mark.parametrize(("first", "end"), [(0, 600), (1, 3), (73, 412), (300, 300)])
def test_bounds_say_which_records_count(tmp_path: Path, first: int, end: int) -> None:
    """A later record beyond the end replaces nothing, even within a batch."""
    write_log_dir(tmp_path, a_log())
    options = {"startingOffsets": str(first), "endingOffsets": str(end), "includeTombstones": "true"}
    assert shown(tmp_path, **options) == expected(tmp_path, first, end)


def test_keys_beyond_the_memory_are_read_in_several_passes(tmp_path: Path) -> None:
    """64 KiB hold 2 047 keys; there are more than twice as many."""
    write_log_dir(tmp_path, a_log(keys=10**6, records=8000))
    found = shown(tmp_path, includeTombstones="true", latestPerKeyMemory="64k")
    assert len(found) > 5000
    assert found == expected(tmp_path)


def test_state_is_that_of_the_moment_the_task_begins(tmp_path: Path) -> None:
    """A cleaner that removes records superseded since the plan was made removes no key."""
    log = a_log()
    write_log_dir(tmp_path, log)
    options = {"path": str(tmp_path), "latestPerKey": "true", "includeTombstones": "true"}
    (task,) = tasks_of(tmp_path, **{name: text for name, text in options.items() if name != "path"})
    later = LogBuilder(base_offset=600)
    for number in range(50):
        later.append((f"k{number}", "newest"))
    shutil.rmtree(tmp_path / "topic-0")
    later.write(tmp_path)
    assert isinstance(task, LatestTask)
    batches = run_task(FileSystem(), read_options(options), task)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {row["key"]: row["value"] for row in rows} == {b"k%d" % number: b"newest" for number in range(50)}


def test_records_without_a_key_have_no_last_one(tmp_path: Path) -> None:
    """They are left out, whether alone in a log or among others."""
    log = LogBuilder()
    log.append((None, "v"), ("", "empty key"), (None, None))
    write_log_dir(tmp_path, log)
    assert offsets_of(tmp_path, latestPerKey="true", includeTombstones="true") == [1]


@pytest.mark.parametrize("seed", range(3))
def test_dataframe_and_log_reader_have_the_same_state(tmp_path: Path, seed: int) -> None:
    """With tombstones, keyless records and transactions that were committed, aborted or are open at the end."""
    chooser = random.Random(seed)
    log = LogBuilder(segment_bytes=900)
    for _ in range(80):
        pairs = [(chooser.choice(["k1", "k2", "k3", "k4", None]), chooser.choice(["v", "w", None])) for _ in range(3)]
        if chooser.random() < 0.5:
            log.append(*pairs)
        else:
            log.append(*pairs, producer=Producer(1, 0, 0, transactional=True))
            log.end_transaction(1, 0, commit=chooser.random() < 0.4)
    log.append(("k1", "not decided"), producer=Producer(2, 0, 0, transactional=True))
    write_log_dir(tmp_path, log)
    with open_reader(tmp_path, "topic") as reader, reader.latest() as latest:
        expected = [(record.offset, record.key, record.value) for record in latest]
    assert expected
    assert shown(tmp_path, isolationLevel="read_committed") == expected
    with open_reader(tmp_path, "topic") as reader, reader.latest(isolation="read_uncommitted") as latest:
        assert shown(tmp_path) == [(record.offset, record.key, record.value) for record in latest]
