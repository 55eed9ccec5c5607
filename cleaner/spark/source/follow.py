"""
Follows logs: what a stream may read next, and which records are gone since its last micro-batch.

A rolled segment does not grow any more, so its end is an offset to stop at. The active segment waits until it is
rolled, or is read up to the high watermark, below which nothing is truncated. Each partition has its offset, and a mark
that identifies the log. A partition that appears later is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, UsageError
from cleaner.read.snapshot import UNKNOWN_END, LogSnapshot, LogSnapshots, Result
from cleaner.spark.source.damage import transactions_reader
from cleaner.spark.source.find import find_partitions, to_stderr
from cleaner.spark.source.marks import Marks, StreamMark, change, mark_of
from cleaner.spark.source.offsets import LATEST
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import Task, first_offset, one_replica_each, tasks_of
from cleaner.spark.source.spans import Span, out_of_range, spans_of
from cleaner.storage.fs.file_system import FileSystem

Positions = dict[TopicPartition, int]


class FollowedLogs:
    """
    The readable offsets of a path's partitions, as the logs grow.

    Args:
        fs: access to the file system.
        options: of the stream.
        warn: gets one line for each partition whose active segment waits, for what is left out, and when a log was
            cleaned during a micro-batch.
    Raises:
        UsageError: options that a stream cannot have.
    """

    def __init__(self, fs: FileSystem, options: ReadOptions, warn: Callable[[str], None] = to_stderr) -> None:
        if options.latest_per_key:
            raise UsageError("latestPerKey=true is of one moment, so it is for spark.read, not for a stream")
        if options.ending.usual != LATEST or options.ending.by_partition:
            raise UsageError("endingOffsets is for spark.read; a stream goes on")
        if options.ending_times is not None:
            raise UsageError("endingTimestamp and endingOffsetsByTimestamp are for spark.read; a stream goes on")
        self._fs = fs
        self._options = options
        self._warn = warn
        self._warned: set[TopicPartition] = set()
        self._said: set[str] = set()
        self._until: Positions | None = None

    def first(self) -> Positions:
        """Return the offsets at which a new stream begins."""

        # `latest` means the readable end: records that wait in the active segment are read when it is rolled.
        def first(log: LogSnapshot) -> int:
            return min(first_offset(log, self._options), max(self._readable_end(log), log.start_offset))

        return self._of_each(first)

    def latest(self, start: Positions, most: int | None = None) -> Positions:
        """
        Return the offsets to read up to.

        Args:
            start: the stream's place.
            most: how many offsets to read at most; each log's share is proportional to what it has to read.
        """
        logs = self._logs()

        def end(log: LogSnapshot) -> int:
            return max(self._readable_end(log), start.get(log.topic_partition, log.start_offset))

        found = self._of_each(end, logs)
        if self._until is not None:
            found = {name: min(end, self._until[name]) for name, end in found.items() if name in self._until}
        self._of_each(self._warn_of_active, logs)
        begin = {name: start.get(name, logs[name].start_offset) for name in found}
        return {**start, **(found if most is None else _limited(begin, found, most))}

    def ends(self) -> Positions:
        """Return the end offsets of the logs, active segments included; a stream's lag is measured against them."""
        return self._of_each(lambda log: log.end_offset)

    def stop_at_current_end(self) -> None:
        """Fix the stream's end at the offsets that are readable now."""
        self._until = self._of_each(self._readable_end)

    def marks(self, start: Positions, end: Positions, known: Marks) -> Marks:
        """
        Return a mark for each offset to read up to.

        Args:
            start: the stream's place.
            known: its marks.
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
            start_marks, end_marks: the marks of these places; a checkpoint may have none.
        Raises:
            OffsetOutOfRangeError: records in between are gone, or the log was created again.
            LogChangedError: it was truncated and rewritten.
            UsageError: a partition is gone.
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

        def spans(max_records: int | None) -> list[Span]:
            ranges = [(logs[name], until) for name, until in sorted(end.items()) if name in logs]
            parts = [
                self._spans(log, start.get(log.topic_partition, log.start_offset), until, max_records)
                for log, until in ranges
                if until != start.get(log.topic_partition)
            ]
            return [span for part in parts for span in part]

        return tasks_of(spans, self._options)

    def _spans(self, log: LogSnapshot, begin: int, until: int, max_records: int | None) -> list[Span]:
        def found(log: LogSnapshot) -> list[Span]:
            lost = begin if begin < log.start_offset else until
            if self._options.fail_on_data_loss and not log.start_offset <= lost <= log.end_offset:
                raise out_of_range(log, lost)
            return list(spans_of(log, begin, until, self._options.task_bytes, None, max_records))

        return _look(LogSnapshots(self._fs), log, found)

    def _compare(self, log: LogSnapshot, begin: int, offset: int, mark: StreamMark) -> None:
        """Check that the records between two offsets are still those of the mark: raise or warn if not."""
        taker = LogSnapshots(self._fs)
        now = _look(taker, log, lambda log: mark_of(taker, log, offset))
        since = f"{log.directory}: since a micro-batch was to read up to offset {offset}"
        try:
            why = change(mark, now, begin)
        except LogChangedError as error:
            if self._options.fail_on_data_loss:
                raise LogChangedError(f"{since}, {error}; failOnDataLoss=false reads the rest") from error
            why = str(error)
        if why is not None and begin < offset:
            self._warn(f"kafkalog: {since}, {why}: it may have fewer records than before")

    def _logs(self) -> dict[TopicPartition, LogSnapshot]:
        taker = LogSnapshots(self._fs)
        found = find_partitions(self._fs, self._options, self._say_once)
        return {
            name: taker.take(name, directory)
            for name, directory in one_replica_each(taker, found, self._options).items()
        }

    def _of_each(
        self, work: Callable[[LogSnapshot], Result], logs: dict[TopicPartition, LogSnapshot] | None = None
    ) -> dict[TopicPartition, Result]:
        """Return the result of some work for each log; None: those that are there now."""
        taker = LogSnapshots(self._fs)
        return {name: _look(taker, log, work) for name, log in (self._logs() if logs is None else logs).items()}

    def _readable_end(self, log: LogSnapshot) -> int:
        """Return the end of the readable offsets, exclusive."""
        if self._options.reads_active:
            # If damage hides the end and no checkpoint has a high watermark: up to the last segment.
            end = log.high_watermark if log.high_watermark < UNKNOWN_END else log.places[-1].base_offset
        else:
            end = log.places[-1].base_offset if log.places else log.start_offset
        return (
            min(end, log.last_stable_offset(transactions_reader(self._options.bad_batches)))
            if self._options.committed
            else end
        )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._warn(text)

    def _warn_of_active(self, log: LogSnapshot) -> None:
        name = log.topic_partition
        waits = not self._options.reads_active and name not in self._warned
        if waits and log.places and log.end_offset > log.places[-1].base_offset:
            self._warned.add(name)
            first = log.places[-1].base_offset
            self._warn(
                f"kafkalog: {name}: offsets from {first} on are in the active segment; read when it is rolled, or at "
                "once with activeSegment=read"
            )


def _look(taker: LogSnapshots, log: LogSnapshot, work: Callable[[LogSnapshot], Result]) -> Result:
    return taker.look(log.topic_partition, log.directory, work, log)


def _limited(start: Positions, end: Positions, most: int) -> Positions:
    """Reduce the ends so that at most `most` offsets are read, shared in proportion to what each log has to read."""
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
