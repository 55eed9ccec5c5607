"""The fates of a chunk's batches, whole arrays at once (R-540..R-545); `policy/record_filter.py` has them singly."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cleaner.format.batch import CONTROL_FLAG, DELETE_HORIZON_FLAG, Batches
from cleaner.model import LastRecord
from cleaner.policy.record_filter import BatchFate
from cleaner.recopy.survivors import BlockFates, Flags

_NO_OFFSET = -1


class ActiveProducers:
    """
    The active producers' last records, to be looked up for many batches at once (R-545).

    Args:
        last_records: producer id to what is remembered of it.
    """

    def __init__(self, last_records: Mapping[int, LastRecord]) -> None:
        producers = sorted(last_records.items())
        self._ids = np.array([producer_id for producer_id, _ in producers], np.int64)
        offsets = [r.last_data_offset for _, r in producers]
        self._offsets = np.array([_NO_OFFSET if o is None else o for o in offsets], np.int64)
        self._epochs = np.array([r.producer_epoch for _, r in producers], np.int64)

    def last_of_producer(self, batches: Batches) -> npt.NDArray[np.bool_]:
        """Tell for each batch whether it is what its producer's state rests on."""
        if not len(self._ids):
            return np.zeros(len(batches), np.bool_)
        producer_ids = batches["producer_id"]
        place = np.minimum(np.searchsorted(self._ids, producer_ids), len(self._ids) - 1)
        is_active = (self._ids[place] == producer_ids) & (producer_ids > -1)
        offsets = self._offsets[place]
        is_control = batches["attributes"] & CONTROL_FLAG != 0
        by_offset = (offsets != _NO_OFFSET) & (batches["last_offset"] == offsets)
        by_epoch = (offsets == _NO_OFFSET) & is_control & (batches["producer_epoch"] == self._epochs[place])
        result: npt.NDArray[np.bool_] = is_active & (by_offset | by_epoch)
        return result


def decide_fates(
    batches: Batches,
    can_discard: Flags,
    producers: ActiveProducers,
    *,
    first_uncleanable_offset: int,
    now_ms: int,
    legacy_deletes_stay: bool,
) -> BlockFates:
    """
    Decide what the batches of a chunk may become before their records are read.

    Args:
        batches: rows of BATCH_DTYPE.
        can_discard: uint8 a batch, from `CleanedTransactions.discardable`.
        producers: the log's active producers.
        first_uncleanable_offset: the batch that ends right below it stays even if empty (R-541 b).
        now_ms: the round's time.
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay in this segment (R-551).
    """
    is_magic_2 = batches["magic"] == 2
    is_control = (batches["attributes"] & CONTROL_FLAG != 0) & is_magic_2
    can_go = can_discard != 0
    horizon_passed = (batches["attributes"] & DELETE_HORIZON_FLAG != 0) & (batches["base_timestamp"] <= now_ms)
    discards = can_go & (~is_control | horizon_passed)
    stays = producers.last_of_producer(batches) | (batches["last_offset"] == first_uncleanable_offset - 1)
    fates = np.where(stays, BatchFate.KEEP_EVEN_EMPTY, np.where(discards, BatchFate.DROP, BatchFate.KEEP_IF_NOT_EMPTY))
    return BlockFates(
        fates=fates.astype(np.int8),
        discarded=discards.astype(np.uint8),
        unread=(fates == BatchFate.DROP).astype(np.uint8),
        empties_marker=(can_go & is_control).astype(np.uint8),
        legacy_deletes_stay=legacy_deletes_stay,
    )
