"""A task of a query: reads its part of the log as record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError
from cleaner.format.chunks import Flags
from cleaner.format.layout import lay_out
from cleaner.format.records import Block
from cleaner.spark.source.arrow import ArrowRows, RecordBatches
from cleaner.spark.source.damage import Damage
from cleaner.spark.source.latest import latest_rows
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import SpansTask, Task
from cleaner.spark.source.read import SpanReader
from cleaner.spark.source.spans import Span
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa


def run_task(
    fs: FileSystem, options: ReadOptions, task: Task, min_timestamp_ms: int | None = None
) -> Iterator[pa.RecordBatch]:
    """
    Read a task's records.

    Args:
        min_timestamp_ms: older records may be left out.
    Raises:
        CorruptLogError: damage, unless the options skip it.
        OffsetOutOfRangeError: offsets are gone.
        LogDirOfflineError: the disk refuses, or the partition is not where the plan found it.
    """
    try:
        yield from _read(fs, options, task, min_timestamp_ms)
    except LogDirOfflineError as error:
        if error.cause.errno == ENOENT:
            error.args = (f"{error}; executors need the logs under the path under which the driver sees them",)
        raise


def _read(fs: FileSystem, options: ReadOptions, task: Task, min_timestamp_ms: int | None) -> Iterator[pa.RecordBatch]:
    damage = Damage(options.bad_batches)
    batches = RecordBatches(options.columns)
    if isinstance(task, SpansTask):
        reader = SpanReader(fs, options, damage, min_timestamp_ms)
        for span in task.spans:
            yield from _with_reports(batches, damage, span.topic_partition, reader.each(span, _laid_out(span)))
    else:
        yield from _with_reports(batches, damage, task.topic_partition, latest_rows(fs, options, task, damage))
    yield from batches.finish()


def _with_reports(
    batches: RecordBatches, damage: Damage, topic_partition: TopicPartition, found: Iterator[ArrowRows]
) -> Iterator[pa.RecordBatch]:
    """Add rows, and report damage before the rows that follow it in the log."""
    for rows in found:
        for error in damage.take_unreported():
            yield from batches.report(topic_partition, error)
        yield from batches.add(rows)
    for error in damage.take_unreported():
        yield from batches.report(topic_partition, error)


def _laid_out(span: Span) -> Callable[[Path, Block, Flags], ArrowRows]:
    """Return the function that lays out the records of a span."""

    def work(path: Path, block: Block, hidden: Flags) -> ArrowRows:
        layout = lay_out(path, block, hidden, span.first_offset, span.end_offset)
        return ArrowRows(span.topic_partition, path, layout, block.batches, hidden)

    return work
