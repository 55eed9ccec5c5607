"""
The first pass of a round: every key of the dirty section into the offset map (R-510..R-513).

On the way every batch of the dirty section is checked, so that nothing is swapped in a log that is damaged there. When
the map is full the rest of that segment is still checked: it will be recopied too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.engine.context import RoundContext
from cleaner.format.batch import CONTROL_FLAG, Chunk
from cleaner.format.records import Block, Unpacker, bad_record
from cleaner.kernels import offset_map as kernel
from cleaner.offset_map import OffsetMap
from cleaner.policy.cleanable import Cleanable
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
        keyless_messages: records without a key in the range; the second pass removes them.
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
        unpacker: memory that is used again for every chunk.
        context: the round's surroundings; its limits may end the map early.
    """

    def __init__(
        self, log: Log, cleanable: Cleanable, offset_map: OffsetMap, unpacker: Unpacker, context: RoundContext
    ) -> None:
        self._log = log
        self._cleanable = cleanable
        self._map = offset_map
        self._unpacker = unpacker
        self._context = context
        self._bytes_read = 0
        self._began_ns = context.clock.monotonic_ns()

    def build(self) -> BuiltMap:
        """
        Read the dirty section.

        Raises:
            CorruptBatchError, CorruptIndexError: damage; nothing on disk has been changed.
            CleaningAborted: asked to stop.
        """
        first_dirty, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        self._map.clear()
        segments = self._log.segments_between(first_dirty, end)
        transactions = CleanedTransactions()
        transactions.add_aborted(self._log.collect_aborted(first_dirty, end))
        is_full = False
        messages_by_segment: dict[int, int] = {}
        for segment, next_base in zip(segments, _next_bases(segments, end), strict=True):
            messages_before = self._messages
            is_full = self._add_segment(segment, transactions)
            if is_full:
                break
            if segment.base_offset >= first_dirty:
                messages_by_segment[segment.base_offset] = self._messages - messages_before
            # Offsets may be missing between the last batch and the next segment.
            self._map.latest_offset = next_base - 1
        return BuiltMap(
            end_offset=self._map.latest_offset + 1,
            is_full=is_full and self._map.latest_offset + 1 < end,
            bytes_read=self._bytes_read,
            messages_read=self._messages,
            keyless_messages=int(self._map.state[kernel.STATE_KEYLESS]),
            messages_by_segment=messages_by_segment,
        )

    @property
    def _messages(self) -> int:
        return int(self._map.state[kernel.STATE_MESSAGES])

    def _add_segment(self, segment: Segment, transactions: CleanedTransactions) -> bool:
        """Add one segment's keys. Returns whether the map ended in it; the segment is then still read to its end."""
        is_full = False
        start = segment.position_at(self._cleanable.first_dirty_offset)
        index_check = OffsetIndexCheck(segment.offset_index(), segment.index_path, segment.base_offset)
        for chunk in segment.chunks(start=start, buffer=self._context.buffer, check_order_from=segment.base_offset):
            self._context.check_done()
            self._context.throttle(chunk.length)
            if start == 0:
                rows = chunk.batches
                index_check.add(rows["position"], rows["base_offset"], rows["last_offset"])
            is_full = is_full or self._add_chunk(segment.log_path, chunk, transactions)
            if not is_full:
                self._bytes_read += chunk.length
                self._context.progress("map", self._bytes_read, self._cleanable.cleanable_bytes)
                is_full = self._is_enough()
        if start == 0:
            index_check.finish()
        return is_full

    def _is_enough(self) -> bool:
        """Tell whether the caller's limits end the map here; it must at least have made some way."""
        if self._map.latest_offset < self._cleanable.first_dirty_offset:
            return False
        most_bytes, most_seconds = self._context.max_dirty_bytes, self._context.max_seconds
        if most_bytes is not None and self._bytes_read >= most_bytes:
            return True
        seconds = (self._context.clock.monotonic_ns() - self._began_ns) / 1e9
        return most_seconds is not None and seconds >= most_seconds

    def _add_chunk(self, path: Path, chunk: Chunk, transactions: CleanedTransactions) -> bool:
        is_control = (chunk.batches["attributes"] & CONTROL_FLAG != 0) & (chunk.batches["magic"] == 2)
        skipped = (transactions.discardable(path, chunk) != 0) | is_control
        for block in self._unpacker.blocks(path, chunk, unwanted=skipped):
            mine = skipped[block.first : block.first + len(block.batches)].view(np.uint8)
            if self._add_block(path, block, np.ascontiguousarray(mine)):
                return True
        return False

    def _add_block(self, path: Path, block: Block, skipped: np.ndarray) -> bool:
        records = block.record_count(skipped)
        self._map.reserve(records)
        state = self._map.state
        status = kernel.index_records(
            block.data,
            block.unpacked,
            block.batches,
            skipped,
            self._cleanable.first_dirty_offset,
            self._map.table,
            self._map.slots,
            self._map.key_limit,
            self._map.keys,
            1 if self._map.can_fill_up_with(records) else kernel.BLOCK,
            self._map.scratch,
            state,
        )
        if status == kernel.INDEX_BAD_RECORD:
            row = block.batches[int(state[kernel.STATE_BATCH])]
            raise bad_record(path, row, int(state[kernel.STATE_STATUS]), int(state[kernel.STATE_RECORD_POSITION]))
        return bool(status == kernel.INDEX_FULL)


def _next_bases(segments: Sequence[Segment], end: int) -> list[int]:
    return [*(segment.base_offset for segment in segments[1:]), end][: len(segments)]
