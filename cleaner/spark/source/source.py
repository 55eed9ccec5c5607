"""
The data source as Spark knows it: `spark.read.format("kafkalog")` and its stream and sink.

Loaded by Spark only. What it does with a log is done by the other files of this room.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)

from cleaner.spark.source.columns import ddl
from cleaner.spark.source.filters import Pruning, follow
from cleaner.spark.source.options import ignored_options, read_options
from cleaner.spark.source.partitions import read_partition, task_partitions
from cleaner.spark.source.plan import plan
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class KafkaLogSource(DataSource):
    """Kafka's log files as a DataFrame; see docs/spark.md for the options."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # In the driver's planning, once for each `load()` and `save()`: copies come out of a pickle.
        if ignored := ignored_options(options):
            print(f"kafkalog: no broker is asked; ignored: {', '.join(ignored)}", file=sys.stderr, flush=True)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkalog"

    def schema(self) -> str:
        """Return the columns the options ask for."""
        return ddl(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        reader = KafkaLogReader(self.options)
        return FilteringReader(self.options) if reader.options.push_filters and _is_pushing() else reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        from cleaner.spark.source.stream import LogStreamReader

        return LogStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a DataFrame."""
        from cleaner.spark.source.sink import LogWriter

        return LogWriter(self.options, schema, overwrite=overwrite)


class KafkaLogReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = read_options(options)
        self.pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        tasks = plan(FileSystem(), self.options, self.pruning)
        return task_partitions(tasks, self.options, self.pruning.least_timestamp_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Do a task, on an executor."""
        return read_partition(partition)


class FilteringReader(KafkaLogReader):
    """
    The same, told the query's filters.

    Spark refuses a reader with this method unless `spark.sql.python.filterPushdown.enabled` is set. Up to 4.3 it keeps
    what was planned with filters for the DataFrame they were asked of, and takes it for any later query of that
    DataFrame: rows would be missing, silently. Hence only who asks for it gets this reader.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Follow filters, and give back those that Spark has to ask again."""
        self.pruning, unmet = follow(filters, self.pruning, latest_per_key=self.options.latest_per_key)
        return iter(unmet)


def _is_pushing() -> bool:
    """Tell whether this process was started to be told filters; only then are they allowed."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return _PUSHING in sys.modules or (spec is not None and spec.name == _PUSHING)
