"""A stream over rolled segments: where it begins, how far it goes at a time, and how it treats loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cleaner import clean
from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, OffsetOutOfRangeError, UsageError
from cleaner.spark.source.follow import FollowedLogs, Positions
from cleaner.spark.source.marks import Marks
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import SpansTask
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

NAMES = [TopicPartition("t", number) for number in range(3)]


def a_log(name: TopicPartition, segments: list[int]) -> LogBuilder:
    """Return segments of these record counts; the last one is active."""
    log = LogBuilder(name)
    for number, count in enumerate(segments):
        if number:
            log.roll()
        for _ in range(count):
            log.append(("k", "v"))
    return log


def following(path: Path, messages: list[str] | None = None, **options: str) -> FollowedLogs:
    """Follow a log dir."""
    lines: list[str] = [] if messages is None else messages
    return FollowedLogs(FileSystem(), read_options({"path": str(path), **options}), lines.append)


def ranges(segments: FollowedLogs, start: Positions, end: Positions) -> list[tuple[int, int, int]]:
    """Return partition, first and end offset of all spans."""
    tasks = segments.tasks(start, end)
    spans = [span for task in tasks if isinstance(task, SpansTask) for span in task.spans]
    return [(span.topic_partition.partition, span.first_offset, span.end_offset) for span in spans]


def test_stream_reads_closed_segments_and_reports_waiting_records(tmp_path: Path) -> None:
    """Once for each partition; the reported end includes the active segment."""
    log = a_log(NAMES[0], [5, 5, 3])
    log.write(tmp_path)
    messages: list[str] = []
    segments = following(tmp_path, messages)
    assert segments.first() == {NAMES[0]: 0}
    assert segments.latest({NAMES[0]: 0}) == segments.latest({NAMES[0]: 5}) == {NAMES[0]: 10}
    assert segments.ends() == {NAMES[0]: 13}
    (line,) = messages
    assert line.startswith("kafkalog: t-0: offsets from 10 on are in the active segment; read when it is rolled")
    log.roll()
    log.write(tmp_path)
    assert segments.latest({NAMES[0]: 10}) == {NAMES[0]: 13}
    assert ranges(segments, {NAMES[0]: 3}, {NAMES[0]: 13}) == [(0, 3, 5), (0, 5, 10), (0, 10, 13)]


def test_stream_that_begins_at_the_latest_waits_for_the_next_roll(tmp_path: Path) -> None:
    """The whole active segment is read when it is rolled, so nothing is left out."""
    a_log(NAMES[0], [5, 3]).write(tmp_path)
    assert following(tmp_path, startingOffsets="latest").first() == {NAMES[0]: 5}
    assert following(tmp_path, startingOffsets="2").first() == {NAMES[0]: 2}


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1000, [80, 15, 5]), (100, [80, 15, 5]), (20, [16, 3, 1]), (10, [9, 1, 0]), (1, [1, 0, 0])],
)
def test_limit_is_shared_in_proportion_to_unread_offsets(tmp_path: Path, most: int, expected: list[int]) -> None:
    """Never more in total, and always something."""
    for name, count in zip(NAMES, (80, 15, 5), strict=True):
        a_log(name, [count, 1]).write(tmp_path)
    found = following(tmp_path).latest(dict.fromkeys(NAMES, 0), most)
    assert list(found.values()) == expected


def test_partition_that_turns_up_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Even where the stream began at the latest."""
    a_log(NAMES[0], [5, 1]).write(tmp_path)
    segments = following(tmp_path, startingOffsets="latest")
    start = segments.first()
    a_log(NAMES[1], [7, 1]).write(tmp_path)
    end = segments.latest(start)
    assert end == {NAMES[0]: 5, NAMES[1]: 7}
    assert ranges(segments, start, end) == [(1, 0, 7)]


def test_micro_batch_has_tasks_as_small_as_wanted(tmp_path: Path) -> None:
    """`maxRecordsPerPartition` and `minPartitions`, as in a batch query."""
    a_log(NAMES[0], [10, 1]).write(tmp_path)
    for options, count in (({"maxRecordsPerPartition": "4"}, 3), ({"minPartitions": "5"}, 5)):
        tasks = following(tmp_path, **options).tasks({NAMES[0]: 0}, {NAMES[0]: 10})
        assert len(tasks) == count


def test_available_now_run_ends_at_the_offsets_of_its_start(tmp_path: Path) -> None:
    """Segments rolled later, and partitions that appear later, are for the next run."""
    log = a_log(NAMES[0], [5, 3])
    log.write(tmp_path)
    segments = following(tmp_path)
    segments.stop_at_current_end()
    log.roll()
    log.write(tmp_path)
    a_log(NAMES[1], [7, 1]).write(tmp_path)
    assert segments.latest({NAMES[0]: 0}) == {NAMES[0]: 5}


def test_loss_is_an_error_by_default(tmp_path: Path) -> None:
    """Segments removed by retention, a log created again, a missing partition."""
    log = a_log(NAMES[0], [5, 5, 1])
    log.write(tmp_path)
    a_log(NAMES[1], [5, 1]).write(tmp_path)
    start, end = {NAMES[0]: 2}, {NAMES[0]: 10}
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    with pytest.raises(OffsetOutOfRangeError, match="offset 2 is not within 5 and 11; failOnDataLoss=false"):
        following(tmp_path).tasks(start, end)
    assert ranges(following(tmp_path, failOnDataLoss="false"), start, end) == [(0, 5, 10)]
    with pytest.raises(OffsetOutOfRangeError, match="offset 50 is not within 5 and 11"):
        following(tmp_path).tasks({NAMES[0]: 40}, {NAMES[0]: 50})
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(UsageError, match=r"t-0 has gone from .*failOnDataLoss=false reads the others"):
        following(tmp_path).tasks(start, end)
    assert ranges(following(tmp_path, failOnDataLoss="false"), start, {**end, NAMES[1]: 5}) == [(1, 0, 5)]


def test_committed_stream_stops_before_an_open_transaction(tmp_path: Path) -> None:
    """Until its marker exists, also in the active segment."""
    log = a_log(NAMES[0], [5])
    log.append(("k", "v"), producer=Producer(7, 0, 0, transactional=True))
    log.roll()
    log.append(("k", "v"))
    log.write(tmp_path)
    segments = following(tmp_path, isolationLevel="read_committed")
    assert segments.latest({}) == {NAMES[0]: 5}
    log.end_transaction(7, 0, commit=True)
    log.write(tmp_path)
    assert segments.latest({}) == {NAMES[0]: 6}


# ---- the active segment, and what was planned -----------------------------------------------------------------------

HERE = NAMES[0]


def test_active_segment_is_read_up_to_the_high_watermark(tmp_path: Path) -> None:
    """Also if a query begins at the latest; nothing waits, so there is no note."""
    log = a_log(HERE, [5, 5])
    write_log_dir(tmp_path, log, high_watermarks={HERE: 7})
    messages: list[str] = []
    logs = following(tmp_path, messages, activeSegment="read")
    assert logs.latest({HERE: 0}) == {HERE: 7}
    assert following(tmp_path, activeSegment="read", startingOffsets="latest").first() == {HERE: 7}
    assert ranges(logs, {HERE: 3}, {HERE: 7}) == [(0, 3, 5), (0, 5, 7)]
    log.append(("k", "v"))
    write_log_dir(tmp_path, log)
    assert logs.latest({HERE: 7}) == {HERE: 11}
    assert messages == []


def test_active_segment_without_a_high_watermark_is_read_up_to_its_last_whole_batch(tmp_path: Path) -> None:
    """An unfinished append is for the next micro-batch."""
    path = a_log(HERE, [5, 5]).write(tmp_path) / f"{5:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    assert following(tmp_path, activeSegment="read").latest({}) == {HERE: 9}


def test_committed_stream_reads_the_active_segment_up_to_an_open_transaction(tmp_path: Path) -> None:
    """Whichever comes first, it or the high watermark."""
    log = a_log(HERE, [3, 3])
    log.append(("k", "v"), producer=Producer(7, 0, 0, transactional=True))
    log.append(("k", "v"))
    for high_watermark, end in ((8, 6), (4, 4)):
        write_log_dir(tmp_path, log, high_watermarks={HERE: high_watermark})
        logs = following(tmp_path, activeSegment="read", isolationLevel="read_committed")
        assert logs.latest({}) == {HERE: end}


def marked(path: Path, end: int) -> Marks:
    """Return the mark of the only partition at an offset."""
    return following(path).marks({}, {HERE: end}, {})


def tasks_again(path: Path, start: int, end: int, marks: Marks, **options: str) -> list[str]:
    """Plan a micro-batch that was planned before; return its notes."""
    messages: list[str] = []
    following(path, messages, activeSegment="read", **options).tasks({HERE: start}, {HERE: end}, None, marks)
    return messages


def test_micro_batch_of_a_truncated_and_rewritten_log_is_refused(tmp_path: Path) -> None:
    """Other records have the same offsets now, also below the stream's place."""
    write_log_dir(tmp_path, a_log(HERE, [5, 3]))
    marks = marked(tmp_path, 8)
    longer = a_log(HERE, [5, 3])
    longer.append(("k", "v"))
    write_log_dir(tmp_path, longer)
    assert tasks_again(tmp_path, 2, 8, marks) == []
    other = a_log(HERE, [5, 1])
    other.leader_epoch = 3
    for _ in range(4):
        other.append(("k", "v"))
    write_log_dir(tmp_path, other)
    with pytest.raises(LogChangedError, match=r"offset 8, it was truncated and rewritten; failOnDataLoss=false"):
        tasks_again(tmp_path, 2, 8, marks)
    (line,) = tasks_again(tmp_path, 2, 8, marks, failOnDataLoss="false")
    assert line.endswith("it was truncated and rewritten: it may have fewer records than before")
    with pytest.raises(LogChangedError, match="offset 8, it was truncated"):
        following(tmp_path).tasks({HERE: 8}, {HERE: 10}, marks, None)


def test_repeated_micro_batch_of_a_cleaned_log_is_reported(tmp_path: Path) -> None:
    """Not if it was cleaned before."""
    log = LogBuilder(HERE)
    for number in range(4):
        log.append((f"k{number % 2}", "v"), ("k0", f"w{number}"))
        log.roll()
    log.append(("k", "v"))
    write_log_dir(tmp_path, log)
    marks = marked(tmp_path, 3)
    clean(tmp_path, "t-0", {"cleanup.policy": "compact", "segment.bytes": "1000"}, now_ms=START_MS + 10**9)
    (line,) = tasks_again(tmp_path, 0, 3, marks)
    assert line.endswith("it was cleaned up to offset 8: it may have fewer records than before")
    assert tasks_again(tmp_path, 0, 3, marked(tmp_path, 3)) == []


def test_rebuilt_batch_is_noticed_before_the_checkpoint(tmp_path: Path) -> None:
    """In the middle of a round; it still counts as the same log."""
    write_log_dir(tmp_path, a_log(HERE, [5, 3]))
    marks = marked(tmp_path, 8)
    path = tmp_path / "t-0" / f"{5:020d}.log"
    content = bytearray(path.read_bytes())
    content[-len(content) // 3 + 17] ^= 1  # of the last of three equal batches, the checksum
    path.write_bytes(content)
    (line,) = tasks_again(tmp_path, 2, 8, marks)
    assert "it was cleaned, or truncated and rewritten" in line


def test_options_of_one_moment_are_refused(tmp_path: Path) -> None:
    """A stream has no end."""
    a_log(NAMES[0], [1]).write(tmp_path)
    by_partition = '{"t": {"0": 5}}'
    for options in (
        {"latestPerKey": "true"},
        {"endingOffsets": "5"},
        {"endingOffsets": by_partition},
        {"endingTimestamp": "5"},
        {"endingOffsetsByTimestamp": by_partition},
    ):
        with pytest.raises(UsageError, match=r"spark\.read"):
            following(tmp_path, **options)
