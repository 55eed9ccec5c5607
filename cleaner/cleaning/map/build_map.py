"""
The first pass of a round: puts every key of the dirty section into the offset map (R-510..R-513).

It also checks every batch of the dirty section, so that nothing is swapped in a log that is damaged there. When the map
is full, the rest of that segment is still read and its checksums verified: it will be recopied, too.

Chunks are read, checked and digested on several lanes in parallel, and put in order.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from cleaner.base.key_views import KeyView
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.all_latest import AllLatest
from cleaner.cleaning.map.digests import DigestedChunk, DirtyChunk
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.damage import NO_DAMAGE, KnownDamage
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.pipeline import OrderedPipeline
from cleaner.cleaning.passes.segment_chunks import Claim, SegmentChunks
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.errors import CorruptBatchError, CorruptLogError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, control_batches
from cleaner.format.key_digests import MESSAGES_BEFORE, OFFSET_PLUS_1
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.policy.cleanable import Cleanable
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment

_MAX_LEFT_IN_CACHE_BYTES = 256 << 20


class MapEnd(Enum):
    """What ended a map before the end of the cleanable section: in the words of the report's note."""

    FULL = "the offset map was full"
    DIRTY_BYTES = "the round ended at --max-dirty-bytes"
    SECONDS = "the round ended at --max-seconds"
    RESUMED_JOB = "the resumed job had been planned for less"


@dataclass(frozen=True)
class BuiltMap:
    """
    The result of the first pass.

    Attributes:
        end_offset: first offset not covered: the round's new checkpoint.
        ended_by: what ended the pass before the end of the cleanable section; None if it reached that.
        bytes_read: of whole processed chunks (R-718).
        messages_read: records read; batches of aborted transactions count whole, markers as one.
        keyless_messages: records without a key in the range, which the second pass removes; if the map ended early,
            also the few after its end that were read with it, which the next round removes.
        messages_by_segment: records of each completely covered segment, by base offset.
    """

    end_offset: int
    ended_by: MapEnd | None
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
        lanes: memory, as many as `lanes_for` returns.
        context: of the round; its limits may end the map early.
        damage: batches whose keys are left out.
        unread_indexes: see `SegmentChunks`.
        record_limit_bytes: the largest record that a compressed batch may have (R-511).
        all_latest: finds segments in which nothing changes; None: the caller does not need them.
        view: which keys are the same key; None: those with the same bytes.
    """

    def __init__(
        self,
        log: LoadedLog,
        cleanable: Cleanable,
        offset_map: OffsetMap,
        lanes: Sequence[LaneMemory],
        context: RoundContext,
        damage: KnownDamage = NO_DAMAGE,
        unread_indexes: Set[int] = frozenset(),
        record_limit_bytes: int = LARGEST_RECORD_BYTES,
        all_latest: AllLatest | None = None,
        view: KeyView | None = None,
    ) -> None:
        self.view = view
        self._all_latest = all_latest
        self._damage = damage
        self._unread_indexes = unread_indexes
        self.record_limit_bytes = record_limit_bytes
        self.offset_map = offset_map
        self.first_dirty_offset = cleanable.first_dirty_offset
        self._log = log
        self._cleanable = cleanable
        self._context = context
        self._segments = log.segments_between(cleanable.first_dirty_offset, cleanable.first_uncleanable_offset)
        self._lanes = lanes
        self._began_ns = context.clock.monotonic_ns()
        self._window_bytes = lanes[0].buffer.window_bytes
        self._is_damaged = False
        self._ended_in: int | None = None  # the number of the segment in which the map ended early
        self._ended_by: MapEnd | None = None
        self._bytes_read = self._messages = self._keyless = 0
        self._messages_by_segment: dict[int, int] = {}

    def build(self) -> BuiltMap:
        """
        Read the dirty section.

        Raises:
            CorruptBatchError, CorruptIndexError: damage; nothing on disk has been changed.
            RecordAboveLimitError: likewise; only if the map takes all keys before that record.
            CleaningAborted: asked to stop.
        """
        first_dirty, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        indexes = self._context.key_indexes
        self.offset_map.clear(first_dirty, end, None if indexes is None else indexes.keys)
        self._transactions = CleanedTransactions()
        self._transactions.add_aborted(self._log.collect_aborted(first_dirty, end))
        # The second pass finds a short log in the page cache; of a long one only the end would be there.
        is_long = sum(segment.size for segment in self._segments) > _MAX_LEFT_IN_CACHE_BYTES
        self._chunks = SegmentChunks(
            self._wanted(),
            self._window_bytes,
            most_bytes=self._context.window_bytes,
            drops_behind=is_long,
            damage=self._damage,
            unread_indexes=self._unread_indexes,
        )
        try:
            OrderedPipeline([_Lane(self, memory) for memory in self._lanes], "cleaner-map").run()
        finally:
            self._chunks.close()
            if self._all_latest is not None:
                self._all_latest.close()
        if self._ended_in is None:
            self._reach(len(self._segments))
        whole = self._segments[: self._ended_in]
        if not self._segments:
            self.offset_map.latest_offset = first_dirty - 1  # records above are not judged
        return BuiltMap(
            end_offset=self.offset_map.latest_offset + 1,
            ended_by=self._ended_by if self.offset_map.latest_offset + 1 < end else None,
            bytes_read=self._bytes_read,
            messages_read=self._messages,
            keyless_messages=self._keyless,
            messages_by_segment={
                segment.base_offset: self._messages_by_segment.get(segment.base_offset, 0)
                for segment in whole
                if segment.base_offset >= first_dirty
            },
        )

    def _wanted(self) -> Generator[tuple[int, Segment, int], None, None]:
        """Yield the segments to read, until the map has ended before one."""
        for number, segment in enumerate(self._segments):
            if self._ended_in is not None and number > self._ended_in:
                return
            self._claiming = number
            yield number, segment, segment.position_at(self.first_dirty_offset)

    def next_task(self) -> DirtyChunk | None:
        """Claim the next chunk; None at the end. Never called by two lanes at once."""
        if self._is_damaged:
            return None
        try:
            claim = self._chunks.claim()
        except CorruptLogError as error:
            # The error counts only if the map reaches this segment; that is known when all earlier chunks are in.
            self._is_damaged = True
            return DirtyChunk(self._claiming, self._segments[self._claiming], error=error)
        if claim is None:
            return None
        # Throttle before reading: a writer next to us needs the disk, not only the processor.
        self._context.throttle(claim.window.size)
        return DirtyChunk(claim.number, claim.segment, claim)

    def fill(self, task: DirtyChunk, buffer: WindowBuffer) -> None:
        """Read a claimed chunk. Called by all lanes at once."""
        try:
            if task.claim is not None:
                self._chunks.fill(task.claim, buffer)
        except CorruptLogError as error:
            task.error = error

    def arrange(self, task: DirtyChunk, buffer: WindowBuffer) -> None:
        """List a chunk's batches and follow their transactions. Called in order."""
        if task.claim is None:
            return
        if task.error is not None:
            self._chunks.abandon(task.claim)
            return
        task.arranged = self._chunks.arrange(task.claim, buffer)
        chunk = task.arranged.chunk
        if not chunk.length:
            return
        self._context.check_done()
        rows = chunk.batches
        # Its last offset would become the map's end, and the next segments, the active one too, would count as cleaned.
        task.error = self._chunks.overlap(task.arranged, self._end_of(task.number))
        if task.error is not None:
            return
        if not chunk.kinds & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
            task.skipped = self._damage.flags(task.segment.base_offset, rows)
            return
        try:
            task.skipped = self._transactions.discardable(task.claim.path, chunk) | control_batches(rows)
        except CorruptBatchError as error:
            task.error = self._chunks.first_damage(task.arranged, error)

    def _end_of(self, number: int) -> int:
        """Return the offset where a segment's offsets end: the base offset of the next one."""
        is_within = number + 1 < len(self._segments)
        return self._segments[number + 1].base_offset if is_within else self._cleanable.first_uncleanable_offset

    def release(self, claim: Claim) -> None:
        """Release a chunk's window. Called by all lanes at once."""
        self._chunks.release(claim)

    def put(self, task: DirtyChunk, digested: DigestedChunk) -> None:
        """Put a chunk's keys into the map, after all earlier chunks. Raises the chunk's error."""
        if self._ended_in is not None:
            # After the map's end only checksums and indexes count, and only those of its last segment.
            error = self._first_error(task, None)
            if error is not None and task.number <= self._ended_in:
                raise error
            return
        error = self._first_error(task, digested.error)
        if error is not None and error is not task.failure:
            raise error
        self._put(task, digested)
        if digested.error is not None:
            raise digested.error
        if digested.refusal is not None and self._ended_in is None:
            raise digested.refusal
        if error is not None and (self._ended_in is None or task.number <= self._ended_in):
            raise error

    def _first_error(self, task: DirtyChunk, record_error: CorruptLogError | None) -> CorruptLogError | None:
        if task.error is None and task.arranged is not None and task.chunk is not None:
            try:
                self._chunks.check_index(task.arranged, task.chunk)
            except CorruptLogError as error:
                return error
        return task.error or record_error or task.failure

    def _put(self, task: DirtyChunk, digested: DigestedChunk) -> None:
        if not task.length:
            return
        self._reach(task.number)
        if self._all_latest is not None:
            self._all_latest.begin_chunk(task.segment)
        is_full = False
        while True:
            done = 0 if is_full else self.offset_map.put(digested.rows)
            if self._all_latest is not None:
                self._all_latest.add_keys(digested.rows)
            if not is_full and done < len(digested.rows):
                self._end_within(task, digested, done)
                is_full = True
            if not digested.digest_more(task, self.first_dirty_offset, self.offset_map.keys):
                break
        self._keyless += digested.keyless
        if is_full or digested.refusal is not None:
            return
        last_offset = int(task.batches[-1]["last_offset"])
        if last_offset >= self.first_dirty_offset:
            self.offset_map.latest_offset = last_offset
        if self._all_latest is not None and digested.error is None and task.failure is None:
            self._all_latest.end_chunk(task, digested, self.offset_map)
        self._count(task, digested.messages)
        self._bytes_read += task.length
        self._context.progress("map", self._bytes_read, self._cleanable.cleanable_bytes)
        self._ended_by = self._reached_limit()
        if self._ended_by is not None:
            self._ended_in = task.number

    def _reach(self, number: int) -> None:
        """Note that all segments before this one are mapped; offsets may be missing at their ends (R-513)."""
        if number:
            self.offset_map.latest_offset = max(self.offset_map.latest_offset, self._end_of(number - 1) - 1)

    def _end_within(self, task: DirtyChunk, digested: DigestedChunk, done: int) -> None:
        """Note that the map is full: it ends with the last record put, or the last complete batch after it (R-513)."""
        refused = int(digested.rows[done, OFFSET_PLUS_1]) - 1
        rows = task.batches
        complete = rows["last_offset"][rows["last_offset"] < refused]
        reached = [self.offset_map.latest_offset]
        if done:
            reached.append(int(digested.rows[done - 1, OFFSET_PLUS_1]) - 1)
        if len(complete) and complete[-1] >= self.first_dirty_offset:
            reached.append(int(complete[-1]))
        self.offset_map.latest_offset = max(reached)
        self._count(task, int(digested.rows[done, MESSAGES_BEFORE]))
        self._ended_in, self._ended_by = task.number, MapEnd.FULL

    def _count(self, task: DirtyChunk, messages: int) -> None:
        self._messages += messages
        base = task.segment.base_offset
        self._messages_by_segment[base] = self._messages_by_segment.get(base, 0) + messages

    def _reached_limit(self) -> MapEnd | None:
        """Return the caller's limit that ends the map here; it must have made at least some progress."""
        if self.offset_map.latest_offset < self.first_dirty_offset:
            return None
        max_bytes, max_seconds = self._context.max_dirty_bytes, self._context.max_seconds
        if max_bytes is not None and self._bytes_read >= max_bytes:
            return MapEnd.DIRTY_BYTES
        seconds = (self._context.clock.monotonic_ns() - self._began_ns) / 1e9
        return MapEnd.SECONDS if max_seconds is not None and seconds >= max_seconds else None


class _Lane:
    """The steps of putting a chunk's keys into the map, for one thread."""

    _task: DirtyChunk

    def __init__(self, builder: MapBuilder, memory: LaneMemory) -> None:
        self._builder = builder
        self._memory = memory
        self._digested = DigestedChunk(
            memory.digests,
            in_parts=True,
            record_limit_bytes=builder.record_limit_bytes,
            view=builder.view,
            numbers=builder.offset_map.rule.numbers,
        )

    def take(self) -> bool:
        task = self._builder.next_task()
        if task is None:
            return False
        self._memory.buffer.shrink()
        self._task = task
        return True

    def fill(self) -> None:
        self._builder.fill(self._task, self._memory.buffer)

    def arrange(self) -> None:
        self._builder.arrange(self._task, self._memory.buffer)

    def work(self) -> int:
        task, builder = self._task, self._builder
        calls_before = self._memory.unpacker.library_calls
        if task.arranged is not None and task.error is None:
            task.chunk = SegmentChunks.verify(task.arranged)
            task.skipped = task.skipped[: len(task.batches)]
        self._digested.digest(task, self._memory.unpacker, builder.first_dirty_offset, builder.offset_map.keys)
        return self._memory.unpacker.library_calls - calls_before

    def commit(self) -> None:
        self._builder.put(self._task, self._digested)

    def finish(self) -> None:
        if self._task.claim is not None:
            self._builder.release(self._task.claim)
