"""
Turns a query into tasks: which partitions, which offsets, and which task reads what.

Small spans share a task, and large segments are split among several. With latestPerKey there is one task a partition,
because it has to see all records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.snapshot import UNKNOWN_END, LogSnapshot, LogSnapshots
from cleaner.read.time_search import find_by_time
from cleaner.spark.source.damage import transactions_reader
from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.find import Found, find_partitions
from cleaner.spark.source.offsets import LATEST, Times
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.spans import Span, out_of_range, spans_of
from cleaner.storage.fs.file_system import FileSystem

_MIN_COST = 64 << 10  # bytes a span: opening a file takes as long as reading this many


@dataclass(frozen=True)
class SpansTask:
    """Read spans, one after the other."""

    spans: tuple[Span, ...]


@dataclass(frozen=True)
class LatestTask:
    """
    Read the last record of every key of a partition.

    Attributes:
        first_offset, end_offset: range of the records that count; an end of None is the log's end when the task starts.
    """

    topic_partition: TopicPartition
    directory: Path
    first_offset: int
    end_offset: int | None


Task = SpansTask | LatestTask


def plan(fs: FileSystem, options: ReadOptions, pruning: Pruning) -> list[Task]:
    """
    Return the tasks of a batch query.

    Raises:
        UsageError, UnknownTopicError: the options name a topic or partition that does not exist, or a partition is in
            two directories.
        OffsetOutOfRangeError: offsets that the options name are gone.
        CorruptLogError: damage in files that the plan reads.
    """
    taker = LogSnapshots(fs)
    found = {each: paths for each, paths in find_partitions(fs, options).items() if pruning.has(each)}
    logs = one_replica_each(taker, found, options)
    if options.latest_per_key:
        return [task for name, directory in logs.items() for task in _latest(taker, name, directory, options)]

    def spans(max_records: int | None) -> list[Span]:
        parts = [planned_spans(taker, *log, options, pruning, max_records) for log in logs.items()]
        return [span for part in parts for span in part]

    return tasks_of(spans, options)


def tasks_of(spans_with: Callable[[int | None], list[Span]], options: ReadOptions) -> list[Task]:
    """
    Return at least as many tasks as the options want, or fewer if there are fewer offsets.

    Args:
        spans_with: returns the spans to read, each of at most this many offsets.
    """
    most = options.max_records
    spans = spans_with(most)
    tasks = pack(spans, options.task_bytes, most)
    if len(tasks) >= options.min_tasks:
        return tasks
    offsets = sum(span.end_offset - span.first_offset for span in spans if span.end_offset < UNKNOWN_END)
    most = min(max(1, offsets // options.min_tasks), most or offsets + 1)
    return pack(spans_with(most), options.task_bytes, most)


def one_replica_each(taker: LogSnapshots, found: Found, options: ReadOptions) -> dict[TopicPartition, Path]:
    """
    Return one directory for each partition.

    Raises:
        UsageError: a partition has several, and the options do not choose the longest.
    """
    chosen = {}
    for topic_partition, paths in found.items():
        if len(paths) > 1 and not options.longest_replica:
            places = ", ".join(str(path.parent) for path in paths)
            reason = f"{topic_partition} is in {len(paths)} directories ({places})"
            raise UsageError(f"{reason}; read one of them, or the one that reaches furthest with replica=longest")
        chosen[topic_partition] = _longest(taker, topic_partition, paths) if len(paths) > 1 else paths[0]
    return chosen


def _longest(taker: LogSnapshots, topic_partition: TopicPartition, paths: list[Path]) -> Path:
    def reach(log: LogSnapshot) -> tuple[int, int]:
        return log.end_offset, -log.start_offset

    return max(paths, key=lambda path: taker.look(topic_partition, path, reach))


def planned_spans(
    taker: LogSnapshots,
    topic_partition: TopicPartition,
    directory: Path,
    options: ReadOptions,
    pruning: Pruning,
    max_records: int | None = None,
) -> list[Span]:
    """Return the spans of a partition, each of at most `max_records` offsets; raises as `plan`."""

    def found(log: LogSnapshot) -> list[Span]:
        first, end = bounds(log, options)
        first, end = max(first, pruning.first_offset), min(end, pruning.end_offset)
        return list(spans_of(log, first, end, options.task_bytes, pruning.min_timestamp_ms, max_records))

    return taker.look(topic_partition, directory, found)


def _latest(
    taker: LogSnapshots, topic_partition: TopicPartition, directory: Path, options: ReadOptions
) -> list[LatestTask]:
    def found(log: LogSnapshot) -> list[LatestTask]:
        first = first_offset(log, options)
        is_open = options.ending.of(topic_partition) == LATEST and _time_of(options.ending_times, log) is None
        end = None if is_open else end_offset(log, options)
        is_wanted = bool(log.places) and (end is None or first < end)
        return [LatestTask(topic_partition, directory, first, end)] if is_wanted else []

    return taker.look(topic_partition, directory, found)


def bounds(log: LogSnapshot, options: ReadOptions) -> tuple[int, int]:
    """Return the offsets to begin and end at in a log, the end exclusive."""
    first = first_offset(log, options)
    end = end_offset(log, options)
    if options.committed and first < end:
        end = min(end, log.last_stable_offset(transactions_reader(options.bad_batches)))
    return first, end


def end_offset(log: LogSnapshot, options: ReadOptions) -> int:
    """Return the offset to end at in a log, exclusive."""
    time = _time_of(options.ending_times, log)
    found = None if time is None else _offset_of_time(log, time)
    if found is not None:
        return found
    if time is not None:
        return log.end_offset
    return options.ending.resolve(log.topic_partition, log.start_offset, log.end_offset)


def first_offset(log: LogSnapshot, options: ReadOptions) -> int:
    """
    Return the offset to begin at in a log.

    Raises:
        OffsetOutOfRangeError: the options name an offset that the log no longer has, or does not have yet.
        UsageError: no record has the starting time or a later one, and the options make that an error.
    """
    name = log.topic_partition
    time = _time_of(options.starting_times, log)
    if time is not None:
        found = _offset_of_time(log, time)
        if found is None and options.needs_start_time:
            raise UsageError(
                f"{log.directory}: no record at {time} ms or later; startingOffsetsByTimestampStrategy=latest begins "
                "at its end"
            )
        return log.end_offset if found is None else found
    wanted = options.starting.by_partition.get(name, -1)
    if wanted >= 0 and options.fail_on_data_loss and not log.start_offset <= wanted <= log.end_offset:
        raise out_of_range(log, wanted)
    return options.starting.resolve(name, log.start_offset, log.end_offset)


def _time_of(times: Times | None, log: LogSnapshot) -> int | None:
    return None if times is None else times.of(log.topic_partition)


def _offset_of_time(log: LogSnapshot, timestamp_ms: int) -> int | None:
    files = PartitionFiles(log.fs, log.directory.parent, log.topic_partition, SystemClock())
    try:
        return find_by_time(files, files.listing(), log.start_offset, log.end_offset, timestamp_ms)
    finally:
        files.close()


def pack(spans: list[Span], task_bytes: int, max_records: int | None = None) -> list[Task]:
    """Group adjacent spans into tasks, up to a task's size."""
    tasks: list[Task] = []
    taken: list[Span] = []
    cost = records = 0
    for span in spans:
        more = span.end_offset - span.first_offset
        is_over_limit = max_records is not None and records + more > max_records
        if taken and (is_over_limit or cost + span.size > task_bytes):
            tasks.append(SpansTask(tuple(taken)))
            taken, cost, records = [], 0, 0
        taken.append(span)
        cost += max(span.size, _MIN_COST)
        records += more
    return [*tasks, SpansTask(tuple(taken))] if taken else tasks
