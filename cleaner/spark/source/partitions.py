"""A task, as Spark passes it from the planner to an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from cleaner.spark.source.offsets import EARLIEST, LATEST, Offsets
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import Task
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TaskPartition(InputPartition):
    """
    A task, and its read options.

    Attributes:
        min_timestamp_ms: older records may be left out.
    """

    task: Task
    options: ReadOptions
    min_timestamp_ms: int | None = None


def task_partitions(
    tasks: Iterable[Task], options: ReadOptions, min_timestamp_ms: int | None = None
) -> list[InputPartition]:
    """Return tasks in the form that Spark needs."""
    # Options that only the plan uses may be long, and each task would carry them.
    own = replace(options, topics=None, partitions=None, assigned=None, starting=Offsets(EARLIEST))
    own = replace(own, ending=Offsets(LATEST), starting_times=None, ending_times=None)
    return [TaskPartition(task, own, min_timestamp_ms) for task in tasks]


def read_partition(partition: InputPartition, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """
    Run a task, on an executor; raises as `task.run_task`.

    Args:
        columns: replace the columns of the options.
    """
    if not isinstance(partition, TaskPartition):
        return iter(())  # Spark makes a task even when there is nothing to read
    from cleaner.spark.source.task import run_task

    options = partition.options
    if columns is not None:
        options = replace(options, columns=tuple(columns))
    return run_task(files_for(None, options.path), options, partition.task, partition.min_timestamp_ms)
