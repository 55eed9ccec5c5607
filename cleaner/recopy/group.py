"""
One group of source segments made into one `.cleaned` segment (R-590, R-591).

Each source is read from its first byte to its last, in chunks; every batch is checked, judged, and copied, rebuilt or
left out. The transaction state runs through all groups of a round in order; nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cleaner.format.batch import Chunk, ReadBuffer
from cleaner.format.records import Unpacker
from cleaner.model import AbortedTxn
from cleaner.recopy.cleaned_segment import CleanedSegment
from cleaner.recopy.fates import ActiveProducers, decide_fates
from cleaner.recopy.retained import CopyCounts, RetainedWriter
from cleaner.recopy.survivors import Flags, Survivors
from cleaner.recopy.transactions import CleanedTransactions
from cleaner.storage.indexes import OffsetIndexCheck
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


class GroupRecopier:
    """
    Recopies the groups of one round, one after the other.

    Args:
        rules: see `RecopyRules`.
        survivors: who stays.
        producers: the log's active producers (R-545).
        collect_aborted: aborted transactions of an offset range (R-535); called once a source segment (R-536).
        unpacker, buffer: memory that is used again for every chunk.
        before_chunk: told of the bytes of every chunk before it is worked on, and after of the bytes written; may raise
            to stop.
    """

    def __init__(
        self,
        *,
        rules: RecopyRules,
        survivors: Survivors,
        producers: ActiveProducers,
        collect_aborted: Callable[[int, int], Sequence[AbortedTxn]],
        unpacker: Unpacker,
        buffer: ReadBuffer,
        before_chunk: Callable[[int, int], None],
    ) -> None:
        self.counts = CopyCounts()
        self._rules = rules
        self._survivors = survivors
        self._producers = producers
        self._collect_aborted = collect_aborted
        self._unpacker = unpacker
        self._buffer = buffer
        self._before_chunk = before_chunk
        self._transactions = CleanedTransactions()
        self._writer = RetainedWriter(rules.new_horizon_ms, self.counts)
        self._verdicts: Flags = np.zeros(0, np.uint8)

    def recopy(self, group: Sequence[Segment], target: CleanedSegment) -> list[AbortedTxn]:
        """
        Write what stays of a group's segments to `target`, which the caller finishes or discards.

        Returns:
            The transaction index of the new segment: aborts whose markers stay (R-533).
        Raises:
            CorruptBatchError, CorruptIndexError: a source is damaged.
            UncleanableError: Kafka's cleaner could not write it either.
        """
        self._transactions.retained_aborts = []
        for position, segment in enumerate(group):
            is_last = position == len(group) - 1
            upper = segment.next_offset() if is_last else group[position + 1].base_offset
            self._transactions.add_aborted(self._collect_aborted(segment.base_offset, upper))
            self._recopy_segment(segment, target)
        return self._transactions.retained_aborts

    def _recopy_segment(self, segment: Segment, target: CleanedSegment) -> None:
        deletes_stay = segment.mtime_ms > self._rules.legacy_horizon_ms
        index_check = OffsetIndexCheck(segment.offset_index(), segment.index_path, segment.base_offset)
        for chunk in segment.chunks(buffer=self._buffer, check_order_from=segment.base_offset):
            rows = chunk.batches
            index_check.add(rows["position"], rows["base_offset"], rows["last_offset"])
            before = self.counts.bytes_written
            self._before_chunk(chunk.length, 0)
            self._recopy_chunk(segment, chunk, deletes_stay, target)
            self._before_chunk(0, self.counts.bytes_written - before)
        index_check.finish()

    def _recopy_chunk(self, segment: Segment, chunk: Chunk, legacy_deletes_stay: bool, target: CleanedSegment) -> None:
        path = segment.log_path
        fates = decide_fates(
            chunk.batches,
            self._transactions.discardable(path, chunk),
            self._producers,
            first_uncleanable_offset=self._rules.first_uncleanable_offset,
            now_ms=self._rules.now_ms,
            legacy_deletes_stay=legacy_deletes_stay,
        )
        for block in self._unpacker.blocks(path, chunk, unwanted=fates.unread != 0):
            mine = fates.part(block.first, len(block.batches))
            records = block.record_count(mine.unread)
            if len(self._verdicts) < records:
                self._verdicts = np.zeros(records, np.uint8)
            self._survivors.judge(path, block, mine, self._verdicts)
            self._writer.write(path, block, mine, self._verdicts, target.append)
