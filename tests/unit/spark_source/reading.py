"""Runs queries without Spark: planned, pickled as for an executor, and read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import Task, plan
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


def tasks_of(path: Path | str, pruning: Pruning = Pruning(), **options: str) -> list[Task]:  # noqa: B008 (immutable)
    """Plan a query."""
    planned = plan(FileSystem(), read_options({"path": str(path), **options}), pruning)
    tasks: list[Task] = pickle.loads(pickle.dumps(planned))  # noqa: S301 (our own)
    return tasks


def batches_of(path: Path | str, pruning: Pruning = Pruning(), **options: str) -> list[pa.RecordBatch]:  # noqa: B008
    """Plan a query and read it, task after task."""
    from cleaner.spark.source.arrow import arrow_schema
    from cleaner.spark.source.task import run_task

    read = read_options({"path": str(path), **options})
    found = []
    for task in tasks_of(path, pruning, **options):
        for batch in run_task(FileSystem(), read, task, pruning.min_timestamp_ms):
            batch.validate(full=True)
            assert batch.schema == arrow_schema(read.columns)
            found.append(batch)
    return found


def rows_of(path: Path | str, pruning: Pruning = Pruning(), **options: str) -> list[Row]:  # noqa: B008
    """Return a query's rows."""
    return [row for batch in batches_of(path, pruning, **options) for row in batch.to_pylist()]


def offsets_of(path: Path | str, pruning: Pruning = Pruning(), **options: str) -> list[int]:  # noqa: B008
    """Return the offsets of a query's rows."""
    return [row["offset"] for row in rows_of(path, pruning, **options)]
