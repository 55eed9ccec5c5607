"""
A query made into tasks: which partitions, from which offset to which, and who reads what.

Small spans share a task, large segments are cut into several; the last records of all keys are the work of one task a
partition, as it has to see all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleaner.clock import SystemClock
from cleaner.errors import LogDirOfflineError, OffsetOutOfRangeError, UsageError
from cleaner.frames.decide import stable_end
from cleaner.frames.filters import Pruning
from cleaner.frames.find import Found, find_partitions
from cleaner.frames.offsets import LATEST
from cleaner.frames.options import ReadOptions
from cleaner.frames.partition_log import LogLooker, PartitionLog
from cleaner.frames.spans import Span, spans_of
from cleaner.logs.partition_files import PartitionFiles
from cleaner.logs.search import find_by_time
from cleaner.model import TopicPartition
from cleaner.storage.fs import FileSystem

_MOST_TRIES = 10
_LEAST_COST = 64 << 10  # of a span: opening a file takes as long as reading so many bytes


@dataclass(frozen=True)
class SpansTask:
    """Read spans, one behind the other."""

    spans: tuple[Span, ...]


@dataclass(frozen=True)
class LatestTask:
    """
    Read the last record of every key of a partition.

    Attributes:
        first_offset, end_offset: of what counts; an end of None is where the log ends when the task begins.
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
        UsageError, UnknownTopicError: the options name what is not there, or a partition is there twice.
        OffsetOutOfRangeError: offsets that were asked for have gone.
        CorruptLogError: damage where a plan has to look.
    """
    looker = LogLooker(fs)
    found = {each: paths for each, paths in find_partitions(fs, options).items() if pruning.has(each)}
    tasks: list[Task] = []
    spans: list[Span] = []
    for topic_partition, directory in one_replica_each(looker, found, options).items():
        if options.latest_per_key:
            tasks += _latest(looker, topic_partition, directory, options)
        else:
            spans += planned_spans(looker, topic_partition, directory, options, pruning)
    return tasks + pack(spans, options.task_bytes)


def one_replica_each(looker: LogLooker, found: Found, options: ReadOptions) -> dict[TopicPartition, Path]:
    """
    Return one directory a partition.

    Raises:
        UsageError: there are several, and nobody said that the longest is meant.
    """
    chosen = {}
    for topic_partition, paths in found.items():
        if len(paths) > 1 and not options.longest_replica:
            places = ", ".join(str(path.parent) for path in paths)
            reason = f"{topic_partition} is in {len(paths)} directories ({places})"
            raise UsageError(f"{reason}; read one of them, or the one that reaches furthest with replica=longest")
        chosen[topic_partition] = _longest(looker, topic_partition, paths) if len(paths) > 1 else paths[0]
    return chosen


def _longest(looker: LogLooker, topic_partition: TopicPartition, paths: list[Path]) -> Path:
    logs = [looker.look(topic_partition, path) for path in paths]
    return max(logs, key=lambda log: (log.end_offset, -log.start_offset)).directory


def planned_spans(
    looker: LogLooker, topic_partition: TopicPartition, directory: Path, options: ReadOptions, pruning: Pruning
) -> list[Span]:
    """Return the spans of a partition; raises as `plan`."""

    def found(log: PartitionLog) -> list[Span]:
        first, end = bounds(log, options)
        first, end = max(first, pruning.first_offset), min(end, pruning.end_offset)
        return list(spans_of(log, first, end, options.task_bytes, pruning.least_timestamp_ms))

    for _ in range(_MOST_TRIES):
        try:
            return found(looker.look(topic_partition, directory))
        except FileNotFoundError as error:
            gone = error
    raise LogDirOfflineError(directory, gone) from gone


def _latest(
    looker: LogLooker, topic_partition: TopicPartition, directory: Path, options: ReadOptions
) -> Iterator[LatestTask]:
    log = looker.look(topic_partition, directory)
    first = first_offset(log, options)
    is_open = options.ending.of(topic_partition) == LATEST
    end = None if is_open else options.ending.resolve(topic_partition, log.start_offset, log.end_offset)
    if log.places and (end is None or first < end):
        yield LatestTask(topic_partition, directory, first, end)


def bounds(log: PartitionLog, options: ReadOptions) -> tuple[int, int]:
    """Return where to begin and end in a log, the end exclusive."""
    first = first_offset(log, options)
    end = options.ending.resolve(log.topic_partition, log.start_offset, log.end_offset)
    if options.committed and first < end:
        end = min(end, stable_end(log, options.bad_batches))
    return first, end


def first_offset(log: PartitionLog, options: ReadOptions) -> int:
    """
    Return where to begin in a log.

    Raises:
        OffsetOutOfRangeError: at an offset that it has no more, or has not yet.
    """
    name = log.topic_partition
    time = None if options.starting_times is None else options.starting_times.of(name)
    if time is not None:
        return _offset_of_time(log, time)
    wanted = options.starting.by_partition.get(name, -1)
    if wanted >= 0 and options.fail_on_data_loss and not log.start_offset <= wanted <= log.end_offset:
        raise out_of_range(log, wanted)
    return options.starting.resolve(name, log.start_offset, log.end_offset)


def out_of_range(log: PartitionLog, offset: int) -> OffsetOutOfRangeError:
    """Return the error for an offset that a log does not have."""
    error = OffsetOutOfRangeError(log.directory, offset, log.start_offset, log.end_offset)
    error.args = (f"{error}; failOnDataLoss=false reads what there is",)
    return error


def _offset_of_time(log: PartitionLog, timestamp_ms: int) -> int:
    files = PartitionFiles(log.fs, log.directory.parent, log.topic_partition, SystemClock())
    try:
        found = find_by_time(files, log.start_offset, log.end_offset, timestamp_ms)
    finally:
        files.close()
    return log.end_offset if found is None else found


def pack(spans: list[Span], task_bytes: int) -> list[Task]:
    """Put neighbouring spans together up to a task's size."""
    tasks: list[Task] = []
    taken: list[Span] = []
    cost = 0
    for span in spans:
        if taken and cost + span.size > task_bytes:
            tasks.append(SpansTask(tuple(taken)))
            taken, cost = [], 0
        taken.append(span)
        cost += max(span.size, _LEAST_COST)
    return [*tasks, SpansTask(tuple(taken))] if taken else tasks
