"""
Recopies one group of source segments into one `.cleaned` segment (R-590, R-591).

Each source is read from start to end, in chunks; every batch is checked, judged, and copied, rebuilt or left out. Steps
that depend on the order of batches (offsets, transactions, decisions before records are read, the place in the output,
index entries) run chunk after chunk; the other steps run on several lanes in parallel (`pipeline.py`,
`segment_chunks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.passes.damage import NO_DAMAGE, KnownDamage
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.pipeline import OrderedPipeline
from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, Claim, SegmentChunks, any_size
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.cleaning.recopy.batch_retention import ActiveProducers, decide_retention
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.cleaning.recopy.held import hold_markers, hold_tombstones
from cleaner.cleaning.recopy.recompress import Packed, Recompressor
from cleaner.cleaning.recopy.retained import CopyCounts, Output, RetainedWriter
from cleaner.cleaning.recopy.segment_keys import SegmentKeys
from cleaner.cleaning.recopy.survivors import BlockRetention, Survivors
from cleaner.errors import CorruptBatchError, CorruptLogError, UncleanableError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches, Chunk, Flags
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.kernels.batch_header import MAGIC
from cleaner.kernels.retain import BATCH_KEEP_END
from cleaner.kernels.scan_status import KIND_PRODUCER, LARGEST_RECORD_BYTES
from cleaner.policy.grouping import unread_sources
from cleaner.state.digest_runs import Digests
from cleaner.storage.segment.indexes import Aborts, abort_rows
from cleaner.storage.segment.segment import Segment

# For all other batches, nothing is decided before their records are read.
_DECIDED_KINDS = TRANSACTIONAL_FLAG | CONTROL_FLAG | KIND_PRODUCER


@dataclass(frozen=True)
class RecopyRules:
    """
    The rules for batches, besides the survivors; the same for all groups of a round.

    Attributes:
        kept_end_offset: the batch ending right below it stays even if empty (R-541 b).
        reads_every_index: the last index entry of every source is checked, not only of a group's last (R-538).
        legacy_horizon_ms: tombstones of magic 0 and 1 stay in segments whose mtime is above it (R-502, R-551).
        now_ms: the round's time.
        removal_ms: markers whose horizon is at or below it may go.
        delete_retention_ms: of the topic.
        record_limit_bytes: the largest record that a compressed batch may have, if its records are read (R-560).
        held_from: tombstones and markers from this offset on stay, even after their horizon; None: none does.
        settled_ms: horizons up to it have had their effect after this round.
        removes_nothing: every batch is copied as it is.
        expire_before_ms: records up to this timestamp lose their values; None: none does.
        keeps_legacy_end: a batch of magic 0 or 1 that ends at `kept_end_offset` reaches as far afterwards, if need be
            as an empty one of magic 2; Kafka refuses that (R-546).
    """

    kept_end_offset: int
    reads_every_index: bool
    legacy_horizon_ms: int
    now_ms: int
    removal_ms: int
    delete_retention_ms: int
    record_limit_bytes: int = LARGEST_RECORD_BYTES
    held_from: int | None = None
    settled_ms: int = -(2**63)
    removes_nothing: bool = False
    expire_before_ms: int | None = None
    keeps_legacy_end: bool = False

    def expiry(self, latest_offset: int) -> Expiry | None:
        """Return which records expire in a round whose map ends there; None: none does."""
        return None if self.expire_before_ms is None else Expiry(self.expire_before_ms, latest_offset)

    @property
    def new_horizon_ms(self) -> int:
        """The delete horizon that batches get in this round; the sum wraps like Java's (R-563, R-568)."""
        return (self.now_ms + self.delete_retention_ms + 2**63) % 2**64 - 2**63


class MappedBatches:
    """
    Finds the batches whose keys the first pass left out; it may know other aborted transactions than the second.

    Give it every chunk of the group, in order: it follows the state of transactions, from the batch where the first
    pass began.

    Args:
        transactions: state of the first pass at the start of the first group, or where the pass began.
        first_offset, first_position: base offset of the segment where it began, and the batch's position there.
    """

    def __init__(self, transactions: CleanedTransactions, first_offset: int, first_position: int) -> None:
        self._transactions = transactions
        self._first = (first_offset, first_position)

    def left_out(self, claim: Claim, chunk: Chunk) -> Flags:
        """Return uint8 for each batch: 1 if its records were left out. Call in order."""
        rows = chunk.batches
        result: Flags = np.zeros(len(rows), np.uint8)
        base_offset = claim.segment.base_offset
        if base_offset < self._first[0] or not len(rows):
            return result
        is_within = base_offset == self._first[0]
        first = int(np.searchsorted(rows["position"], self._first[1])) if is_within else 0
        if first == len(rows):
            return result
        result[first:] = self._transactions.discardable(claim.path, replace(chunk, batches=rows[first:]))
        return result


@dataclass(frozen=True)
class RecopyChunk:
    """A chunk of a source segment whose batches are listed, and the decisions on them."""

    arranged: ArrangedChunk
    retention: BlockRetention


class GroupRecopier:
    """
    Recopies the groups of one round, one after the other.

    Args:
        rules: see `RecopyRules`.
        make_survivors: creates the judge of one lane.
        producers: the log's active producers (R-545).
        collect_aborted: returns the aborted transactions of an offset range (R-535); called once for each source
            segment (R-536).
        lanes: memory, as many as `lanes_for` returns.
        before_read: called in order with the bytes of every window before it is read.
        before_chunk: called in order with the bytes of every chunk before it is processed; may raise to stop.
        after_write: called with the bytes written for every chunk, by any lane.
        most_bytes: see `SegmentChunks`.
        transactions: state at the start of the first group; None at the start of a log.
        mapped: finds the batches whose keys the first pass left out, for survivors that need to know.
        damage: batches that are copied unchanged.
        recompressor: packs what is kept; None: batches stay as they are.
        expiry: which records lose their values; None: none does.
    Attributes:
        uncounted: by how much the records written so far are more than the headers of their batches say: a batch of
            magic 0 or 1 has no count, which reads as -1.
    """

    def __init__(
        self,
        *,
        rules: RecopyRules,
        make_survivors: Callable[[], Survivors],
        producers: ActiveProducers,
        collect_aborted: Callable[[int, int], Aborts | Sequence[AbortedTxn]],
        lanes: Sequence[LaneMemory],
        before_read: Callable[[int], None],
        before_chunk: Callable[[int], None],
        after_write: Callable[[int], None],
        most_bytes: Callable[[], int] = any_size,
        transactions: CleanedTransactions | None = None,
        mapped: MappedBatches | None = None,
        damage: KnownDamage = NO_DAMAGE,
        recompressor: Recompressor | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        self._damage = damage
        self.expiry = expiry
        self.recompressor = recompressor
        self.uncounted = 0
        self._rules = rules
        self.record_limit_bytes = rules.record_limit_bytes
        self.held_from = rules.held_from
        self._producers = producers
        self._collect_aborted = collect_aborted
        self.before_read = before_read
        self._before_chunk = before_chunk
        self._transactions = transactions or CleanedTransactions()
        self._mapped = mapped
        self._window_bytes, self._most_bytes = lanes[0].buffer.window_bytes, most_bytes
        self._make_survivors = make_survivors
        self._after_write = after_write
        self._lanes = lanes
        self._writers = [RetainedWriter(rules.new_horizon_ms, (lane.output, lane.rebuilt)) for lane in lanes]

    @property
    def counts(self) -> CopyCounts:
        """Counts so far of what was read and what was retained."""
        counts = CopyCounts.total(writer.counts for writer in self._writers)
        if self.recompressor is not None:
            packed = self.recompressor.counts
            counts.bytes_written += packed.packed_bytes_after - packed.packed_bytes_before
        return counts

    @property
    def found_cold(self) -> bool:
        """Whether a segment of the last group was not in the page cache."""
        return self.chunks.found_cold

    def recopy(
        self, group: Sequence[Segment], end_offset: int, target: CleanedSegment, keys: SegmentKeys | None = None
    ) -> Aborts:
        """
        Write the retained batches of a group's segments to `target`, which the caller finishes or discards.

        A batch that reaches into the next segment is refused: what the map knows of its offsets is about other records.

        Args:
            group: the segments.
            end_offset: base offset of the segment after them.
            target: where to.
            keys: gets the keys of a group of one segment; None: they are not needed.

        Returns:
            The transaction index of the new segment: aborts whose markers are retained (R-533).
        Raises:
            CorruptBatchError, CorruptIndexError: a source is damaged.
            UncleanableError: Kafka's cleaner could not write the output either.
        """
        self._transactions.begin_segment()
        self._group, self._entered, self.keys = group, 0, keys
        self._ends = [*(segment.base_offset for segment in group[1:]), end_offset]
        self.chunks = SegmentChunks(
            ((i, segment, 0) for i, segment in enumerate(group)),
            self._window_bytes,
            most_bytes=self._most_bytes,
            drops_behind=True,
            damage=self._damage,
            unread_indexes=unread_sources([group], reads_every_index=self._rules.reads_every_index),
        )
        if self.recompressor is not None:
            self.recompressor.begin(sum(segment.size for segment in group))
        try:
            OrderedPipeline(
                [
                    _Lane(self, memory, self._make_survivors(), writer, target, self._after_write)
                    for memory, writer in zip(self._lanes, self._writers, strict=True)
                ],
                "cleaner-copy",
            ).run()
        finally:
            self.chunks.close()
        aborts = self._aborts()
        if self.recompressor is not None:
            self.write_packed(target, self.recompressor.end())
        return aborts

    def _aborts(self) -> Aborts:
        """Return the transaction index of the group that was read."""
        self._enter(len(self._group) - 1)
        if self._rules.removes_nothing:
            # Every marker stays as it is, also one without data: its entry goes when it gets a horizon.
            return np.concatenate([abort_rows(segment.aborted_txns()) for segment in self._group])
        return self._transactions.retained_aborts

    def note_copied(self, rows: Batches) -> None:
        """Note batches of magic 0 and 1 that are copied; otherwise they become batches of magic 2."""
        if self._rules.removes_nothing:
            self.uncounted += int((rows["count"][rows["magic"] < 2] + 1).sum())

    def write_packed(self, target: CleanedSegment, packed: Packed) -> None:
        """Write what was packed; its memory is used again for the next chunk. Never called by two lanes at once."""
        size = len(packed.data)
        position = target.reserve(size, packed.written, packed.largest_offset, is_equal=packed.is_equal)
        if position is not None and size:
            target.write(packed.data, position)
            self._after_write(size)

    def arrange(self, claim: Claim, buffer: WindowBuffer) -> RecopyChunk:
        """List a chunk's batches and make the decisions that depend on order. Never called by two lanes at once."""
        self._enter(claim.number)
        arranged = self.chunks.arrange(claim, buffer)
        if arranged.chunk.length:
            self._before_chunk(arranged.chunk.length)
        overlap = self.chunks.overlap(arranged, self._ends[claim.number])
        if overlap is not None:
            raise overlap
        try:
            damaged = self._damage.flags(claim.segment.base_offset, arranged.chunk.batches)
            if self._rules.removes_nothing:
                damaged[:] = 1
            retention = self._retention(claim, arranged.chunk)
            return RecopyChunk(arranged, retention.carrying_over(damaged) if damaged.any() else retention)
        except CorruptBatchError as error:
            raise self.chunks.first_damage(arranged, error) from error

    def _enter(self, number: int) -> None:
        """Add the aborted transactions up to a segment of the group, also those of empty segments."""
        while self._entered <= number:
            segment, self._entered = self._group[self._entered], self._entered + 1
            is_last = self._entered == len(self._group)
            if is_last and len(self._damage.positions(segment.base_offset)):
                # Its end might not be readable, and a log whose damage is kept has no transactions.
                continue
            upper = segment.next_offset() if is_last else self._group[self._entered].base_offset
            self._transactions.add_aborted(self._collect_aborted(segment.base_offset, upper))

    def _retention(self, claim: Claim, chunk: Chunk) -> BlockRetention:
        rows = chunk.batches
        is_last = len(rows) and rows["last_offset"][-1] >= self._rules.kept_end_offset - 1
        legacy_deletes_stay = claim.segment.mtime_ms > self._rules.legacy_horizon_ms
        if not is_last and not chunk.kinds & _DECIDED_KINDS:
            return BlockRetention.undecided(len(rows), legacy_deletes_stay)
        retention = decide_retention(
            rows,
            self._transactions.discardable(claim.path, chunk),
            self._producers,
            kept_end_offset=self._rules.kept_end_offset,
            removal_ms=self._rules.removal_ms,
            legacy_deletes_stay=legacy_deletes_stay,
        )
        if is_last and self._rules.keeps_legacy_end:
            is_legacy_end = (rows["magic"] < MAGIC) & (rows["last_offset"] == self._rules.kept_end_offset - 1)
            retention.batches[is_legacy_end] = BATCH_KEEP_END
        if self._rules.held_from is not None:
            # Called by one lane at a time, and only here.
            self._writers[0].counts.held_markers += hold_markers(rows, retention, self._rules.held_from)
        return retention if self._mapped is None else replace(retention, unmapped=self._mapped.left_out(claim, chunk))


class _Lane:
    """The steps of recopying a chunk, for one thread."""

    _claim: Claim
    _task: RecopyChunk
    _chunk: Chunk
    _error: CorruptLogError | UncleanableError | None
    _output: Output
    _is_equal: bool
    _position: int | None

    def __init__(
        self,
        recopier: GroupRecopier,
        memory: LaneMemory,
        survivors: Survivors,
        writer: RetainedWriter,
        target: CleanedSegment,
        after_write: Callable[[int], None],
    ) -> None:
        self._writer = writer
        self._target = target
        self._recopier = recopier
        self._memory = memory
        self._survivors = survivors
        self._after_write = after_write
        self._verdicts: Flags = np.zeros(0, np.uint8)
        self._digests: list[Digests] = []

    def take(self) -> bool:
        claim = self._recopier.chunks.claim()
        if claim is None:
            return False
        self._recopier.before_read(claim.window.size)
        self._memory.buffer.shrink()
        self._claim = claim
        return True

    def fill(self) -> None:
        SegmentChunks.fill(self._claim, self._memory.buffer)

    def arrange(self) -> None:
        self._task = self._recopier.arrange(self._claim, self._memory.buffer)

    def work(self) -> int:
        calls_before = self._memory.unpacker.library_calls + self._writer.library_calls
        self._chunk = SegmentChunks.verify(self._task.arranged)
        self._error = self._chunk.failure
        self._writer.begin(len(self._chunk.batches))
        try:
            self._recopy(self._claim.path, self._chunk, self._task.retention)
        except (CorruptLogError, UncleanableError) as error:
            self._error = error
        self._output = self._writer.end()
        self._is_equal = self._target.may_stay and self._writer.equals(self._chunk)
        return self._memory.unpacker.library_calls + self._writer.library_calls - calls_before

    def _recopy(self, path: Path, chunk: Chunk, retention: BlockRetention) -> None:
        unread = retention.unread[: len(chunk.batches)] != 0
        keys = self._recopier.keys
        self._digests.clear()
        for block in self._memory.unpacker.blocks(path, chunk, unread, self._recopier.record_limit_bytes):
            mine = retention.part(block.first, len(block.batches))
            records = block.record_count(mine.unread)
            if len(self._verdicts) < records:
                self._verdicts = np.zeros(records, np.uint8)
            self._survivors.judge(path, block, mine, self._verdicts)
            if (held_from := self._recopier.held_from) is not None:
                held = hold_tombstones(path, block, mine, self._verdicts[:records], held_from)
                self._writer.counts.held_tombstones += held
            if (expiry := self._recopier.expiry) is not None:
                block, expired = expiry.apply(path, block, mine, self._verdicts[:records])
                self._writer.counts.expired_records += expired
            if keys is not None:
                keys.digest(path, block, mine.unread, self._verdicts, self._memory.digests, self._digests)
            self._writer.write(path, block, mine, self._verdicts)

    def commit(self) -> None:
        # Report a wrong index before a damaged record: it was found before records were read.
        SegmentChunks.check_index(self._task.arranged, self._chunk)
        if self._error is not None:
            raise self._error
        if self._recopier.keys is not None:
            self._recopier.keys.add(self._chunk.batches, self._digests)
        output, recompressor = self._output, self._recopier.recompressor
        if recompressor is not None:
            self._recopier.note_copied(self._chunk.batches)
            packed = recompressor.add(self._claim.path, output, is_equal=self._is_equal)
            self._recopier.write_packed(self._target, packed)
            self._position = None
            return
        self._position = self._target.reserve(
            len(output.data), output.written, output.largest_offset, is_equal=self._is_equal
        )

    def finish(self) -> None:
        if self._position is not None and len(self._output.data):
            self._target.write(self._output.data, self._position)
            self._after_write(len(self._output.data))
        self._recopier.chunks.release(self._claim)
