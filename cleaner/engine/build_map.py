"""
The first pass of a round: every key of the dirty section into the offset map (R-510..R-513).

On the way every batch of the dirty section is checked, so that nothing is swapped in a log that is damaged there. When
the map is full the rest of that segment is still read and its checksums verified: it will be recopied too.

Chunks are read in order, their records checked and digested on several lanes side by side, and put in order.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cleaner.engine.context import RoundContext
from cleaner.engine.digests import DigestedChunk, DirtyChunk
from cleaner.errors import CorruptLogError
from cleaner.format.batch import CONTROL_FLAG, ReadBuffer, SegmentReader
from cleaner.kernels import offset_map as kernel
from cleaner.offset_map import OffsetMap
from cleaner.policy.cleanable import Cleanable
from cleaner.recopy.group import LaneMemory
from cleaner.recopy.pipeline import OrderedPipeline
from cleaner.recopy.transactions import CleanedTransactions
from cleaner.storage.indexes import OffsetIndexCheck
from cleaner.storage.log import Log
from cleaner.storage.segment import Segment


@dataclass(frozen=True)
class BuiltMap:
    """
    What the first pass found.

    Attributes:
        end_offset: first offset not covered: the round's new checkpoint.
        is_full: the pass ended before the end of the cleanable section.
        bytes_read: of whole chunks worked on (R-718).
        messages_read: records seen; batches of aborted transactions count whole, markers as one.
        keyless_messages: records without a key in the range, which the second pass removes; where the map is full, also
            the few behind its end that were read with it, which the next round removes.
        messages_by_segment: records of each segment covered whole, by base offset.
    """

    end_offset: int
    is_full: bool
    bytes_read: int
    messages_read: int
    keyless_messages: int
    messages_by_segment: Mapping[int, int]


class MapBuilder:
    """
    Builds the offset map of one round.

    Args:
        log: the log.
        cleanable: the range to cover.
        offset_map: cleared by `build`.
        lanes: memory of as many threads as shall work.
        context: the round's surroundings; its limits may end the map early.
    """

    def __init__(
        self,
        log: Log,
        cleanable: Cleanable,
        offset_map: OffsetMap,
        lanes: Sequence[LaneMemory],
        context: RoundContext,
    ) -> None:
        self.offset_map = offset_map
        self.first_dirty_offset = cleanable.first_dirty_offset
        self._log = log
        self._cleanable = cleanable
        self._context = context
        self._segments = log.segments_between(cleanable.first_dirty_offset, cleanable.first_uncleanable_offset)
        self._lanes = [_Lane(self, memory) for memory in lanes]
        self._began_ns = context.clock.monotonic_ns()
        self._full_in: int | None = None
        self._bytes_read = self._messages = self._keyless = 0
        self._messages_by_segment: dict[int, int] = {}

    def build(self) -> BuiltMap:
        """
        Read the dirty section.

        Raises:
            CorruptBatchError, CorruptIndexError: damage; nothing on disk has been changed.
            CleaningAborted: asked to stop.
        """
        first_dirty, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        self.offset_map.clear(first_dirty, end)
        self._tasks = self._read()
        try:
            OrderedPipeline(self._lanes, "cleaner-map").run()
        finally:
            self._tasks.close()
        if self._full_in is None:
            self._reach(len(self._segments))
        whole = self._segments[: self._full_in]
        return BuiltMap(
            end_offset=self.offset_map.latest_offset + 1,
            is_full=self._full_in is not None and self.offset_map.latest_offset + 1 < end,
            bytes_read=self._bytes_read,
            messages_read=self._messages,
            keyless_messages=self._keyless,
            messages_by_segment={
                segment.base_offset: self._messages_by_segment.get(segment.base_offset, 0)
                for segment in whole
                if segment.base_offset >= first_dirty
            },
        )

    def _read(self) -> Generator[DirtyChunk, None, None]:
        """Read the dirty section's chunks, each into the buffer of the lane that asks."""
        first_dirty, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        transactions = CleanedTransactions()
        transactions.add_aborted(self._log.collect_aborted(first_dirty, end))
        for number, segment in enumerate(self._segments):
            if self._full_in is not None and number > self._full_in:
                return
            try:
                yield from self._read_segment(number, segment, transactions)
            except CorruptLogError as error:
                # Whether this matters is known when all before it is in the map: it may end before this segment.
                yield DirtyChunk(number, segment, None, np.zeros(0, np.uint8), error)
                return

    def _read_segment(
        self, number: int, segment: Segment, transactions: CleanedTransactions
    ) -> Generator[DirtyChunk, None, None]:
        if not segment.size:
            return
        start = segment.position_at(self.first_dirty_offset)
        index_check = OffsetIndexCheck(segment.offset_index(), segment.index_path, segment.base_offset)
        with segment.open_log() as file:
            reader = SegmentReader(file, size=segment.size, start=start, check_order_from=segment.base_offset)
            while (chunk := reader.next_chunk(self._buffer)) is not None:
                self._context.check_done()
                self._context.throttle(chunk.length)
                rows = chunk.batches
                if start == 0:
                    index_check.add(rows["position"], rows["base_offset"], rows["last_offset"])
                is_control = (rows["attributes"] & CONTROL_FLAG != 0) & (rows["magic"] == 2)
                skipped = transactions.discardable(segment.log_path, chunk) | is_control
                yield DirtyChunk(number, segment, chunk, skipped)
        if start == 0:
            index_check.finish()

    def next_task(self, buffer: ReadBuffer) -> DirtyChunk | None:
        """Read the next chunk into `buffer`; None at the end. Never called by two lanes at once."""
        self._buffer = buffer
        return next(self._tasks, None)

    def put(self, task: DirtyChunk, digested: DigestedChunk) -> None:
        """Put a chunk's keys into the map, once all before it are in. Raises what is wrong with the chunk."""
        if self._full_in is not None:
            if task.error is not None and task.number <= self._full_in:
                raise task.error
            return
        for error in (task.error, digested.error):
            if error is not None:
                raise error
        self._reach(task.number)
        done = self.offset_map.put(digested.digests, digested.keyed)
        if done < digested.keyed:
            self._end_within(task, digested, done)
            return
        last_offset = int(task.batches[-1]["last_offset"])
        if last_offset >= self.first_dirty_offset:
            self.offset_map.latest_offset = last_offset
        self._count(task, digested.messages)
        self._keyless += digested.keyless
        self._bytes_read += task.length
        self._context.progress("map", self._bytes_read, self._cleanable.cleanable_bytes)
        if self._is_enough():
            self._full_in = task.number

    def _reach(self, number: int) -> None:
        """Note that all segments before this one are in; offsets may be missing at their ends (R-513)."""
        if number:
            bases = [*(segment.base_offset for segment in self._segments), self._cleanable.first_uncleanable_offset]
            self.offset_map.latest_offset = max(self.offset_map.latest_offset, bases[number] - 1)

    def _end_within(self, task: DirtyChunk, digested: DigestedChunk, done: int) -> None:
        """Note that the map is full: it ends with the last record put, or the last batch complete since (R-513)."""
        refused = int(digested.digests[kernel.DIGEST_WORDS * done + 2]) - 1
        rows = task.batches
        complete = rows["last_offset"][rows["last_offset"] < refused]
        reached = [self.offset_map.latest_offset]
        if done:
            reached.append(int(digested.digests[kernel.DIGEST_WORDS * (done - 1) + 2]) - 1)
        if len(complete) and complete[-1] >= self.first_dirty_offset:
            reached.append(int(complete[-1]))
        self.offset_map.latest_offset = max(reached)
        self._count(task, int(digested.digests[kernel.DIGEST_WORDS * done + 3]))
        self._keyless += digested.keyless
        self._full_in = task.number

    def _count(self, task: DirtyChunk, messages: int) -> None:
        self._messages += messages
        base = task.segment.base_offset
        self._messages_by_segment[base] = self._messages_by_segment.get(base, 0) + messages

    def _is_enough(self) -> bool:
        """Tell whether the caller's limits end the map here; it must at least have made some way."""
        if self.offset_map.latest_offset < self.first_dirty_offset:
            return False
        most_bytes, most_seconds = self._context.max_dirty_bytes, self._context.max_seconds
        if most_bytes is not None and self._bytes_read >= most_bytes:
            return True
        seconds = (self._context.clock.monotonic_ns() - self._began_ns) / 1e9
        return most_seconds is not None and seconds >= most_seconds


class _Lane:
    """One thread's way of putting a chunk's keys into the map."""

    _task: DirtyChunk

    def __init__(self, builder: MapBuilder, memory: LaneMemory) -> None:
        self._builder = builder
        self._memory = memory
        self._digested = DigestedChunk()

    def take(self) -> bool:
        self._memory.buffer.shrink()
        task = self._builder.next_task(self._memory.buffer)
        if task is None:
            return False
        self._task = task
        return True

    def work(self) -> None:
        builder = self._builder
        self._digested.digest(self._task, self._memory.unpacker, builder.first_dirty_offset, builder.offset_map.keys)

    def commit(self) -> None:
        self._builder.put(self._task, self._digested)

    def finish(self) -> None:
        """Everything is in the map."""
