"""Plans: which files are read, where they are cut, and what is excluded without reading it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import OffsetOutOfRangeError, UnknownTopicError, UsageError
from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.find import find_partitions
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import LatestTask, SpansTask
from cleaner.spark.source.spans import Span
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import NEVER_FOLLOWED
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.spark_source.reading import offsets_of, rows_of, tasks_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")


def a_log(topic: str = "t", partition: int = 0, batches: int = 40, base_offset: int = 0) -> LogBuilder:
    """Four segments of batches of two records, an index entry each, and a millisecond between them."""
    log = LogBuilder(TopicPartition(topic, partition), index_interval_bytes=0, base_offset=base_offset)
    for number in range(batches):
        if number and number % (batches // 4) == 0:
            log.roll()
        log.append((f"k{number}", "v" * 50), (f"l{number}", "w" * 50))
    return log


def spans_in(tasks: list[SpansTask | LatestTask]) -> list[Span]:
    """Return all spans of tasks."""
    return [span for task in tasks if isinstance(task, SpansTask) for span in task.spans]


def test_segments_are_cut_where_an_index_leads_to_a_batch(tmp_path: Path) -> None:
    """Every task has about the wanted size; together they read all records once, in order."""
    write_log_dir(tmp_path, a_log())
    tasks = tasks_of(tmp_path, maxPartitionBytes="500")
    assert len(tasks) > 8
    assert all(sum(span.size for span in task.spans) < 1500 for task in tasks if isinstance(task, SpansTask))
    assert offsets_of(tmp_path, maxPartitionBytes="500") == list(range(80))
    assert len(tasks_of(tmp_path)) == 1  # small ones share a task


def test_segments_without_an_index_are_one_span_each(tmp_path: Path) -> None:
    """An index that is damaged, or points into batches, counts as missing."""
    write_log_dir(tmp_path, a_log())
    indexes = sorted((tmp_path / "t-0").glob("*.index"))
    indexes[0].unlink()
    indexes[1].write_bytes(b"\1" * 7)
    entries = bytearray(indexes[2].read_bytes())
    for at in range(7, len(entries), 8):
        entries[at] += 3  # every entry leads some bytes into its batch
    indexes[2].write_bytes(entries)
    spans = spans_in(tasks_of(tmp_path, maxPartitionBytes="500"))
    assert [span.base_offset for span in spans][:3] == [0, 20, 40]
    assert len(spans) > 5
    assert offsets_of(tmp_path, maxPartitionBytes="500") == list(range(80))


@pytest.mark.parametrize(("first", "end"), [(0, 80), (1, 79), (19, 21), (20, 40), (33, 34), (50, 50), (79, 99)])
def test_range_of_offsets_reads_no_other_segments(tmp_path: Path, first: int, end: int) -> None:
    """By options or by a filter: only segments that may hold the offsets are opened, and records are exact."""
    write_log_dir(tmp_path, a_log())
    wanted = list(range(first, min(end, 80)))
    by_options = {"startingOffsets": str(first), "endingOffsets": str(end)}
    pruning = Pruning(first_offset=first, end_offset=end)
    assert offsets_of(tmp_path, **by_options) == wanted
    assert offsets_of(tmp_path, pruning) == wanted
    bases = {span.base_offset for span in spans_in(tasks_of(tmp_path, pruning))}
    assert bases == {offset // 20 * 20 for offset in wanted}


def test_partitions_are_chosen_by_option_and_by_filter(tmp_path: Path) -> None:
    """Others are not even listed."""
    write_log_dir(tmp_path, a_log("a", 0), a_log("a", 7), a_log("b", 0))
    chosen = {(span.topic_partition) for span in spans_in(tasks_of(tmp_path, topics="a", partitions="3-9"))}
    assert chosen == {TopicPartition("a", 7)}
    shutil.rmtree(tmp_path / "a-0")
    (tmp_path / "a-0").symlink_to("nowhere")
    pruning = Pruning(topics=frozenset({"b"}), first_partition=0, end_partition=3)
    assert {span.topic_partition for span in spans_in(tasks_of(tmp_path, pruning))} == {TopicPartition("b", 0)}
    assert tasks_of(tmp_path, Pruning(partitions=frozenset({9}))) == []
    with pytest.raises(UnknownTopicError, match="'c': not in"):
        tasks_of(tmp_path, topics="b,c")


def test_link_in_a_log_dir_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is a directory with which a broker does not start. A link that is named itself is followed."""
    elsewhere = a_log("a", 0).write(tmp_path / "elsewhere")
    log_dir = write_log_dir(tmp_path / "logs", a_log("b", 0))
    (log_dir / "a-0").symlink_to(elsewhere)
    (log_dir / "a-1").symlink_to("nowhere")
    (log_dir / "b").mkdir()
    found = find_partitions(FileSystem(), read_options({"path": str(log_dir)}))
    assert found == {TopicPartition("b", 0): [log_dir / "b-0"]}
    err = capsys.readouterr().err
    for name in ("a-0", "a-1"):
        assert f"kafkalog: {log_dir / name}: left out: {NEVER_FOLLOWED}" in err
    assert f"kafkalog: {log_dir / 'b'}: 'b' is not a topic" in err
    with pytest.raises(UnknownTopicError, match="'a': not in"):
        find_partitions(FileSystem(), read_options({"path": str(log_dir), "topics": "a"}))
    named = find_partitions(FileSystem(), read_options({"path": str(log_dir / "a-0")}))
    assert named == {TopicPartition("a", 0): [elsewhere]}


def test_old_segments_and_batches_are_skipped(tmp_path: Path) -> None:
    """Segments by their time index, batches by their headers; a closed segment without an index is read."""
    write_log_dir(tmp_path, a_log())
    pruning = Pruning(min_timestamp_ms=START_MS + 31)
    assert [span.base_offset for span in spans_in(tasks_of(tmp_path, pruning))] == [60]
    assert offsets_of(tmp_path, pruning)[:3] == [60, 61, 62]
    for index in (tmp_path / "t-0").glob("*.timeindex"):
        index.unlink()
    assert len(spans_in(tasks_of(tmp_path, pruning))) == 4
    assert offsets_of(tmp_path, pruning)[:3] == [60, 61, 62]


def test_starting_timestamp_begins_at_the_first_record_of_it(tmp_path: Path) -> None:
    """As `offsetsForTimes`; nothing if there is none, and only named partitions."""
    write_log_dir(tmp_path, a_log())
    assert offsets_of(tmp_path, startingTimestamp=str(START_MS + 30))[0] == 58
    assert offsets_of(tmp_path, startingTimestamp=str(START_MS + 1000)) == []
    assert len(offsets_of(tmp_path, startingTimestamp='{"other": {"0": 1}}', startingOffsets="70")) == 10


def test_ending_timestamp_ends_before_the_first_record_of_it(tmp_path: Path) -> None:
    """At the log's end if there is none; the latest records of all keys at that time, too."""
    write_log_dir(tmp_path, a_log())
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        time = str(START_MS + 30) if name == "endingTimestamp" else f'{{"t": {{"0": {START_MS + 30}}}}}'
        assert offsets_of(tmp_path, **{name: time})[-1] == 57
        assert offsets_of(tmp_path, latestPerKey="true", **{name: time})[-1] == 57
    assert offsets_of(tmp_path, endingTimestamp=str(START_MS + 1000))[-1] == 79
    assert offsets_of(tmp_path, startingTimestamp=str(START_MS + 30), endingTimestamp=str(START_MS + 31)) == [58, 59]


def test_starting_time_that_no_record_has_is_an_error_on_request(tmp_path: Path) -> None:
    """With the strategy `error` of Spark's Kafka source; the error says what to do."""
    write_log_dir(tmp_path, a_log())
    late = {"startingTimestamp": str(START_MS + 1000), "startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(
        UsageError, match=r"t-0: no record at \d+ ms or later; startingOffsetsByTimestampStrategy=latest"
    ):
        tasks_of(tmp_path, **late)


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({"maxRecordsPerPartition": "7"}, 12, 7),
        ({"maxRecordsPerPartition": "7", "maxPartitionBytes": "500"}, 12, 7),
        ({"minPartitions": "9"}, 9, 80),
        ({"minPartitions": "9", "maxRecordsPerPartition": "3"}, 27, 3),
        ({"minPartitions": "1000"}, 80, 1),
    ],
)
def test_tasks_are_as_many_and_as_small_as_wanted(
    tmp_path: Path, options: dict[str, str], least: int, most: int, has_index: bool
) -> None:
    """Also if a cut is within a batch, or no index entry points to it: all records once, in order."""
    write_log_dir(tmp_path, a_log())
    for index in [] if has_index else (tmp_path / "t-0").glob("*.index"):
        index.unlink()
    tasks = tasks_of(tmp_path, **options)
    counts = [sum(span.end_offset - span.first_offset for span in spans_in([task])) for task in tasks]
    assert len(tasks) >= least
    assert max(counts) <= most
    assert offsets_of(tmp_path, **options) == list(range(80))


def test_partition_that_is_assigned_must_be_there(tmp_path: Path) -> None:
    """Only assigned partitions are read."""
    write_log_dir(tmp_path, a_log("a", 0), a_log("a", 7), a_log("b", 0))
    spans = spans_in(tasks_of(tmp_path, assign='{"a": [7], "b": [0]}'))
    assert {str(span.topic_partition) for span in spans} == {"a-7", "b-0"}
    with pytest.raises(UsageError, match="assign: a-3 is not in"):
        tasks_of(tmp_path, assign='{"a": [3, 7]}')


def test_log_start_offset_hides_earlier_records(tmp_path: Path) -> None:
    """An offset below it, or beyond the end, that the options name is lost, which may be an error or not."""
    write_log_dir(tmp_path, a_log(), log_start_offsets={TopicPartition("t", 0): 25})
    assert offsets_of(tmp_path)[0] == 25
    for offset in (3, 81):
        options = {"startingOffsets": f'{{"t": {{"0": {offset}}}}}'}
        with pytest.raises(OffsetOutOfRangeError, match="not within 25 and 80; failOnDataLoss=false reads the rest"):
            tasks_of(tmp_path, **options)
        assert offsets_of(tmp_path, failOnDataLoss="false", **options) == list(range(25, 80) if offset == 3 else [])


# ---- paths ----------------------------------------------------------------------------------------------------------


def test_path_is_a_log_dir_a_partition_or_a_pattern(tmp_path: Path) -> None:
    """Decided by a directory's content; `-delete` directories and other files are no logs."""
    first, second = (
        write_log_dir(tmp_path / "kafka-1", a_log("a", 0)),
        write_log_dir(tmp_path / "kafka-2", a_log("b", 1)),
    )
    shutil.copytree(first / "a-0", first / f"old-0.{'0' * 32}-delete")
    os.sync()

    def found(pattern: str) -> set[str]:
        return {str(span.topic_partition) for span in spans_in(tasks_of(pattern))}

    assert found(f"{first}") == {"a-0"}
    assert found(f"{first}/a-0") == {"a-0"}
    assert found(f"file://{tmp_path}/kafka-*") == {"a-0", "b-1"}
    assert found(f"{tmp_path}/kafka-?/*-1") == {"b-1"}
    assert found(f"{tmp_path}/kafka-{{1,2}}/[ab]-*") == {"a-0", "b-1"}
    assert found(f"{first}/*") == {"a-0"}
    assert second.is_dir()


def test_path_without_a_log_is_refused(tmp_path: Path) -> None:
    """An empty path, no log, a name that is not that of a partition, a store that is not mounted."""
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "*"):
        with pytest.raises(UsageError, match="no Kafka log; give a log dir"):
            tasks_of(path)
    shutil.move(write_log_dir(tmp_path, a_log()) / "t-0", tmp_path / "backup")
    with pytest.raises(UsageError, match="its name is not that of a topic and partition"):
        tasks_of(tmp_path / "backup")
    with pytest.raises(UsageError, match="not from s3a://"):
        tasks_of("s3a://bucket/logs")


def test_partition_in_two_directories_is_refused_unless_the_longest_is_meant(tmp_path: Path) -> None:
    """The one that ends last; of equal ones, the one that begins first."""
    write_log_dir(tmp_path / "a", a_log(batches=20))
    write_log_dir(tmp_path / "b", a_log(batches=40))
    write_log_dir(tmp_path / "c", a_log(batches=30, base_offset=20))
    with pytest.raises(UsageError, match=r"t-0 is in 3 directories .*replica=longest"):
        tasks_of(f"{tmp_path}/*")
    assert offsets_of(f"{tmp_path}/*", replica="longest") == list(range(80))
    assert offsets_of(f"{tmp_path}/{{a,a}}") == list(range(40))  # the same directory, named twice


def test_partition_without_records_has_no_task(tmp_path: Path) -> None:
    """Neither a directory without segments nor an empty segment has one."""
    write_log_dir(tmp_path, LogBuilder())
    (tmp_path / "other-0").mkdir()
    assert tasks_of(tmp_path) == []
    assert rows_of(tmp_path, latestPerKey="true") == []
