"""A stream's way through rolled segments: where it begins, how far it goes at a time, and what it does about loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cleaner.errors import OffsetOutOfRangeError, UsageError
from cleaner.frames.follow import Positions, RolledSegments
from cleaner.frames.options import read_options
from cleaner.frames.plan import SpansTask
from cleaner.model import TopicPartition
from cleaner.storage.fs import FileSystem
from cleaner.testing.batch_builder import Producer
from cleaner.testing.log_builder import LogBuilder

NAMES = [TopicPartition("t", number) for number in range(3)]


def a_log(name: TopicPartition, segments: list[int]) -> LogBuilder:
    """Segments of so many records; the last one is the active one."""
    log = LogBuilder(name)
    for number, count in enumerate(segments):
        if number:
            log.roll()
        for _ in range(count):
            log.append(("k", "v"))
    return log


def following(path: Path, told: list[str] | None = None, **options: str) -> RolledSegments:
    """Follow a log dir."""
    lines: list[str] = [] if told is None else told
    return RolledSegments(FileSystem(), read_options({"path": str(path), **options}), lines.append)


def ranges(segments: RolledSegments, start: Positions, end: Positions) -> list[tuple[int, int, int]]:
    """Return partition, first and end offset of all spans."""
    tasks = segments.tasks(start, end)
    spans = [span for task in tasks if isinstance(task, SpansTask) for span in task.spans]
    return [(span.topic_partition.partition, span.first_offset, span.end_offset) for span in spans]


def test_stream_reads_closed_segments_and_says_what_waits(tmp_path: Path) -> None:
    """Once for each partition; the reported end has the active segment, too."""
    log = a_log(NAMES[0], [5, 5, 3])
    log.write(tmp_path)
    told: list[str] = []
    segments = following(tmp_path, told)
    assert segments.first() == {NAMES[0]: 0}
    assert segments.latest({NAMES[0]: 0}) == segments.latest({NAMES[0]: 5}) == {NAMES[0]: 10}
    assert segments.ends() == {NAMES[0]: 13}
    assert told == ["kafkalog: t-0: offsets from 10 on are in the active segment; read when it is rolled"]
    log.roll()
    log.write(tmp_path)
    assert segments.latest({NAMES[0]: 10}) == {NAMES[0]: 13}
    assert ranges(segments, {NAMES[0]: 3}, {NAMES[0]: 13}) == [(0, 3, 5), (0, 5, 10), (0, 10, 13)]


def test_stream_that_begins_at_the_latest_waits_for_the_next_roll(tmp_path: Path) -> None:
    """The active segment is read whole when it is rolled, so nothing is left out."""
    a_log(NAMES[0], [5, 3]).write(tmp_path)
    assert following(tmp_path, startingOffsets="latest").first() == {NAMES[0]: 5}
    assert following(tmp_path, startingOffsets="2").first() == {NAMES[0]: 2}


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1000, [80, 15, 5]), (100, [80, 15, 5]), (20, [16, 3, 1]), (10, [9, 1, 0]), (1, [1, 0, 0])],
)
def test_limit_is_shared_out_as_there_is_to_read(tmp_path: Path, most: int, expected: list[int]) -> None:
    """Never more in all, and always something."""
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


def test_run_of_what_is_available_ends_where_it_did_when_it_began(tmp_path: Path) -> None:
    """What is rolled later, or turns up later, is for the next run."""
    log = a_log(NAMES[0], [5, 3])
    log.write(tmp_path)
    segments = following(tmp_path)
    segments.stop_at_present()
    log.roll()
    log.write(tmp_path)
    a_log(NAMES[1], [7, 1]).write(tmp_path)
    assert segments.latest({NAMES[0]: 0}) == {NAMES[0]: 5}


def test_loss_is_an_error_unless_told(tmp_path: Path) -> None:
    """Segments that retention has removed, a log made anew, a partition that has gone."""
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
    """Until its marker is there, in the active segment too."""
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
