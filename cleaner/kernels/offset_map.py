"""
The offset map's hot loops: put the keys of the dirty section, and check for each record whether its key occurs again.

An entry is three words of a flat uint64 array: the two words of a key's digest, offset + 1 (0 marks an empty slot). The
first slot to try is the first word scaled to the number of slots; then the following ones (linear probing). Slots are
prefetched some keys ahead, so that other keys are processed while memory is read.

Besides the table, a bitmap says for each offset of the dirty section whether its record is the one of its key that
stays, so far. It is updated as keys are put, at almost no cost, and saves the second pass from hashing and searching:
there, a record of the dirty section stays if its bit is set.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.batch_header import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG
from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.digest import digest_key
from cleaner.kernels.memory import multiply_high, prefetch
from cleaner.kernels.records import RECORD_GOOD, RECORD_LEFT_OVER, read_next_record

WORDS = 3  # of 8 bytes: a 16-byte digest and an offset (24 bytes an entry, R-520)
DIGEST_WORDS = 4  # the same, and the number of messages before
BLOCK = 64  # keys between hashing and probing: enough to hide memory latency, few enough for the first-level cache
SCRATCH_WORDS = 4 * BLOCK
_AHEAD = 40  # keys between prefetch and use

DIGEST_GOOD = 0
DIGEST_BAD_RECORD = 1

# Codes of survivor rules. By number: the map knows which record stays, `kernels/valued_map.py`.
LATEST_OFFSET = 0
GREATEST_NUMBER = 2

# Verdicts on a record: if bit 0 is set, it stays.
KEEP = 1
KEEP_TOMBSTONE = 3
SUPERSEDED = 0
KEYLESS = 4
EXPIRED_TOMBSTONE = 8
DISCARDED = 16

# Cells of the state array of `digest_records` and `judge_records`.
(
    STATE_KEYED,
    STATE_MESSAGES,
    STATE_KEYLESS,
    STATE_BATCH,
    STATE_STATUS,
    STATE_RECORD_POSITION,
    STATE_TOMBSTONES,
) = range(7)
STATE_CELLS = 7


@inlined_jit
def tombstones_stay(attributes, magic, base_timestamp, removal_ms, legacy_deletes_stay):
    """Tell whether the tombstones of a batch stay, unless a later record supersedes them (R-551)."""
    if magic < 2:
        return legacy_deletes_stay
    return attributes & DELETE_HORIZON_FLAG == 0 or removal_ms < base_timestamp


@inlined_jit
def verdict_alone(is_discarded, is_control, is_covered, key_size, value_size, deletes_stay):
    """
    Return the verdict on a record from its own properties, and whether a later record with its key can supersede it
    (R-550, R-551).

    Args:
        is_covered: its offset is at most the last one in the map.
    """
    if is_discarded:
        return int64(DISCARDED), False
    if is_control or not is_covered:
        return int64(KEEP) if value_size >= 0 else int64(KEEP_TOMBSTONE), False
    if key_size < 0:
        return int64(KEYLESS), False
    if value_size >= 0:
        return int64(KEEP), True
    return int64(KEEP_TOMBSTONE) if deletes_stay else int64(EXPIRED_TOMBSTONE), True


@inlined_jit
def _first_slot(hash_word, slots):
    """Return the first slot to try, unsigned: an index that may be negative would be checked at each use."""
    return multiply_high(hash_word, uint64(slots))


@jit
def digest_records(data, unpacked, batches, skipped, first_dirty_offset, secret, digests, state):
    """
    Check the records of some batches and list the digests of those that belong in the map (R-511).

    Args:
        data, unpacked: uint8 arrays with the batches' records (`row.unpacked` says which one).
        batches: rows of BATCH_DTYPE.
        skipped: uint8 a batch; 1 for control and aborted batches, which are counted (R-718) but not indexed.
        first_dirty_offset: records below it are left out.
        secret: SECRET_WORDS words.
        digests: uint64, room for DIGEST_WORDS a record from STATE_KEYED on: the two words of its key's digest,
            offset + 1, and STATE_MESSAGES before the record.
        state: int64 cells STATE_...; the first three and STATE_TOMBSTONES are advanced, STATE_BATCH is the batch with a
            bad record.
    Returns:
        DIGEST_GOOD, or DIGEST_BAD_RECORD with STATE_STATUS.
    """
    # Counted in local variables: for the compiler, `digests` and `state` may overlap.
    keyed, messages, keyless = state[STATE_KEYED], state[STATE_MESSAGES], state[STATE_KEYLESS]
    tombstones = state[STATE_TOMBSTONES]
    status = RECORD_GOOD
    at = int64(0)
    for b in range(batches.size):
        row = batches[b]
        if skipped[b]:
            messages += int64(1) if row.attributes & CONTROL_FLAG else row.count
            continue
        body = unpacked if row.unpacked else data
        at, end = row.body_start, row.body_end
        base_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        previous_delta = int64(-1)
        for _ in range(row.count):
            status, after, delta, key_start, key_size, value_size = read_next_record(
                body, end, last_delta, at, previous_delta
            )
            if status != RECORD_GOOD:
                break
            tombstones += int64(value_size < 0)
            previous_delta = delta
            offset = base_offset + delta
            is_dirty = offset >= first_dirty_offset
            if is_dirty and key_size < 0:
                keyless += 1
            elif is_dirty:
                place = DIGEST_WORDS * keyed
                digests[place], digests[place + 1] = digest_key(body, key_start, key_size, secret)
                digests[place + 2] = uint64(offset + 1)
                digests[place + 3] = uint64(messages)
                keyed += 1
            messages += 1
            at = after
        if status == RECORD_GOOD and at != row.body_end and row.count > 0:
            status = RECORD_LEFT_OVER
        if status != RECORD_GOOD:
            state[STATE_BATCH] = b
            state[STATE_RECORD_POSITION] = at - row.body_start
            break
    state[STATE_KEYED], state[STATE_MESSAGES], state[STATE_KEYLESS] = keyed, messages, keyless
    state[STATE_TOMBSTONES] = tombstones
    state[STATE_STATUS] = status
    if status != RECORD_GOOD:
        return DIGEST_BAD_RECORD
    return DIGEST_GOOD


@inlined_jit
def supersedes(rule, word, other):
    """
    Tell whether a record supersedes another one of its key: the compiled form of `policy/survivor_rule.py`.

    Args:
        rule: LATEST_OFFSET; or GREATEST_NUMBER, when `word` is that of the map, which has compared the numbers. Any
            other reverses the first; rounds never do that, tests use it to find who uses the rule.
        word, other: offsets + 1.
    """
    if rule == LATEST_OFFSET:
        return word > other
    return word != other if rule == GREATEST_NUMBER else word < other


@jit
def _in_bitmap(latest, place):
    return place >= 0 and place < latest.size * 8


@inlined_jit
def _bits_between(latest, at, first, last):
    """Return byte `at` of the bitmap without the bits of places outside of [first, last]."""
    byte = int64(latest[at])
    if at == first >> 3:
        byte &= 0xFF << (first & 7)
    if at == last >> 3:
        byte &= 0xFF >> (7 - (last & 7))
    return byte


@jit
def _any_bit(latest, first, last):
    """Tell whether a bit of places [first, last] is set; places outside of the bitmap have none."""
    if first >= latest.size * 8 or last < 0:
        return False
    first, last = max(first, int64(0)), min(last, latest.size * 8 - 1)
    at = first >> 3
    while at <= last >> 3 and _bits_between(latest, at, first, last) == 0:
        at += 1
    return at <= last >> 3


@jit
def count_latest(latest, first, last):
    """Return how many bits of places [first, last] are set; -1 if a place is outside of the bitmap."""
    if first < 0 or last >= latest.size * 8:
        return int64(-1)
    count = int64(0)
    for at in range(first >> 3, (last >> 3) + 1):
        byte = _bits_between(latest, at, first, last)
        byte -= byte >> 1 & 0x55
        byte = (byte & 0x33) + (byte >> 2 & 0x33)
        count += (byte + (byte >> 4)) & 0x0F
    return count


@jit
def put_digests(table, slots, rule, digests, count, entries, limit, latest, latest_base):
    """
    Put keys in the order of their records.

    Args:
        table, slots: the map; `slots` is above `limit`.
        rule: code of the survivor rule.
        digests, count: from `digest_records`.
        entries, limit: distinct keys in the map, and how many it may have (R-512).
        latest, latest_base: the bitmap, and the offset of its first bit; offsets beyond it have no bit.
    Returns:
        (keys put, entries afterwards). Fewer than `count` if the map is full; then it is not even checked whether the
        next key is new (R-511).
    """
    one, two, last_slot = uint64(1), uint64(2), uint64(slots - 1)
    width, wide = uint64(WORDS), uint64(DIGEST_WORDS)
    bits, base = uint64(latest.size) * uint64(8), uint64(latest_base + 1)
    for i in range(min(_AHEAD, count)):
        prefetch(table, width * _first_slot(digests[wide * uint64(i)], slots))
    for i in range(count):
        if entries >= limit:
            return i, entries
        if i + _AHEAD < count:
            ahead = width * _first_slot(digests[wide * uint64(i + _AHEAD)], slots)
            prefetch(table, ahead)
            prefetch(table, ahead + two)  # an entry may lie on two cache lines
        digest = wide * uint64(i)
        first, second, marked = digests[digest], digests[digest + one], digests[digest + two]
        slot = _first_slot(first, slots)
        survives = True
        while True:
            at = width * slot
            found = table[at + two]
            if found == uint64(0):
                table[at] = first
                table[at + one] = second
                entries += 1
                break
            if table[at] == first and table[at + one] == second:
                survives = supersedes(rule, marked, found)
                place = found - base
                if survives and place < bits:
                    latest[place >> uint64(3)] &= ~(one << (place & uint64(7)))
                break
            slot = uint64(0) if slot == last_slot else slot + one
        if not survives:
            continue
        table[at + two] = marked
        place = marked - base
        if place < bits:
            latest[place >> uint64(3)] |= one << (place & uint64(7))
    return count, entries


@jit
def _judge_block(table, slots, rule, block, count, verdicts):
    """Set SUPERSEDED for records that the map's record of their key supersedes."""
    one, two, last_slot, width = uint64(1), uint64(2), uint64(slots - 1), uint64(WORDS)
    for i in range(count):
        entry = width * uint64(i)
        first, second, marked = block[entry], block[entry + one], block[entry + two]
        slot = _first_slot(first, slots)
        while True:
            at = width * slot
            found = table[at + two]
            if found == uint64(0):
                break
            if table[at] == first and table[at + one] == second:
                if supersedes(rule, found, marked):
                    verdicts[block[uint64(WORDS * BLOCK + i)]] = SUPERSEDED
                break
            slot = uint64(0) if slot == last_slot else slot + one


@jit
def judge_records(
    data,
    unpacked,
    batches,
    unread,
    discarded,
    latest_offset,
    removal_ms,
    legacy_deletes_stay,
    table,
    slots,
    rule,
    secret,
    latest,
    latest_base,
    scratch,
    verdicts,
    state,
):
    """
    Decide on every record of some batches (R-550 to R-552), and check every record.

    Args:
        data, unpacked, batches, secret: as for `digest_records`.
        table, slots, rule, latest, latest_base: as for `put_digests`.
        scratch: SCRATCH_WORDS words.
        unread: uint8 a batch; 1 skips its records (the batch is dropped whole, R-541 c).
        discarded: uint8 a batch; 1 drops all its records (R-550, first case).
        latest_offset: last offset in the map; records above it stay.
        removal_ms: a tombstone stays while this is below its batch's delete horizon.
        legacy_deletes_stay: whether tombstones of magic 0 and 1 stay (R-551).
        verdicts: uint8 a record, numbered through all batches except the unread ones, whose counts may be wrong.
        state: STATE_BATCH, STATE_STATUS and STATE_RECORD_POSITION describe a bad record.
    Returns:
        DIGEST_GOOD or DIGEST_BAD_RECORD.
    """
    pending = 0
    ordinal = int64(0)
    for b in range(batches.size):
        row = batches[b]
        state[STATE_BATCH] = b
        if unread[b]:
            continue
        body = unpacked if row.unpacked else data
        is_control = row.attributes & CONTROL_FLAG != 0
        deletes_stay = tombstones_stay(row.attributes, row.magic, row.base_timestamp, removal_ms, legacy_deletes_stay)
        # A transactional batch may count as aborted in one pass and not in the other, as in Kafka: then its records
        # were never put and none has a bit, so the table decides. It also does if all are superseded.
        has_bits = row.attributes & TRANSACTIONAL_FLAG == 0
        if not has_bits:
            has_bits = _any_bit(latest, row.base_offset - latest_base, row.last_offset - latest_base)
        is_discarded = discarded[b] != 0
        at, end = row.body_start, row.body_end
        base_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        previous_delta = int64(-1)
        for _ in range(row.count):
            status, after, delta, key_start, key_size, value_size = read_next_record(
                body, end, last_delta, at, previous_delta
            )
            if status != RECORD_GOOD:
                state[STATE_RECORD_POSITION] = at - row.body_start
                state[STATE_STATUS] = status
                return DIGEST_BAD_RECORD
            previous_delta = delta
            offset = base_offset + delta
            verdict, can_be_superseded = verdict_alone(
                is_discarded, is_control, offset <= latest_offset, key_size, value_size, deletes_stay
            )
            if can_be_superseded:
                place = offset - latest_base
                if has_bits and _in_bitmap(latest, place):
                    verdicts[ordinal] = verdict if latest[place >> 3] >> (place & 7) & 1 else SUPERSEDED
                    ordinal += 1
                    at = after
                    continue
                first, scratch[WORDS * pending + 1] = digest_key(body, key_start, key_size, secret)
                scratch[WORDS * pending] = first
                scratch[WORDS * pending + 2] = uint64(offset + 1)
                scratch[WORDS * BLOCK + pending] = uint64(ordinal)
                ahead = uint64(WORDS) * _first_slot(first, slots)
                prefetch(table, ahead)
                prefetch(table, ahead + uint64(WORDS - 1))
                pending += 1
            verdicts[ordinal] = verdict
            ordinal += 1
            if pending == BLOCK:
                _judge_block(table, slots, rule, scratch, pending, verdicts)
                pending = 0
            at = after
        if at != row.body_end and row.count > 0:
            state[STATE_STATUS] = RECORD_LEFT_OVER
            state[STATE_RECORD_POSITION] = at - row.body_start
            return DIGEST_BAD_RECORD
    _judge_block(table, slots, rule, scratch, pending, verdicts)
    return DIGEST_GOOD


@jit
def move_entries(source, source_numbers, target, target_numbers, target_slots, first, last):
    """
    Put the entries in slots [first, last) of one table into a larger one that has none of their keys.

    Args:
        source_numbers, target_numbers: uint64 a slot, as in `kernels/valued_map.py`; empty without numbers.
    """
    source_slots = source.size // WORDS
    for slot in range(first, last):
        at = WORDS * slot
        if source[at + 2] != uint64(0):
            place = int64(_first_slot(source[at], target_slots))
            while target[WORDS * place + 2] != uint64(0):
                place += 1
                if place == target_slots:
                    place = int64(0)
            for word in range(WORDS):
                target[WORDS * place + word] = source[at + word]
            if source_numbers.size:
                target_numbers[place] = source_numbers[slot]
                bit = source_numbers[source_slots + (slot >> 6)] >> uint64(slot & 63) & uint64(1)
                target_numbers[target_slots + (place >> 6)] |= bit << uint64(place & 63)


@jit
def find_offset(data, start, size, table, slots, secret):
    """Return the map's offset for the key `data[start:start + size]`, -1 without one."""
    first, second = digest_key(data, start, size, secret)
    slot = int64(_first_slot(first, slots))
    while table[WORDS * slot + 2] != uint64(0):
        if table[WORDS * slot] == first and table[WORDS * slot + 1] == second:
            return int64(table[WORDS * slot + 2]) - 1
        slot += 1
        if slot == slots:
            slot = int64(0)
    return int64(-1)
