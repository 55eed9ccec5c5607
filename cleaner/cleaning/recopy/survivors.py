"""
Who stays: a verdict on every record of a block.

`cleaning/recopy/group.py` asks through the `Survivors` interface and does not care who answers: an offset map here,
bitmaps that a Spark job made elsewhere. `policy/record_filter.py` has the rules one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import require_good
from cleaner.format.records import Block
from cleaner.kernels import offset_bits as bits_kernel
from cleaner.kernels import offset_map as kernel
from cleaner.kernels import retain


class Survivors(Protocol):
    """Gives verdicts on records."""

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """
        Fill `verdicts`, one a record of the batches to be read, with the values of `kernels/offset_map.py`.

        Raises:
            CorruptBatchError: a damaged record.
        """


@dataclass(frozen=True)
class BlockRetention:
    """
    What is known of a block's batches before their records are read.

    Attributes:
        batches: int8 a batch, the numbers of `policy.BatchRetention` (R-541).
        discarded: uint8 a batch; 1 drops all its records (R-540).
        unread: uint8 a batch; 1 for batches that go whole.
        empties_marker: uint8 a batch; 1 for a marker none of whose data is left (R-542).
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay (R-551).
        unmapped: uint8 a batch; 1 for those whose records the first pass took no keys of, by what it knew of
            transactions. None where nobody asks.
    """

    batches: npt.NDArray[np.int8]
    discarded: Flags
    unread: Flags
    empties_marker: Flags
    legacy_deletes_stay: bool
    unmapped: Flags | None = None

    @staticmethod
    def undecided(count: int, legacy_deletes_stay: bool) -> BlockRetention:
        """Return the same of so many batches whose records alone decide."""
        no_flags: Flags = np.zeros(count, np.uint8)
        return BlockRetention(np.zeros(count, np.int8), no_flags, no_flags, no_flags, legacy_deletes_stay)

    def carrying_over(self, damaged: Flags) -> BlockRetention:
        """Return the same, but for damaged batches: they are copied as they are, and not read."""
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
            self.empties_marker[cut],
            self.legacy_deletes_stay,
            None if self.unmapped is None else self.unmapped[cut],
        )


class MapSurvivors:
    """
    Verdicts from an offset map: the last record of every key stays (R-550, R-551). One instance a thread.

    Args:
        offset_map: built over the dirty section.
        removal_ms: a tombstone of magic 2 whose horizon is at or below it goes.
    """

    def __init__(self, offset_map: OffsetMap, removal_ms: int) -> None:
        self._map = offset_map
        self._removal_ms = removal_ms
        self._scratch = np.zeros(kernel.SCRATCH_WORDS, np.uint64)
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)

    def judge(self, path: Path, block: Block, retention: BlockRetention, verdicts: Flags) -> None:
        """Fill `verdicts`; see `Survivors`."""
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
    Verdicts from the bits of offsets of one group (R-550, R-551). One instance a thread.

    Args:
        bits: of a record that was among the keys of the dirty section: whether it is the last one of its key; of all
            others: whether a later one of its key is there.
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
