"""
A table from producer ids to a few words each, so that kernels can look one up for every batch.

Rows are in the order in which producers were met; an open-addressing array of slots has row numbers plus 1 (0 is free).
Slots take few bytes, and producers that were met together are close together: both stay in the caches even with very
many producers. The number of slots is a power of two, and at least one of them is free.

Producer ids are mixed with a secret word, so that a producer cannot choose ids that crowd one place.
"""

from __future__ import annotations

from numba import int32, int64, uint64

from cleaner.kernels.compile import jit

# Columns of a row, all 64 bits wide; the last three are the user's.
ID, STATE, WORD_1, WORD_2, WORD_3 = range(5)
COLUMNS = 5

NO_ROW = -1  # the value of a free slot, minus 1


@jit
def find_slot(rows, slots, producer_id, key_word):
    """Return the slot of a producer, or the free one where it belongs."""
    word = uint64(producer_id) ^ key_word
    word = (word ^ (word >> uint64(33))) * uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> uint64(33))) * uint64(0xC4CEB9FE1A85EC53)
    word ^= word >> uint64(33)
    last = slots.size - 1
    slot = int64(word & uint64(last))
    while slots[slot] != 0 and rows[slots[slot] - 1, ID] != producer_id:
        slot = (slot + 1) & last
    return slot


@jit
def take_row(rows, slots, slot, producer_id, row):
    """Give a free slot's producer the next row, all 0. Returns the row after it."""
    slots[slot] = int32(row + 1)
    rows[row, ID] = producer_id
    for column in range(1, COLUMNS):
        rows[row, column] = 0
    return row + 1


@jit
def index_rows(rows, count, slots, key):
    """Fill empty slots with the first `count` rows; of two rows for one producer the last counts."""
    for row in range(count):
        slots[find_slot(rows, slots, rows[row, ID], key[0])] = int32(row + 1)
