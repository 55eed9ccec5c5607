"""
Which transactions were aborted, told by their markers alone: archives lose transaction indexes, and nothing shows it.

A record's transaction is decided by the next marker of its producer. So a task reads on behind its own batches, headers
and checksums only, until all transactions in them are decided, which is seldom far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk, ReadBuffer
from cleaner.log.decisions import Decisions, open_at_snapshot
from cleaner.log.open_segment import OpenSegment
from cleaner.spark.source.damage import Damage, sound_chunks
from cleaner.spark.source.options import BadBatches
from cleaner.spark.source.partition_log import UNKNOWN_END, PartitionLog
from cleaner.storage.segment.indexes import Aborts, abort_rows


def committed_end(log: PartitionLog) -> int:
    """
    Return the high watermark, below which no record is taken back any more.

    Without a checkpoint of high watermarks the log's end takes its place, and where damage hides that, the beginning
    of the last segment.
    """
    if log.high_watermark is not None:
        return min(max(log.high_watermark, log.start_offset), log.end_offset)
    return log.end_offset if log.end_offset < UNKNOWN_END else log.places[-1].base_offset


def stable_end(log: PartitionLog, mode: BadBatches) -> int:
    """
    Return the offset of the first transaction that is not decided at the high watermark, or that.

    The producer snapshot before it tells what was open there; without one the whole log is walked through. Without a
    checkpoint of high watermarks the log's end takes its place.
    """
    decisions = Decisions()
    begin = log.start_offset
    end = log.end_offset if log.high_watermark is None else min(max(log.high_watermark, begin), log.end_offset)
    found = open_at_snapshot(log.fs, log.directory, log.snapshots, begin, end)
    if found is not None:
        begin, decisions.open = found
    for path, chunk in _walk(log, begin, end, mode, decisions):
        rows = chunk.batches[chunk.batches["base_offset"] < end]
        decisions.take(path, replace(chunk, batches=rows), begin)
    return min(decisions.open.values(), default=end)


def aborted_within(log: PartitionLog, first_offset: int, end_offset: int, mode: BadBatches) -> Aborts:
    """
    Return the aborted transactions of a range of offsets, as `logs.aborted.hidden_batches` wants them.

    What the log does not decide counts as aborted: behind the last stable offset, or where damage cuts a transaction.
    """
    decisions = Decisions()
    for path, chunk in _walk(log, first_offset, log.end_offset, mode, decisions):
        decisions.take(path, chunk)  # the batch with the first offset may begin below it
        is_past = int(chunk.batches[-1]["last_offset"]) + 1 >= end_offset
        if is_past and min(decisions.open.values(), default=end_offset) >= end_offset:
            break
    undecided = [AbortedTxn(producer, first, UNKNOWN_END, first) for producer, first in decisions.open.items()]
    return abort_rows([*decisions.aborted, *undecided])


def _walk(
    log: PartitionLog, first_offset: int, end_offset: int, mode: BadBatches, decisions: Decisions
) -> Iterator[tuple[Path, Chunk]]:
    """Read the batches from an offset to another, and maybe some before and behind them."""
    buffer = ReadBuffer()
    damage = _CutTransactions("fail" if mode == "fail" else "skip", decisions)
    for place, first, _ in log.bounds(first_offset, end_offset):
        with OpenSegment(log.fs, place) as segment:
            size = log.end_position if place is log.places[-1] else segment.file.size()
            start = segment.position_at(first)
            for chunk in sound_chunks(segment.file, place.base_offset, start, size, damage, buffer):
                damage.last_offset = int(chunk.batches[-1]["last_offset"])
                yield segment.file.path, chunk


class _CutTransactions(Damage):
    """Takes for aborted what damage keeps from being decided."""

    def __init__(self, mode: BadBatches, decisions: Decisions) -> None:
        super().__init__(mode)
        self.last_offset = -1
        self._decisions = decisions

    def meet(self, error: CorruptBatchError) -> None:
        """Take note of damage; raises as `Damage.meet`."""
        super().meet(error)
        cut = self._decisions.open
        self._decisions.aborted += [AbortedTxn(each, first, self.last_offset, first) for each, first in cut.items()]
        cut.clear()
