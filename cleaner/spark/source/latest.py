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
from functools import cache, partial
from pathlib import Path

from cleaner.errors import LogDirOfflineError
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import Words
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.read.latest import Digest, LatestByKey, keys_within
from cleaner.read.snapshot import UNKNOWN_END, LogSnapshot, LogSnapshots
from cleaner.read.transactions import Transactions
from cleaner.spark.source.arrow import ArrowRows
from cleaner.spark.source.damage import Damage, transactions_reader
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import LatestTask
from cleaner.spark.source.read import SpanReader
from cleaner.spark.source.spans import Span, spans_of
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.indexes import Aborts, abort_rows

_WHOLE_SEGMENTS = 2**62


def latest_rows(fs: FileSystem, options: ReadOptions, task: LatestTask, damage: Damage) -> Iterator[ArrowRows]:
    """
    Yield the last record of every key; raises as `task.run_task`.

    Records without a key are left out. Keys whose last value is null are left out unless the options include them.
    """
    with ExitStack() as stack:
        held, first, end = _hold(fs, options, task, stack)
        wanted = [(replace(span, end_offset=min(span.end_offset, end)), file) for span, file in held]
        wanted = [(span, file) for span, file in wanted if span.first_offset < span.end_offset]
        aborts = cache(partial(_aborts, held, options))
        quiet = Damage("fail" if options.bad_batches == "fail" else "skip")
        quiet_reader, reader = SpanReader(fs, options, quiet), SpanReader(fs, options, damage)

        def digest_all(digest: Digest) -> Iterator[Words]:
            for span, file in wanted:
                yield from quiet_reader.each_of(span, file, digest, lambda _: aborts())

        max_keys = keys_within(options.map_bytes)
        last = LatestByKey(digest_all, first, end, max_keys, max_keys, survivor_rule_of(options.survivor))
        for span, file in wanted:

            def work(path: Path, block: Block, hidden: Flags, span: Span = span) -> ArrowRows:
                layout = lay_out(path, block, hidden, span.first_offset, span.end_offset)
                is_wanted = last.has(layout.offsets)
                if not options.tombstones:
                    is_wanted &= layout.value_sizes >= 0
                data, *arrays = vars(layout).values()
                layout = Layout(data, *(array[is_wanted] for array in arrays))
                return ArrowRows(span.topic_partition, path, layout, block.batches, hidden)

            yield from reader.each_of(span, file, work, lambda _: aborts())


def _aborts(held: list[tuple[Span, File]], options: ReadOptions) -> Aborts:
    """Return the aborted transactions of the held files: those in their places may lack markers that these had."""
    transactions, read = Transactions(), transactions_reader(options.bad_batches)
    for span, file in held:
        for chunk in read(file, span.base_offset, span.position, span.end_position, transactions.cut):
            transactions.take(file.path, chunk)
    return abort_rows([*transactions.aborted, *transactions.open_until(UNKNOWN_END)])


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
        return held, task.first_offset, end

    return LogSnapshots(fs).look(task.topic_partition, task.directory, hold)
