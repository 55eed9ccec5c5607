"""
Verdicts on the records of a block: which of them are retained.

`cleaning/recopy/group.py` calls the `Survivors` interface. One implementation uses an offset map, the other bitmaps
that a Spark job has made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cleaner.base.key_views import KeyView
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import require_good
from cleaner.format.records import Block
from cleaner.format.viewed_block import viewed_block
from cleaner.kernels import offset_bits as bits_kernel
from cleaner.kernels import offset_map as kernel
from cleaner.kernels import retain


class Survivors(Protocol):
    """Gives verdicts on records."""

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """
        Fill `verdicts`, one for each record of the batches to read, with the values of `kernels/offset_map.py`.

        Raises:
            CorruptBatchError: a damaged record.
        """


@dataclass(frozen=True)
class BlockRetention:
    """
    Decisions on a block's batches before their records are read.

    Attributes:
        batches: int8 for each batch, the BATCH_ numbers of `kernels/retain.py` (R-541).
        discarded: uint8 for each batch; 1 drops all its records (R-540).
        unread: uint8 for each batch; 1 removes the whole batch.
        is_empty_marker: uint8 for each batch; 1 for a marker none of whose data is left (R-542).
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay (R-551).
        unmapped: uint8 for each batch; 1 if the first pass left out its keys because of its state of transactions.
            None if the survivors do not need it.
    """

    batches: npt.NDArray[np.int8]
    discarded: Flags
    unread: Flags
    is_empty_marker: Flags
    legacy_deletes_stay: bool
    unmapped: Flags | None = None

    @staticmethod
    def undecided(count: int, legacy_deletes_stay: bool) -> BlockRetention:
        """Return the decisions for `count` batches that depend only on their records."""
        no_flags: Flags = np.zeros(count, np.uint8)
        return BlockRetention(np.zeros(count, np.int8), no_flags, no_flags, no_flags, legacy_deletes_stay)

    def carrying_over(self, damaged: Flags) -> BlockRetention:
        """Return the same, except that damaged batches are copied unchanged, and not read."""
        batches = self.batches.copy()
        batches[damaged != 0] = retain.BATCH_COPY
        return replace(self, batches=batches, unread=self.unread | damaged)

    def part(self, first: int, count: int) -> BlockRetention:
        """Return the same for `count` batches from `first` on."""
        cut = slice(first, first + count)
        return BlockRetention(
            self.batches[cut],
            self.discarded[cut],
            self.unread[cut],
            self.is_empty_marker[cut],
            self.legacy_deletes_stay,
            None if self.unmapped is None else self.unmapped[cut],
        )


class MapSurvivors:
    """
    Verdicts from an offset map: the last record of every key stays (R-550, R-551). One instance for each thread.

    Args:
        offset_map: built over the dirty section.
        removal_ms: a tombstone of magic 2 whose horizon is at or below it is removed.
        view: the one the map was built with.
    """

    def __init__(self, offset_map: OffsetMap, removal_ms: int, view: KeyView | None = None) -> None:
        self._view = view
        self._map = offset_map
        self._removal_ms = removal_ms
        self._scratch = np.zeros(kernel.SCRATCH_WORDS, np.uint64)
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Fill `verdicts`; see `Survivors`."""
        if self._view is not None:
            block = viewed_block(path, block, retention.unread, self._view)
        status = kernel.judge_records(
            block.data,
            block.unpacked,
            block.batches,
            retention.unread,
            retention.discarded,
            self._map.latest_offset,
            self._removal_ms,
            retention.legacy_deletes_stay,
            self._map.table,
            self._map.slots,
            self._map.rule.code,
            self._map.keys,
            self._map.latest,
            self._map.latest_base,
            self._scratch,
            verdicts,
            self._state,
        )
        require_good(status, path, block, self._state)


class BitmapSurvivors:
    """
    Verdicts from the bits of offsets of one group (R-550, R-551). One instance for each thread.

    Args:
        bits: for a record whose key counted in the dirty section: whether it is the last one of its key; for all
            others: whether a later one of its key exists.
        first_dirty_offset, latest_offset: first and last offset of the dirty section covered.
        removal_ms: as for `MapSurvivors`.
    """

    def __init__(self, bits: OffsetBits, first_dirty_offset: int, latest_offset: int, removal_ms: int) -> None:
        self._bits = bits
        self._first_dirty_offset = first_dirty_offset
        self._latest_offset = latest_offset
        self._removal_ms = removal_ms
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Fill `verdicts`; see `Survivors`."""
        unmapped = np.zeros(len(block.batches), np.uint8) if retention.unmapped is None else retention.unmapped
        status = bits_kernel.judge_by_bits(
            block.data,
            block.unpacked,
            block.batches,
            retention.unread,
            retention.discarded,
            unmapped,
            self._first_dirty_offset,
            self._latest_offset,
            self._removal_ms,
            retention.legacy_deletes_stay,
            self._bits.directory,
            self._bits.blocks,
            self._bits.base_offset,
            verdicts,
            self._state,
        )
        require_good(status, path, block, self._state)
