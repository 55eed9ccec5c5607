"""
The classes that Spark calls for `spark.read.format("kafkalog")` and its stream and sink.

Only Spark loads this file. The other files of this package do the work.
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
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class KafkaLogSource(DataSource):
    """Kafka's log files as a DataFrame; see docs/spark.md for the options."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Runs once for each `load()` and `save()`, in the driver: copies are unpickled and do not come here.
        if ignored := ignored_options(options):
            print(f"kafkalog: no broker is asked; ignored: {', '.join(ignored)}", file=sys.stderr, flush=True)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkalog"

    def schema(self) -> str:
        """Return the columns that the options select."""
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
        """Return the writer of a DataFrame."""
        from cleaner.spark.source.sink import LogWriter

        return LogWriter(self.options, schema, overwrite=overwrite)


class KafkaLogReader(DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = read_options(options)
        self.pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        tasks = plan(files_for(None, self.options.path), self.options, self.pruning)
        return task_partitions(tasks, self.options, self.pruning.min_timestamp_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run a task, on an executor."""
        return read_partition(partition)


class FilteringReader(KafkaLogReader):
    """
    The reader of a batch query that gets the query's filters.

    Spark refuses a reader with this method unless `spark.sql.python.filterPushdown.enabled` is set. Spark up to 4.3
    caches the filtered plan with the DataFrame, and uses it for any later query of that DataFrame: rows would be
    missing, silently. Hence this reader is used only if `pushFilters=true`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Apply filters, and return those that Spark has to apply again."""
        self.pruning, unmet = follow(filters, self.pruning, latest_per_key=self.options.latest_per_key)
        return iter(unmet)


def _is_pushing() -> bool:
    """Tell whether Spark started this process to push filters; only then may the reader have `pushFilters`."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return _PUSHING in sys.modules or (spec is not None and spec.name == _PUSHING)
