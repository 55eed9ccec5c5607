"""
One group of source segments made into one `.cleaned` segment (R-590, R-591).

Each source is read from its first byte to its last, in chunks; every batch is checked, judged, and copied, rebuilt or
left out. What depends on the order of batches (offsets, transactions, fates, the place in the output, index entries)
happens chunk after chunk; the rest on several lanes side by side (`pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from cleaner.format.batch import Chunk, ReadBuffer, SegmentReader
from cleaner.format.records import Unpacker
from cleaner.model import AbortedTxn
from cleaner.recopy.cleaned_segment import CleanedSegment
from cleaner.recopy.fates import ActiveProducers, decide_fates
from cleaner.recopy.pipeline import OrderedPipeline
from cleaner.recopy.retained import CopyCounts, Output, RetainedWriter
from cleaner.recopy.survivors import BlockFates, Flags, Survivors
from cleaner.recopy.transactions import CleanedTransactions
from cleaner.storage.indexes import Aborts, OffsetIndexCheck
from cleaner.storage.segment import Segment


@dataclass(frozen=True)
class RecopyRules:
    """
    What the fate of a batch depends on beside the survivors; the same for all groups of a round.

    Attributes:
        first_uncleanable_offset: the batch ending right below it stays even if empty (R-541).
        legacy_horizon_ms: tombstones of magic 0 and 1 stay in segments whose mtime is above it (R-502, R-551).
        now_ms: the round's time.
        delete_retention_ms: the topic's.
    """

    first_uncleanable_offset: int
    legacy_horizon_ms: int
    now_ms: int
    delete_retention_ms: int

    @property
    def new_horizon_ms(self) -> int:
        """The delete horizon batches get in this round; the sum wraps like Java's (R-563, R-568)."""
        return (self.now_ms + self.delete_retention_ms + 2**63) % 2**64 - 2**63


@dataclass
class LaneMemory:
    """What one lane needs for a chunk, used again for every chunk of every pass."""

    buffer: ReadBuffer
    unpacker: Unpacker


@dataclass(frozen=True)
class Task:
    """A chunk of a source segment and what was decided of its batches."""

    segment: Segment
    chunk: Chunk
    fates: BlockFates


class GroupRecopier:
    """
    Recopies the groups of one round, one after the other.

    Args:
        rules: see `RecopyRules`.
        make_survivors: makes the judge of one lane.
        producers: the log's active producers (R-545).
        collect_aborted: aborted transactions of an offset range (R-535); called once a source segment (R-536).
        lanes: memory of as many threads as shall work.
        before_chunk: called in order with the bytes of every chunk before it is worked on; may raise to stop.
        after_write: called with the bytes written of every chunk, by any lane.
    """

    def __init__(
        self,
        *,
        rules: RecopyRules,
        make_survivors: Callable[[], Survivors],
        producers: ActiveProducers,
        collect_aborted: Callable[[int, int], Aborts | Sequence[AbortedTxn]],
        lanes: Sequence[LaneMemory],
        before_chunk: Callable[[int], None],
        after_write: Callable[[int], None],
    ) -> None:
        self._rules = rules
        self._producers = producers
        self._collect_aborted = collect_aborted
        self._before_chunk = before_chunk
        self._transactions = CleanedTransactions()
        self._lanes = [
            _Lane(self.next_task, memory, make_survivors(), RetainedWriter(rules.new_horizon_ms), after_write)
            for memory in lanes
        ]

    @property
    def counts(self) -> CopyCounts:
        """What was read and what stayed so far."""
        return CopyCounts.total(lane.writer.counts for lane in self._lanes)

    def recopy(self, group: Sequence[Segment], target: CleanedSegment) -> Aborts:
        """
        Write what stays of a group's segments to `target`, which the caller finishes or discards.

        Returns:
            The transaction index of the new segment: aborts whose markers stay (R-533).
        Raises:
            CorruptBatchError, CorruptIndexError: a source is damaged.
            UncleanableError: Kafka's cleaner could not write it either.
        """
        self._transactions.begin_segment()
        self._tasks = self._read(group)
        for lane in self._lanes:
            lane.target = target
        try:
            OrderedPipeline(self._lanes, "cleaner-copy").run()
        finally:
            self._tasks.close()
        return self._transactions.retained_aborts

    def next_task(self, buffer: ReadBuffer) -> Task | None:
        """Read the group's next chunk into `buffer`; None at its end. Never called by two lanes at once."""
        self._buffer = buffer
        return next(self._tasks, None)

    def _read(self, group: Sequence[Segment]) -> Generator[Task, None, None]:
        """Read a group's chunks, each into the buffer of the lane that asks, with all that depends on their order."""
        for position, segment in enumerate(group):
            is_last = position == len(group) - 1
            upper = segment.next_offset() if is_last else group[position + 1].base_offset
            self._transactions.add_aborted(self._collect_aborted(segment.base_offset, upper))
            if not segment.size:
                continue
            index_check = OffsetIndexCheck(segment.offset_index(), segment.index_path, segment.base_offset)
            with segment.open_log() as file:
                reader = SegmentReader(file, size=segment.size, check_order_from=segment.base_offset)
                while (chunk := reader.next_chunk(self._buffer)) is not None:
                    rows = chunk.batches
                    index_check.add(rows["position"], rows["base_offset"], rows["last_offset"])
                    self._before_chunk(chunk.length)
                    yield Task(segment, chunk, self._fates(segment, chunk))
            index_check.finish()

    def _fates(self, segment: Segment, chunk: Chunk) -> BlockFates:
        return decide_fates(
            chunk.batches,
            self._transactions.discardable(segment.log_path, chunk),
            self._producers,
            first_uncleanable_offset=self._rules.first_uncleanable_offset,
            now_ms=self._rules.now_ms,
            legacy_deletes_stay=segment.mtime_ms > self._rules.legacy_horizon_ms,
        )


class _Lane:
    """One thread's way of recopying a chunk."""

    target: CleanedSegment
    _task: Task
    _output: Output
    _position: int

    def __init__(
        self,
        next_task: Callable[[ReadBuffer], Task | None],
        memory: LaneMemory,
        survivors: Survivors,
        writer: RetainedWriter,
        after_write: Callable[[int], None],
    ) -> None:
        self.writer = writer
        self._next_task = next_task
        self._memory = memory
        self._survivors = survivors
        self._after_write = after_write
        self._verdicts: Flags = np.zeros(0, np.uint8)

    def take(self) -> bool:
        self._memory.buffer.shrink()
        task = self._next_task(self._memory.buffer)
        if task is None:
            return False
        self._task = task
        return True

    def work(self) -> None:
        path, chunk, fates = self._task.segment.log_path, self._task.chunk, self._task.fates
        self.writer.begin(len(chunk.batches))
        for block in self._memory.unpacker.blocks(path, chunk, unwanted=fates.unread != 0):
            mine = fates.part(block.first, len(block.batches))
            records = block.record_count(mine.unread)
            if len(self._verdicts) < records:
                self._verdicts = np.zeros(records, np.uint8)
            self._survivors.judge(path, block, mine, self._verdicts)
            self.writer.write(path, block, mine, self._verdicts)
        self._output = self.writer.end()

    def commit(self) -> None:
        output = self._output
        self._position = self.target.reserve(len(output.data), output.written, output.largest_offset)

    def finish(self) -> None:
        if len(self._output.data):
            self.target.write(self._output.data, self._position)
            self._after_write(len(self._output.data))
