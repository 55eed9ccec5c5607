"""
`spark.readStream.format("kafkalog")`: follows logs as they grow.

Spark keeps a stream's place as JSON, the next offset of each partition: `{"prices": {"0": 1000}}`. The marks of these
places (`marks.py`) are under a name that no topic can have; checkpoints of earlier releases have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import refuse_remote
from cleaner.spark.source.follow import FollowedLogs, Positions
from cleaner.spark.source.marks import Marks, StreamMark
from cleaner.spark.source.offsets import MARKS, offsets_json, offsets_of
from cleaner.spark.source.options import read_options
from cleaner.spark.source.partitions import read_partition, task_partitions
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

_Json = dict[str, Any]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = read_options(options)
        refuse_remote(self.options.path, "a stream follows a writer, which a copy in a bucket does not have")
        self.logs = FollowedLogs(FileSystem(), self.options)

    def initialOffset(self) -> _Json:
        """Return the offsets at which a new query begins."""
        first = self.logs.first()
        return _json(first, self.logs.marks({}, first, {}))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the read limit of a micro-batch."""
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:
        """Return the end of the next micro-batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = _positions(start)
        end = self.logs.latest(begin, most)
        # Spark takes any different text as more to read.
        return start if end == begin else _json(end, self.logs.marks(begin, end, _marks(start)))

    def reportLatestOffset(self) -> _Json:
        """Return the end offsets of the logs, active segments included, for the query's progress."""
        return offsets_json(self.logs.ends())

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the offsets that are readable now."""
        self.logs.stop_at_current_end()

    def partitions(self, start: _Json, end: _Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        tasks = self.logs.tasks(_positions(start), _positions(end), _marks(start), _marks(end))
        return task_partitions(tasks, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run a task, on an executor."""
        return read_partition(partition)


def _json(positions: Positions, marks: Marks) -> _Json:
    kept: _Json = {}
    for (topic, partition), mark in sorted(marks.items()):
        kept.setdefault(topic, {})[str(partition)] = list(mark)
    return offsets_json(positions) | {MARKS: kept}


def _positions(json: _Json) -> Positions:
    return offsets_of("the checkpoint", json)


def _marks(json: _Json) -> Marks:
    marks = json.get(MARKS, {})
    return {TopicPartition(topic, int(of)): StreamMark(*mark) for topic in marks for of, mark in marks[topic].items()}
