"""
The last record of every key of a partition, in offset order.

`LatestByKey` finds them; a last pass yields them. All segments are opened before the end is determined, and stay open:
records that a cleaner removes later are still in these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from errno import ENOENT
from pathlib import Path

from cleaner.errors import LogDirOfflineError
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import Words
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.read.latest import Digest, LatestByKey, keys_within
from cleaner.read.snapshot import LogSnapshot, LogSnapshots
from cleaner.spark.source.arrow import ArrowRows
from cleaner.spark.source.damage import Damage, transactions_reader
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import LatestTask
from cleaner.spark.source.read import SpanReader
from cleaner.spark.source.spans import Span, spans_of
from cleaner.storage.fs.file_system import File, FileSystem

_WHOLE_SEGMENTS = 2**62


def latest_rows(fs: FileSystem, options: ReadOptions, task: LatestTask, damage: Damage) -> Iterator[ArrowRows]:
    """
    Yield the last record of every key; raises as `task.run_task`.

    Records without a key are left out. Keys whose last value is null are left out unless the options include them.
    """
    with ExitStack() as stack:
        held, first, end = _hold(fs, options, task, stack)
        quiet = Damage("fail" if options.bad_batches == "fail" else "skip")
        quiet_reader, reader = SpanReader(fs, options, quiet), SpanReader(fs, options, damage)

        def digest_all(digest: Digest) -> Iterator[Words]:
            for span, file in held:
                yield from quiet_reader.each_of(span, file, digest)

        max_keys = keys_within(options.map_bytes)
        last = LatestByKey(digest_all, first, end, max_keys, max_keys, survivor_rule_of(options.survivor))
        for span, file in held:

            def work(path: Path, block: Block, hidden: Flags, span: Span = span) -> ArrowRows:
                layout = lay_out(path, block, hidden, span.first_offset, span.end_offset)
                wanted = last.has(layout.offsets)
                if not options.tombstones:
                    wanted &= layout.value_sizes >= 0
                data, *arrays = vars(layout).values()
                layout = Layout(data, *(array[wanted] for array in arrays))
                return ArrowRows(span.topic_partition, path, layout, block.batches, hidden)

            yield from reader.each_of(span, file, work)


def _hold(
    fs: FileSystem, options: ReadOptions, task: LatestTask, stack: ExitStack
) -> tuple[list[tuple[Span, File]], int, int]:
    """Open all segments, then determine the end offset to read to."""

    def hold(log: LogSnapshot) -> tuple[list[tuple[Span, File]], int, int]:
        """Open the segments of one snapshot; `stack` closes them. Raises FileNotFoundError to get a newer snapshot."""
        if not log.places and options.fail_on_data_loss:
            # It had segments when it was planned, and nothing removes the last one.
            gone = FileNotFoundError(ENOENT, "its segments have gone, or never were there")
            raise LogDirOfflineError(task.directory, gone)
        with ExitStack() as attempt:
            spans = spans_of(log, task.first_offset, log.end_offset, _WHOLE_SEGMENTS)
            held = [(span, attempt.enter_context(fs.open(span.path))) for span in list(spans)]
            if any(file.stat().st_ino != span.inode for span, file in held):
                raise FileNotFoundError(ENOENT, "another file has its name", task.directory)
            end = log.end_offset if task.end_offset is None else min(task.end_offset, log.end_offset)
            if options.committed:
                end = min(end, log.last_stable_offset(transactions_reader(options.bad_batches)))
            stack.push(attempt.pop_all())
        wanted = [(span, file) for span, file in held if span.first_offset < end]
        cut = [(replace(span, end_offset=min(span.end_offset, end)), file) for span, file in wanted]
        return cut, task.first_offset, end

    return LogSnapshots(fs).look(task.topic_partition, task.directory, hold)
