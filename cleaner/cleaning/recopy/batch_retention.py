"""Decides on all batches of a chunk at once (R-540..R-545)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cleaner.base.model import LastRecord
from cleaner.cleaning.passes.producer_table import ProducerTable
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.format.batch import Batches
from cleaner.format.chunks import Flags
from cleaner.kernels import batch_retention as kernel
from cleaner.kernels import producer_table as table


class ActiveProducers:
    """
    The active producers' last records, for lookups of many batches at once (R-545).

    Args:
        last_records: rows of producer id, last data offset or -1, and epoch; or the same as a mapping.
    """

    def __init__(self, last_records: npt.NDArray[np.int64] | Mapping[int, LastRecord]) -> None:
        records = _rows(last_records) if isinstance(last_records, Mapping) else last_records
        rows = np.zeros((len(records), table.COLUMNS), np.int64)
        rows[:, [table.ID, kernel.LAST_OFFSET, kernel.EPOCH]] = records
        self.table = ProducerTable(rows)


def _rows(last_records: Mapping[int, LastRecord]) -> npt.NDArray[np.int64]:
    rows = [
        (producer_id, kernel.NO_OFFSET if last.last_data_offset is None else last.last_data_offset, last.producer_epoch)
        for producer_id, last in last_records.items()
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def decide_retention(
    batches: Batches,
    can_discard: Flags,
    producers: ActiveProducers,
    *,
    kept_end_offset: int,
    removal_ms: int,
    legacy_deletes_stay: bool,
) -> BlockRetention:
    """
    Decide the retention of a chunk's batches before their records are read.

    Args:
        batches: rows of BATCH_DTYPE.
        can_discard: uint8 a batch, from `CleanedTransactions.discardable`.
        producers: the log's active producers.
        kept_end_offset: the batch that ends right below it stays even if empty (R-541 b).
        removal_ms: the time with which horizons are compared.
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay in this segment (R-551).
    """
    count = len(batches)
    decided = BlockRetention(
        batches=np.empty(count, np.int8),
        discarded=np.empty(count, np.uint8),
        unread=np.empty(count, np.uint8),
        is_empty_marker=np.empty(count, np.uint8),
        legacy_deletes_stay=legacy_deletes_stay,
    )
    kernel.decide_retention(
        batches,
        can_discard,
        producers.table.rows,
        producers.table.slots,
        producers.table.key,
        kept_end_offset,
        removal_ms,
        decided.batches,
        decided.discarded,
        decided.unread,
        decided.is_empty_marker,
    )
    return decided
