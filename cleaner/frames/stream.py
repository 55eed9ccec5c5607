"""`spark.readStream.format("kafkalog")`: closed segments, followed as they are rolled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from cleaner.frames.follow import Positions, RolledSegments
from cleaner.frames.offsets import offsets_json, offsets_of
from cleaner.frames.options import read_options
from cleaner.frames.partitions import read_partition, task_partitions
from cleaner.storage.fs import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

_Json = dict[str, Any]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the options say; Spark keeps its place as `{"prices": {"0": 1000}}`, the next offset of each."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = read_options(options)
        self.segments = RolledSegments(FileSystem(), self.options)

    def initialOffset(self) -> _Json:
        """Return where a new query begins."""
        return offsets_json(self.segments.first())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much is read at a time."""
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:
        """Return where to read up to."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets_json(self.segments.latest(_positions(start), most))

    def reportLatestOffset(self) -> _Json:
        """Return where the logs end, for the query's progress; the active segments are part of it."""
        return offsets_json(self.segments.ends())

    def prepareForTriggerAvailableNow(self) -> None:
        """Go no further than what is closed now."""
        self.segments.stop_at_present()

    def partitions(self, start: _Json, end: _Json) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        return task_partitions(self.segments.tasks(_positions(start), _positions(end)), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do a task, on an executor."""
        return read_partition(partition)


def _positions(json: _Json) -> Positions:
    return offsets_of("the checkpoint", json)
