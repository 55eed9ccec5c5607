"""The retention of a chunk's batches (R-540..R-545), in the order of the rules: the first that fits decides."""

from __future__ import annotations

from numba import int64

from cleaner.kernels.batch_header import CONTROL_FLAG, DELETE_HORIZON_FLAG
from cleaner.kernels.compile import jit
from cleaner.kernels.producer_table import NO_ROW, WORD_1, WORD_2, find_slot
from cleaner.kernels.retain import BATCH_DROP, BATCH_KEEP_EVEN_EMPTY, BATCH_KEEP_IF_NOT_EMPTY

NO_OFFSET = -1
"""The last data offset of a producer without data."""

LAST_OFFSET, EPOCH = WORD_1, WORD_2
"""Columns of the table of active producers."""


@jit
def decide_retention(
    batches,
    can_discard,
    producers,
    slots,
    key,
    kept_end_offset,
    removal_ms,
    retention,
    discarded,
    unread,
    is_empty_marker,
):
    """
    Decide what happens to batches before their records are read.

    Args:
        batches: rows of BATCH_DTYPE.
        can_discard: uint8 a batch, from `discard_batches`.
        producers, slots, key: a table of the active producers, with LAST_OFFSET (or NO_OFFSET) and EPOCH.
        kept_end_offset: the batch that ends right below it stays even if empty (R-541 b), so that the log
            end offset can be read from the files (R-651).
        removal_ms: the time with which horizons are compared.
        retention: int8 a batch to fill: BATCH_... (R-541).
        discarded: uint8 a batch to fill: 1 drops all its records (R-540).
        unread: uint8 a batch to fill: 1 for batches that are dropped whole.
        is_empty_marker: uint8 a batch to fill: 1 for a marker without any data left (R-542).
    """
    for b in range(batches.size):
        row = batches[b]
        is_control = row.attributes & CONTROL_FLAG != 0
        may_go = can_discard[b] != 0
        is_empty = may_go and is_control and row.magic == 2
        goes = may_go
        if is_empty:
            goes = row.attributes & DELETE_HORIZON_FLAG != 0 and row.base_timestamp <= removal_ms
        stays = row.last_offset == kept_end_offset - 1
        if row.producer_id > -1:  # a batch from which its producer's state is derived stays too
            producer = int64(slots[find_slot(producers, slots, row.producer_id, key[0])]) - 1
            if producer != NO_ROW:
                if producers[producer, LAST_OFFSET] != NO_OFFSET:
                    stays |= producers[producer, LAST_OFFSET] == row.last_offset
                else:
                    stays |= is_control and producers[producer, EPOCH] == row.producer_epoch
        retention[b] = BATCH_KEEP_EVEN_EMPTY if stays else BATCH_DROP if goes else BATCH_KEEP_IF_NOT_EMPTY
        discarded[b] = goes
        unread[b] = goes and not stays
        is_empty_marker[b] = is_empty
