"""A task as Spark hands it from the planner to an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from cleaner.frames.options import ReadOptions
from cleaner.frames.plan import Task
from cleaner.storage.fs import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TaskPartition(InputPartition):
    """A task."""

    task: Task


def read_partition(
    options: ReadOptions, partition: InputPartition, least_timestamp_ms: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Do a task; arguments are those of `task.run_task`."""
    if not isinstance(partition, TaskPartition):
        return iter(())  # there is nothing to read, and Spark makes a task all the same
    from cleaner.frames.task import run_task

    return run_task(FileSystem(), options, partition.task, least_timestamp_ms)
