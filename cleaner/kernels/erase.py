"""
Decides which records are erased: by the digests of their keys, by prefixes of keys, or by offsets.

The keys are a table of 16-byte digests (`kernels/digest.py`) with open addressing, so that millions fit into memory. A
batch of which nothing is erased is copied as it is, whatever its format: its verdicts are not written at all.
"""

from __future__ import annotations

from numba import int32, int64, uint64

from cleaner.kernels.batch_header import COMPRESSION_MASK, LEGACY_KEY_AT, LEGACY_TIMESTAMP_AT
from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.digest import digest_key
from cleaner.kernels.memory import load_u8, load_u32_be, load_u64_be
from cleaner.kernels.offset_map import (
    DIGEST_BAD_RECORD,
    DIGEST_GOOD,
    KEEP,
    STATE_BATCH,
    STATE_RECORD_POSITION,
    STATE_STATUS,
    SUPERSEDED,
)
from cleaner.kernels.offset_map import STATE_CELLS as _SHARED_CELLS
from cleaner.kernels.records import RECORD_GOOD, RECORD_LEFT_OVER, read_next_record
from cleaner.kernels.retain import BATCH_COPY, BATCH_KEEP_END

DIGEST_WORDS = 2
EMPTY = -1  # a slot without a key

ERASED = SUPERSEDED  # the verdict: like a record that has no place in the output

# Cells of the state array besides those of `judge_records`: batches with something to erase, and such records.
STATE_TOUCHED = _SHARED_CELLS
STATE_ERASED = _SHARED_CELLS + 1
STATE_CELLS = _SHARED_CELLS + 2

_LEGACY_KEY_AT_0, _LEGACY_KEY_AT_1 = LEGACY_KEY_AT


@jit
def digest_keys(data, starts, sizes, secret, digests):
    """
    Digest some keys.

    Args:
        data: uint8 array with the keys, padded.
        starts, sizes: int64, where they are.
        secret: SECRET_WORDS words.
        digests: uint64, DIGEST_WORDS a key, to fill.
    """
    for i in range(starts.size):
        digests[DIGEST_WORDS * i], digests[DIGEST_WORDS * i + 1] = digest_key(data, starts[i], sizes[i], secret)


@jit
def fill_slots(digests, slots):
    """
    Make the table; returns how many different keys there are.

    Args:
        digests: uint64, DIGEST_WORDS a key.
        slots: int32, a power of two of them and more than there are keys, all EMPTY.
    """
    mask = uint64(slots.size - 1)
    different = 0
    for number in range(digests.size // DIGEST_WORDS):
        first, second = digests[DIGEST_WORDS * number], digests[DIGEST_WORDS * number + 1]
        at = first & mask
        is_new = True
        while slots[at] >= 0:
            other = DIGEST_WORDS * int64(slots[at])
            if digests[other] == first and digests[other + 1] == second:
                is_new = False
                break
            at = (at + uint64(1)) & mask
        if is_new:
            slots[at] = number
            different += 1
    return different


@inlined_jit
def _is_in_table(first, second, digests, slots):
    mask = uint64(slots.size - 1)
    at = first & mask
    while slots[at] >= 0:
        other = DIGEST_WORDS * int64(slots[at])
        if digests[other] == first and digests[other + 1] == second:
            return True
        at = (at + uint64(1)) & mask
    return False


@inlined_jit
def _begins_with(data, start, size, text, prefix_start, prefix_size):
    i = int64(0)
    while i < prefix_size <= size and load_u8(data, start + i) == load_u8(text, prefix_start + i):
        i += 1
    return i == prefix_size


@inlined_jit
def _is_wanted(data, start, size, secret, digests, slots, text, prefix_starts, prefix_sizes):
    """Tell whether a key is one of those to erase, or begins with a prefix."""
    if digests.size:
        first, second = digest_key(data, start, size, secret)
        if _is_in_table(first, second, digests, slots):
            return True
    for p in range(prefix_starts.size):
        if _begins_with(data, start, size, text, prefix_starts[p], prefix_sizes[p]):
            return True
    return False


@inlined_jit
def _wrapper_key(data, row):
    """Return start and size (-1: null) of a compressed legacy entry's own key, which readers ignore."""
    at = row.start + (_LEGACY_KEY_AT_0 if row.magic == 0 else _LEGACY_KEY_AT_1)
    size = int64(int32(load_u32_be(data, at)))
    if size > row.start + row.size - at - 4:
        return at, int64(-1)
    return at + 4, size


@inlined_jit
def _restore_header(data, row):
    """Undo what converting an entry of magic 0 or 1 has changed in its row: indexes go by what the file says."""
    row.last_offset = int64(load_u64_be(data, row.start))
    row.max_timestamp = int64(-1)
    if row.magic == 1:
        row.max_timestamp = int64(load_u64_be(data, row.start + LEGACY_TIMESTAMP_AT))


@jit
def judge_erased(
    data,
    unpacked,
    batches,
    unread,
    retention,
    first_offset,
    last_offset,
    secret,
    digests,
    slots,
    text,
    prefix_starts,
    prefix_sizes,
    verdicts,
    state,
):
    """
    Decide on every record of some batches, and check every record.

    Args:
        data, unpacked: uint8 arrays with the batches' records.
        batches: rows of BATCH_DTYPE.
        unread: uint8 a batch; 1 for those that are copied whatever their records are.
        retention: int8 a batch, BATCH_...; set to BATCH_COPY where nothing is erased.
        first_offset, last_offset: the records of these offsets are erased; none if the first one is higher.
        secret, digests, slots: the keys to erase, from `digest_keys` and `fill_slots`; none if `digests` is empty.
        text, prefix_starts, prefix_sizes: the beginnings of keys to erase.
        verdicts: uint8 a record, numbered through the batches with something to erase.
        state: STATE_BATCH, STATE_STATUS and STATE_RECORD_POSITION describe a bad record; STATE_TOUCHED and STATE_ERASED
            are advanced.
    Returns:
        DIGEST_GOOD or DIGEST_BAD_RECORD.
    """
    has_keys = digests.size > 0 or prefix_starts.size > 0
    ordinal = int64(0)
    for b in range(batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        if unread[b]:
            continue
        body = unpacked if row.unpacked else data
        at, end = row.body_start, row.body_end
        batch_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        previous_delta = int64(-1)
        erased = int64(0)
        for i in range(row.count):
            status, after, delta, key_start, key_size, _ = read_next_record(body, end, last_delta, at, previous_delta)
            if status != RECORD_GOOD:
                state[STATE_RECORD_POSITION] = at - row.body_start
                state[STATE_STATUS] = status
                return DIGEST_BAD_RECORD
            previous_delta = delta
            offset = batch_offset + delta
            is_erased = first_offset <= offset <= last_offset
            if has_keys and key_size >= 0:
                is_erased |= _is_wanted(
                    body, key_start, key_size, secret, digests, slots, text, prefix_starts, prefix_sizes
                )
            verdicts[ordinal + i] = ERASED if is_erased else KEEP
            erased += int64(is_erased)
            at = after
        if at != row.body_end and row.count > 0:
            state[STATE_STATUS] = RECORD_LEFT_OVER
            state[STATE_RECORD_POSITION] = at - row.body_start
            return DIGEST_BAD_RECORD
        is_touched = erased > 0
        if row.magic < 2:
            if has_keys and row.attributes & COMPRESSION_MASK:
                start, size = _wrapper_key(data, row)
                if size >= 0:
                    is_touched |= _is_wanted(
                        data, start, size, secret, digests, slots, text, prefix_starts, prefix_sizes
                    )
            if not is_touched:
                _restore_header(data, row)
            elif retention[b] == BATCH_KEEP_END:  # a compressed one of magic 0 may say more than its last record
                row.last_offset = max(row.last_offset, int64(load_u64_be(data, row.start)))
        if is_touched:
            ordinal += row.count
            state[STATE_TOUCHED] += 1
            state[STATE_ERASED] += erased
        else:
            retention[b] = BATCH_COPY
    return DIGEST_GOOD
