"""
A bitmap of offsets: which records of a group stay, decided elsewhere (`cleaning/recopy/offset_bits.py`).

Offsets are counted from the group's first one. The bits are in blocks of BLOCK_BITS, and a directory has the number of
each block plus 1 (0: no bit of it is set): in a log with large gaps most blocks do not exist.
"""

from __future__ import annotations

from numba import int32, int64

from cleaner.kernels.batch_header import CONTROL_FLAG
from cleaner.kernels.compile import jit
from cleaner.kernels.offset_map import (
    DIGEST_BAD_RECORD,
    DIGEST_GOOD,
    STATE_BATCH,
    STATE_RECORD_POSITION,
    STATE_STATUS,
    SUPERSEDED,
    tombstones_stay,
    verdict_alone,
)
from cleaner.kernels.records import RECORD_GOOD, RECORD_LEFT_OVER, read_next_record

BLOCK_BITS = 1 << 12
BLOCK_BYTES = BLOCK_BITS // 8
_SHIFT = 12


@jit
def set_bits(directory, blocks, used, places):
    """
    Set bits.

    Args:
        directory: int32, a cell for each possible block.
        blocks: uint8, the existing blocks one after the other, and room for one more a place.
        used: how many blocks exist.
        places: int64, offsets counted from the group's first; all within the directory.
    Returns:
        How many blocks exist afterwards.
    """
    for i in range(places.size):
        place = places[i]
        block = place >> _SHIFT
        if directory[block] == 0:
            used += 1
            directory[block] = int32(used)
        at = (int64(directory[block]) - 1) * BLOCK_BYTES + ((place & (BLOCK_BITS - 1)) >> 3)
        blocks[at] |= 1 << (place & 7)
    return used


@jit
def _bit(directory, blocks, place):
    block = place >> _SHIFT
    if place < 0 or block >= directory.size or directory[block] == 0:
        return int64(0)
    at = (int64(directory[block]) - 1) * BLOCK_BYTES + ((place & (BLOCK_BITS - 1)) >> 3)
    return int64(blocks[at]) >> (place & 7) & 1


@jit
def judge_by_bits(
    data,
    unpacked,
    batches,
    unread,
    discarded,
    unmapped,
    first_dirty_offset,
    latest_offset,
    removal_ms,
    legacy_deletes_stay,
    directory,
    blocks,
    base_offset,
    verdicts,
    state,
):
    """
    Decide on every record of some batches, and check every record, as `judge_records` does.

    Args:
        data, unpacked, batches, unread, discarded, latest_offset, removal_ms, legacy_deletes_stay, verdicts, state: as
            for `judge_records`.
        unmapped: uint8 a batch; 1 for batches whose records were not among the keys of the dirty section.
        first_dirty_offset: where that section begins. A record among those keys stays if its bit is set, any other
            record if its bit is not set.
        directory, blocks, base_offset: the bits, and the offset of the first.
    Returns:
        DIGEST_GOOD or DIGEST_BAD_RECORD.
    """
    ordinal = int64(0)
    for b in range(batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        if unread[b]:
            continue
        body = unpacked if row.unpacked else data
        is_control = row.attributes & CONTROL_FLAG != 0
        deletes_stay = tombstones_stay(row.attributes, row.magic, row.base_timestamp, removal_ms, legacy_deletes_stay)
        is_discarded = discarded[b] != 0
        at, end = row.body_start, row.body_end
        batch_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        previous_delta = int64(-1)
        for _ in range(row.count):
            status, after, delta, _, key_size, value_size = read_next_record(body, end, last_delta, at, previous_delta)
            if status != RECORD_GOOD:
                state[STATE_RECORD_POSITION] = at - row.body_start
                state[STATE_STATUS] = status
                return DIGEST_BAD_RECORD
            previous_delta = delta
            offset = batch_offset + delta
            verdict, can_be_superseded = verdict_alone(
                is_discarded, is_control, offset <= latest_offset, key_size, value_size, deletes_stay
            )
            if can_be_superseded:
                was_mapped = int64(offset >= first_dirty_offset and unmapped[b] == 0)
                if _bit(directory, blocks, offset - base_offset) != was_mapped:
                    verdict = int64(SUPERSEDED)
            verdicts[ordinal] = verdict
            ordinal += 1
            at = after
        if at != row.body_end and row.count > 0:
            state[STATE_STATUS] = RECORD_LEFT_OVER
            state[STATE_RECORD_POSITION] = at - row.body_start
            return DIGEST_BAD_RECORD
    return DIGEST_GOOD
