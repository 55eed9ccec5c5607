"""Writing without Spark: each list of rows is what one task gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleaner.base.model import TopicPartition
from cleaner.spark.source.columns import usual_columns
from cleaner.spark.source.write_options import write_options
from cleaner.storage.fs.file_system import FileSystem
from tests.unit.spark_source.reading import Row

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

JOB = "0" * 31 + "7"
NOW_MS = 1_700_000_000_000


def record_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows with all columns that any of them has."""
    import pyarrow as pa

    from cleaner.spark.source.arrow import arrow_schema

    names = [name for name in usual_columns(headers=True) if any(name in row for row in rows)]
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(names))


def write_frame(path: Path, *tasks: Sequence[Row], **options: str) -> dict[TopicPartition, int]:
    """Write each task's rows, in two batches, and publish them; returns the partitions' end offsets."""
    from cleaner.spark.source.publish import publish
    from cleaner.spark.source.staging import Stage

    fs, read = FileSystem(), write_options({"path": str(path), **options})
    staged = []
    for number, rows in enumerate(tasks):
        half = len(rows) // 2
        batches = [record_batch(part) for part in (rows[:half], rows[half:]) if part]
        staged += Stage(fs, read, JOB, f"{number}-0", NOW_MS).write(batches)
    return publish(fs, read, JOB, staged)
