"""Index entries of batches appended to a segment (R-311..R-313, R-320..R-323); called by `IndexBuilder` only."""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import store_u32_be, store_u64_be

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

INDEX_DONE = 0
INDEX_OFFSET_FULL = 1
INDEX_TIME_FULL = 2
INDEX_OVERFLOW = 3
INDEX_NOT_ASCENDING = 4

# Cells of the state array: the state of a segment being written, kept between calls. For both indexes: all bytes,
# and how many of them are no longer in the arrays; the last entries, -1 without one.
(
    STATE_POSITION,
    STATE_SINCE_ENTRY,
    STATE_MAX_TIMESTAMP,
    STATE_MAX_TIMESTAMP_OFFSET,
    STATE_OFFSET_BYTES,
    STATE_TIME_BYTES,
    STATE_OFFSET_BYTES_TAKEN,
    STATE_TIME_BYTES_TAKEN,
    STATE_LAST_OFFSET,
    STATE_LAST_TIME,
    STATE_LAST_TIME_OFFSET,
) = range(11)
STATE_CELLS = 11

_MAX_INT = 2**31 - 1


@jit
def append_time_entry(time_index, base_offset, state):
    """Write a time index entry if the largest timestamp is above the last entry's (R-313). Returns an INDEX_ status."""
    timestamp = state[STATE_MAX_TIMESTAMP]
    if timestamp > state[STATE_LAST_TIME]:
        relative = state[STATE_MAX_TIMESTAMP_OFFSET] - base_offset
        if relative < 0 or relative > _MAX_INT:
            return INDEX_OVERFLOW
        if relative < state[STATE_LAST_TIME_OFFSET]:
            return INDEX_NOT_ASCENDING
        at = state[STATE_TIME_BYTES] - state[STATE_TIME_BYTES_TAKEN]
        store_u64_be(time_index, at, uint64(timestamp))
        store_u32_be(time_index, at + 8, uint64(relative))
        state[STATE_TIME_BYTES] += TIME_ENTRY_BYTES
        state[STATE_LAST_TIME] = timestamp
        state[STATE_LAST_TIME_OFFSET] = relative
    return INDEX_DONE


@jit
def index_batches(batches, base_offset, interval_bytes, max_bytes, offset_index, time_index, state):
    """
    Write the index entries for appended batches (R-320).

    Args:
        batches: rows with `size`, `last_offset` and `max_timestamp`.
        base_offset: the segment's.
        interval_bytes: `index.interval.bytes`.
        max_bytes: `segment.index.bytes`, the room of either index (R-310, R-311).
        offset_index, time_index: uint8 arrays that begin with the first byte not taken, with room for one more entry
            a batch.
        state: int64 cells STATE_....
    Returns:
        INDEX_DONE, or why it stopped; the batch concerned is then not indexed.
    """
    max_offset_bytes = max_bytes // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
    max_time_bytes = (max_bytes // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES
    for b in range(batches.size):
        batch = batches[b]
        if batch.max_timestamp > state[STATE_MAX_TIMESTAMP]:
            state[STATE_MAX_TIMESTAMP] = batch.max_timestamp
            state[STATE_MAX_TIMESTAMP_OFFSET] = batch.last_offset
        if state[STATE_SINCE_ENTRY] > interval_bytes:
            relative = batch.last_offset - base_offset
            if relative < 0 or relative > _MAX_INT:
                return INDEX_OVERFLOW
            if state[STATE_OFFSET_BYTES] >= max_offset_bytes:
                return INDEX_OFFSET_FULL
            if relative <= state[STATE_LAST_OFFSET]:
                return INDEX_NOT_ASCENDING
            at = state[STATE_OFFSET_BYTES] - state[STATE_OFFSET_BYTES_TAKEN]
            store_u32_be(offset_index, at, uint64(relative))
            store_u32_be(offset_index, at + 4, uint64(state[STATE_POSITION]))
            state[STATE_OFFSET_BYTES] += OFFSET_ENTRY_BYTES
            state[STATE_LAST_OFFSET] = relative
            # As in Kafka, a full time index is an error even if there is no entry to write.
            if state[STATE_TIME_BYTES] >= max_time_bytes:
                return INDEX_TIME_FULL
            status = append_time_entry(time_index, base_offset, state)
            if status != INDEX_DONE:
                return status
            state[STATE_SINCE_ENTRY] = int64(0)
        state[STATE_POSITION] += batch.size
        state[STATE_SINCE_ENTRY] += batch.size
    return INDEX_DONE


FOLLOW_NEXT, FOLLOW_LAST_OFFSET = range(2)


@jit
def follow_entries(positions, offsets, batches, state):
    """
    Check offset index entries against the next batches of their log (R-333).

    Args:
        positions, offsets: int64, all entries of the index; the offsets absolute.
        batches: rows of BATCH_DTYPE, in file order.
        state: int64 cells FOLLOW_...: the next entry to check, and the last offset of the batches so far.
    Returns:
        Whether all entries that point into the batches are good; if not, the state is unchanged.
    """
    entry, last_offset = state[FOLLOW_NEXT], state[FOLLOW_LAST_OFFSET]
    for b in range(batches.size):
        row = batches[b]
        if entry < positions.size and positions[entry] <= row.position:
            offset = offsets[entry]
            if positions[entry] != row.position or row.base_offset > offset or last_offset >= offset:
                return False
            entry += 1
        last_offset = row.last_offset
    state[FOLLOW_NEXT], state[FOLLOW_LAST_OFFSET] = entry, last_offset
    return True
