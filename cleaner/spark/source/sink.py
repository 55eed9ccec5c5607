"""`df.write.format("kafkalog")`: writes a DataFrame's rows as a log dir."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from cleaner.base.clock import SystemClock, require_set
from cleaner.base.remote_path import refuse_remote
from cleaner.errors import UsageError
from cleaner.spark.source.staging import Stage, Staged
from cleaner.spark.source.write_options import check_columns, write_options
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import require_log_dir

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class TaskDone(WriterCommitMessage):
    """The segments that a task has written."""

    task: int
    staged: list[Staged]


class LogWriter(DataSourceArrowWriter):
    """Writes new partitions; they appear when all tasks are done."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self.options = write_options(options)
        refuse_remote(self.options.path, "logs are written on disks only")
        if overwrite:
            raise UsageError("kafkalog does not replace a log; use mode('append'), which creates new partitions")
        check_columns({field.name: field.dataType.simpleString() for field in schema}, self.options.topic)
        # Check this before any task creates a directory there.
        require_log_dir(FileSystem(), Path(self.options.path), may_be_new=True)
        self.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows, on an executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        stage = Stage(FileSystem(), self.options, self.job, f"{task}-{attempt}", require_set(SystemClock().now_ms()))
        return TaskDone(task, stage.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have written."""
        from cleaner.spark.source.publish import publish

        done = sorted((each for each in messages if isinstance(each, TaskDone)), key=lambda each: each.task)
        publish(FileSystem(), self.options, self.job, [staged for each in done for staged in each.staged])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have written."""
        from cleaner.spark.source.publish import discard

        discard(FileSystem(), self.options, self.job)
