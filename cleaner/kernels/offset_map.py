"""
The offset map's hot loops: put the keys of the dirty section, and ask of each record whether its key comes again.

An entry is three words of a flat uint64 array: SipHash, MurmurHash, offset + 1 (0 marks an empty slot). The first slot
to try is the SipHash scaled to the number of slots; the next ones follow in line. Keys are hashed in blocks and their
slots prefetched, so that the memory's answer to one key is on its way while the next are hashed.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.digest import murmur3_low, siphash13
from cleaner.kernels.memory import multiply_high, prefetch
from cleaner.kernels.records import (
    RECORD_BAD_OFFSET,
    RECORD_GOOD,
    RECORD_LEFT_OVER,
    RECORD_MISSING,
    read_record,
)

WORDS = 3  # of 8 bytes: a 16-byte digest and an offset (24 bytes an entry, R-520)
BLOCK = 64  # keys between hashing and probing: enough to hide the memory, few enough for the first-level cache
SCRATCH_WORDS = 4 * BLOCK

# What `index_records` returns.
INDEX_GOOD = 0
INDEX_FULL = 1
INDEX_BAD_RECORD = 2

# Verdicts on a record: bit 0 says it stays.
KEEP = 1
KEEP_TOMBSTONE = 3
SUPERSEDED = 0
KEYLESS = 4
EXPIRED_TOMBSTONE = 8
DISCARDED = 16

# Cells of the state array that `index_records` reads and advances.
(
    STATE_ENTRIES,
    STATE_LATEST_OFFSET,
    STATE_MESSAGES,
    STATE_KEYLESS,
    STATE_BATCH,
    STATE_STATUS,
    STATE_RECORD_POSITION,
) = range(7)
STATE_CELLS = 7


@jit
def _first_slot(hash_word, slots):
    return int64(multiply_high(hash_word, uint64(slots)))


@jit
def _put_block(table, slots, block, count, limit, state):
    """Put `count` hashed keys in order. Returns how many went in: fewer than `count` when the map is full."""
    for i in range(count):
        if state[STATE_ENTRIES] >= limit:
            return i
        sip, murmur, marked = block[WORDS * i], block[WORDS * i + 1], block[WORDS * i + 2]
        slot = _first_slot(sip, slots)
        while True:
            at = WORDS * slot
            if table[at + 2] == uint64(0):
                table[at] = sip
                table[at + 1] = murmur
                table[at + 2] = marked
                state[STATE_ENTRIES] += 1
                break
            if table[at] == sip and table[at + 1] == murmur:
                table[at + 2] = marked
                break
            slot += 1
            if slot == slots:
                slot = int64(0)
    return count


@jit
def index_records(
    data, unpacked, batches, skipped, first_dirty_offset, table, slots, limit, keys, block_size, scratch, state
):
    """
    Put the keys of some batches into the map (R-511).

    Args:
        data, unpacked: uint8 arrays that hold the batches' records (`row.unpacked` tells which).
        batches: rows of BATCH_DTYPE.
        skipped: uint8 a batch; 1 for control and aborted batches, which are counted (R-718) but not indexed.
        table, slots: the map; `slots` is above `limit`, and above the entries plus these batches' records.
        limit: most entries the map may have (R-512).
        keys: two words, the SipHash key of this round.
        block_size: BLOCK, or 1 when these records could fill the map: then every record is put before the next is
            read, so that the map ends exactly where Kafka's would.
        scratch: SCRATCH_WORDS words.
        state: int64 cells STATE_..., advanced; STATE_BATCH says at which batch the call ended.
    Returns:
        INDEX_GOOD, INDEX_FULL at a keyed record for which there is no room, or INDEX_BAD_RECORD with STATE_STATUS.
    """
    pending = 0
    for b in range(batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        if skipped[b]:
            state[STATE_MESSAGES] += int64(1) if row.attributes & 0x20 else row.count
        else:
            body = unpacked if row.unpacked else data
            at, end = row.body_start, row.body_end
            previous_delta = int64(-1)
            for _ in range(row.count):
                state[STATE_RECORD_POSITION] = at - row.body_start
                if at >= end:
                    state[STATE_STATUS] = RECORD_MISSING
                    return INDEX_BAD_RECORD
                status, after, _, delta, _, key_start, key_size, _, _ = read_record(body, at, end)
                if status == RECORD_GOOD and (delta <= previous_delta or row.base_offset + delta > row.last_offset):
                    status = RECORD_BAD_OFFSET
                if status != RECORD_GOOD:
                    state[STATE_STATUS] = status
                    return INDEX_BAD_RECORD
                previous_delta = delta
                offset = row.base_offset + delta
                is_dirty = offset >= first_dirty_offset
                if is_dirty and key_size < 0:
                    state[STATE_KEYLESS] += 1
                elif is_dirty:
                    sip = siphash13(body, key_start, key_size, keys[0], keys[1])
                    scratch[WORDS * pending] = sip
                    scratch[WORDS * pending + 1] = murmur3_low(body, key_start, key_size)
                    scratch[WORDS * pending + 2] = uint64(offset + 1)
                    prefetch(table, WORDS * _first_slot(sip, slots))
                    pending += 1
                    if pending == block_size:
                        if _put_block(table, slots, scratch, pending, limit, state) < pending:
                            return INDEX_FULL
                        pending = 0
                        if block_size == 1:
                            state[STATE_LATEST_OFFSET] = offset
                state[STATE_MESSAGES] += 1
                at = after
            if at != end and row.count > 0:
                state[STATE_STATUS] = RECORD_LEFT_OVER
                state[STATE_RECORD_POSITION] = at - row.body_start
                return INDEX_BAD_RECORD
        if row.last_offset >= first_dirty_offset:
            state[STATE_LATEST_OFFSET] = row.last_offset
    # With blocks the map cannot fill up here, so what is pending goes in whole.
    _put_block(table, slots, scratch, pending, limit, state)
    return INDEX_GOOD


@jit
def _judge_block(table, slots, block, count, verdicts):
    """Take `KEEP` from records whose key the map knows at a higher offset."""
    for i in range(count):
        sip, murmur, marked = block[WORDS * i], block[WORDS * i + 1], block[WORDS * i + 2]
        slot = _first_slot(sip, slots)
        while True:
            at = WORDS * slot
            found = table[at + 2]
            if found == uint64(0):
                break
            if table[at] == sip and table[at + 1] == murmur:
                if found > marked:
                    verdicts[int64(block[WORDS * BLOCK + i])] = SUPERSEDED
                break
            slot += 1
            if slot == slots:
                slot = int64(0)


@jit
def judge_records(
    data,
    unpacked,
    batches,
    unread,
    discarded,
    latest_offset,
    now_ms,
    legacy_deletes_stay,
    table,
    slots,
    keys,
    scratch,
    verdicts,
    state,
):
    """
    Give a verdict on every record of some batches (R-550, R-551), and check each record on the way.

    Args:
        data, unpacked, batches, table, slots, keys, scratch: as for `index_records`.
        unread: uint8 a batch; 1 leaves its records alone (the batch goes whole, R-541 c).
        discarded: uint8 a batch; 1 drops all its records (R-550, first case).
        latest_offset: last offset the map covers; records above it stay.
        now_ms: the round's time; a tombstone stays while it is below its batch's delete horizon.
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay (R-551).
        verdicts: uint8 a record, counting through all batches but the unread ones, whose counts may lie.
        state: STATE_BATCH, STATE_STATUS and STATE_RECORD_POSITION tell of a bad record.
    Returns:
        INDEX_GOOD or INDEX_BAD_RECORD.
    """
    pending = 0
    ordinal = int64(0)
    for b in range(batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        if unread[b]:
            continue
        body = unpacked if row.unpacked else data
        is_control = row.attributes & 0x20 != 0
        if row.magic < 2:
            deletes_stay = legacy_deletes_stay
        else:
            deletes_stay = row.attributes & 0x40 == 0 or now_ms < row.base_timestamp
        at, end = row.body_start, row.body_end
        previous_delta = int64(-1)
        for _ in range(row.count):
            state[STATE_RECORD_POSITION] = at - row.body_start
            if at >= end:
                state[STATE_STATUS] = RECORD_MISSING
                return INDEX_BAD_RECORD
            status, after, _, delta, _, key_start, key_size, value_size, _ = read_record(body, at, end)
            if status == RECORD_GOOD and (delta <= previous_delta or row.base_offset + delta > row.last_offset):
                status = RECORD_BAD_OFFSET
            if status != RECORD_GOOD:
                state[STATE_STATUS] = status
                return INDEX_BAD_RECORD
            previous_delta = delta
            offset = row.base_offset + delta
            verdict = KEEP if value_size >= 0 else KEEP_TOMBSTONE
            if discarded[b]:
                verdict = DISCARDED
            elif not is_control and offset <= latest_offset:
                if key_size < 0:
                    verdict = KEYLESS
                else:
                    if value_size < 0 and not deletes_stay:
                        verdict = EXPIRED_TOMBSTONE
                    sip = siphash13(body, key_start, key_size, keys[0], keys[1])
                    scratch[WORDS * pending] = sip
                    scratch[WORDS * pending + 1] = murmur3_low(body, key_start, key_size)
                    scratch[WORDS * pending + 2] = uint64(offset + 1)
                    scratch[WORDS * BLOCK + pending] = uint64(ordinal)
                    prefetch(table, WORDS * _first_slot(sip, slots))
                    pending += 1
            verdicts[ordinal] = verdict
            ordinal += 1
            if pending == BLOCK:
                _judge_block(table, slots, scratch, pending, verdicts)
                pending = 0
            at = after
        if at != end and row.count > 0:
            state[STATE_STATUS] = RECORD_LEFT_OVER
            state[STATE_RECORD_POSITION] = at - row.body_start
            return INDEX_BAD_RECORD
    _judge_block(table, slots, scratch, pending, verdicts)
    return INDEX_GOOD


@jit
def move_entries(source, source_slots, target, target_slots, first, last):
    """Put the entries in slots [first, last) of one table into a larger one, whose keys they do not repeat."""
    for slot in range(first, last):
        at = WORDS * slot
        if source[at + 2] != uint64(0):
            place = _first_slot(source[at], target_slots)
            while target[WORDS * place + 2] != uint64(0):
                place += 1
                if place == target_slots:
                    place = int64(0)
            for word in range(WORDS):
                target[WORDS * place + word] = source[at + word]


@jit
def find_offset(data, start, size, table, slots, keys):
    """Return the offset the map holds for the key `data[start:start + size]`, -1 when there is none."""
    sip = siphash13(data, start, size, keys[0], keys[1])
    murmur = murmur3_low(data, start, size)
    slot = _first_slot(sip, slots)
    while table[WORDS * slot + 2] != uint64(0):
        if table[WORDS * slot] == sip and table[WORDS * slot + 1] == murmur:
            return int64(table[WORDS * slot + 2]) - 1
        slot += 1
        if slot == slots:
            slot = int64(0)
    return int64(-1)
