"""
Following logs: what a stream may read, from where it is, and what has gone meanwhile.

A segment that is rolled does not grow any more, so its end is an offset to stop at; the active one waits for its roll,
or is read up to the high watermark, below which nothing is taken back. Offsets are kept by partition, each with a mark
to know the log by. A partition that turns up later is read from its beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, UsageError
from cleaner.read.snapshot import UNKNOWN_END, LogSnapshot, LogSnapshots, Result
from cleaner.spark.source.damage import passing
from cleaner.spark.source.find import find_partitions
from cleaner.spark.source.marks import Marks, StreamMark, change, mark_of
from cleaner.spark.source.offsets import LATEST
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import Task, first_offset, one_replica_each, out_of_range, tasks_of
from cleaner.spark.source.spans import Span, spans_of
from cleaner.storage.fs.file_system import FileSystem

Positions = dict[TopicPartition, int]


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class FollowedLogs:
    """
    What is to be read of the partitions that a path stands for, as it becomes more.

    Args:
        fs: the door to the file system.
        options: of the stream.
        tell: gets a line about each partition whose active segment waits, once, and about each that was cleaned under
            a micro-batch.
    Raises:
        UsageError: options that a stream cannot have.
    """

    def __init__(self, fs: FileSystem, options: ReadOptions, tell: Callable[[str], None] = _to_stderr) -> None:
        if options.latest_per_key:
            raise UsageError("latestPerKey=true is of one moment, so it is for spark.read, not for a stream")
        if options.ending.usual != LATEST or options.ending.by_partition:
            raise UsageError("endingOffsets is for spark.read; a stream goes on")
        if options.ending_times is not None:
            raise UsageError("endingTimestamp and endingOffsetsByTimestamp are for spark.read; a stream goes on")
        self._fs = fs
        self._options = options
        self._tell = tell
        self._told: set[TopicPartition] = set()
        self._until: Positions | None = None

    def first(self) -> Positions:
        """Return where a stream begins that has read nothing yet."""
        # `latest` is the end of what may be read: what waits in the active segment is read when it is rolled.
        return {
            name: min(first_offset(log, self._options), max(self._readable_end(log), log.start_offset))
            for name, log in self._logs().items()
        }

    def latest(self, start: Positions, most: int | None = None) -> Positions:
        """
        Return where to read up to.

        Args:
            start: where the stream is.
            most: how many offsets to go on at most, shared out as there is to read.
        """
        logs = self._logs()
        found = {name: max(self._readable_end(log), start.get(name, log.start_offset)) for name, log in logs.items()}
        if self._until is not None:
            found = {name: min(end, self._until[name]) for name, end in found.items() if name in self._until}
        for name, log in logs.items():
            self._tell_of_active(name, log)
        begin = {name: start.get(name, logs[name].start_offset) for name in found}
        return {**start, **(found if most is None else _limited(begin, found, most))}

    def ends(self) -> Positions:
        """Return where the logs end, their active segments included: what a stream lags behind."""
        return {name: log.end_offset for name, log in self._logs().items()}

    def stop_at_present(self) -> None:
        """Go no further than what may be read now."""
        self._until = {name: self._readable_end(log) for name, log in self._logs().items()}

    def marks(self, start: Positions, end: Positions, known: Marks) -> Marks:
        """
        Return a mark for each place to read up to.

        Args:
            start: where the stream is.
            known: the marks of these places.
        """
        taker, found = LogSnapshots(self._fs), dict(known)
        for name, log in self._logs().items():
            if name in end and (name not in found or end[name] != start.get(name)):
                found[name] = _look(taker, log, lambda log: mark_of(taker, log, end[log.topic_partition]))
        return found

    def tasks(
        self, start: Positions, end: Positions, start_marks: Marks | None = None, end_marks: Marks | None = None
    ) -> list[Task]:
        """
        Return the tasks that read from one place to another.

        Args:
            start_marks, end_marks: of these places, as far as there are any.
        Raises:
            OffsetOutOfRangeError: records in between have gone, or the log was made anew.
            LogChangedError: it was cut back and written anew.
            UsageError: a partition has gone.
        """
        logs = self._logs()
        for name, until in sorted(end.items()):
            if until == start.get(name):
                continue
            if name in logs:
                begin = start.get(name, logs[name].start_offset)
                for place, marks in ((begin, start_marks), (until, end_marks)):
                    if marks and name in marks:
                        self._compare(logs[name], begin, place, marks[name])
            elif self._options.fail_on_data_loss:
                raise UsageError(f"{name} has gone from {self._options.path}; failOnDataLoss=false reads the others")

        def spans(most_records: int | None) -> list[Span]:
            ranges = [(logs[name], until) for name, until in sorted(end.items()) if name in logs]
            parts = [
                self._spans(log, start.get(log.topic_partition, log.start_offset), until, most_records)
                for log, until in ranges
                if until != start.get(log.topic_partition)
            ]
            return [span for part in parts for span in part]

        return tasks_of(spans, self._options)

    def _spans(self, log: LogSnapshot, begin: int, until: int, most_records: int | None) -> list[Span]:
        def found(log: LogSnapshot) -> list[Span]:
            lost = begin if begin < log.start_offset else until
            if self._options.fail_on_data_loss and not log.start_offset <= lost <= log.end_offset:
                raise out_of_range(log, lost)
            return list(spans_of(log, begin, until, self._options.task_bytes, None, most_records))

        return _look(LogSnapshots(self._fs), log, found)

    def _compare(self, log: LogSnapshot, begin: int, offset: int, mark: StreamMark) -> None:
        """Tell whether the records from one offset to another are those that there were when it was marked."""
        taker = LogSnapshots(self._fs)
        now = _look(taker, log, lambda log: mark_of(taker, log, offset))
        since = f"{log.directory}: since a micro-batch was to read up to offset {offset}"
        try:
            why = change(mark, now, begin)
        except LogChangedError as error:
            if self._options.fail_on_data_loss:
                raise LogChangedError(f"{since}, {error}; failOnDataLoss=false reads what there is") from error
            why = str(error)
        if why is not None and begin < offset:
            self._tell(f"kafkalog: {since}, {why}: it may have less records than it had")

    def _logs(self) -> dict[TopicPartition, LogSnapshot]:
        taker = LogSnapshots(self._fs)
        found = find_partitions(self._fs, self._options)
        return {
            name: taker.take(name, directory)
            for name, directory in one_replica_each(taker, found, self._options).items()
        }

    def _readable_end(self, log: LogSnapshot) -> int:
        """Return the offset behind what may be read."""
        if self._options.reads_active:
            # Where damage hides the end, and no checkpoint has a high watermark, to the last segment.
            end = log.high_watermark if log.high_watermark < UNKNOWN_END else log.places[-1].base_offset
        else:
            end = log.places[-1].base_offset if log.places else log.start_offset
        return min(end, log.last_stable_offset(passing(self._options.bad_batches))) if self._options.committed else end

    def _tell_of_active(self, name: TopicPartition, log: LogSnapshot) -> None:
        waits = not self._options.reads_active and name not in self._told
        if waits and log.places and log.end_offset > log.places[-1].base_offset:
            self._told.add(name)
            first = log.places[-1].base_offset
            self._tell(
                f"kafkalog: {name}: offsets from {first} on are in the active segment; read when it is rolled, or at "
                "once with activeSegment=read"
            )


def _look(taker: LogSnapshots, log: LogSnapshot, work: Callable[[LogSnapshot], Result]) -> Result:
    return taker.look(log.topic_partition, log.directory, work, log)


def _limited(start: Positions, end: Positions, most: int) -> Positions:
    """Bring ends nearer so that no more than `most` offsets lie before them, each log's share as large as its part."""
    total = sum(end[name] - start[name] for name in end)
    if total <= most:
        return end
    limited = {name: start[name] + (end[name] - start[name]) * most // total for name in end}
    left = most - sum(limited[name] - start[name] for name in end)
    for name in sorted(end):
        more = min(left, end[name] - limited[name])
        limited[name] += more
        left -= more
    return limited
