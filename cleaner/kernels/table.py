"""
The hot loops of a table (`log/table.py`): put the keys of records, and look up keys and read their values.

An entry is four words of a flat uint64 array: the two words of its key's digest, the record's offset + 1 (0 marks an
empty slot), and its place: bits 0 to 31 are where its key begins in its file, or where its batch does if it has to be
unpacked (PACKED); TOMBSTONE says that it has no value; the bits from NUMBER_SHIFT on are the number of the file. Two
entries fill a cache line.

Batches that were unpacked are kept in a ring of bytes (`log/unpacked_batches.py`): UNPACKED_ROWS rows of words, each as
long as the batch has records (their offsets, where keys begin behind the rows, their sizes, and the same of values),
and the bytes. A shelf has three words: the place without TOMBSTONE, how many bytes had been written into the ring
before, and how many records there are. What is further behind than the ring is long was written over. A place has
SHELVES_A_PLACE shelves to choose from.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.digest import digest_key
from cleaner.kernels.memory import copy_bytes, load_u8, multiply_high, prefetch, read_at

ENTRY_WORDS = 4
GROUPS = 256  # of digests by their first bits, so that the entries of a group lie together in a table
_GROUP_SHIFT = 56
BLOCK = 64  # keys between digesting and probing
SCRATCH_WORDS = 2 * BLOCK

POSITION_MASK = (1 << 32) - 1
TOMBSTONE = 1 << 32
PACKED = 1 << 33
NUMBER_SHIFT = 34

UNPACKED_ROWS = 5
SHELF_WORDS = 3
SHELVES_A_PLACE = 4
_WORD_BYTES = 8
_SPREAD = 0x9E3779B97F4A7C15  # odd, of bits without a pattern

# What is known of a key.
NO_VALUE = 0
FOUND = 1
LOOK_CLOSER = 2

# Cells of the state array of `read_values`.
STATE_DONE, STATE_USED = range(2)

_GUESS = 256  # bytes of a value that are read at once with its key
_VARINT_BYTES = 5


@inlined_jit
def _first_place(hash_word, slots):
    return uint64(ENTRY_WORDS) * multiply_high(hash_word, uint64(slots))


@inlined_jit
def _place_of(table, slots, first, second):
    """Return where the entry of a digest begins in the table, or the empty slot where it would be put."""
    at, end = _first_place(first, slots), uint64(ENTRY_WORDS) * uint64(slots)
    while table[at + uint64(2)] != uint64(0) and (table[at] != first or table[at + uint64(1)] != second):
        at += uint64(ENTRY_WORDS)
        if at == end:
            at = uint64(0)
    return at


@inlined_jit
def _put(table, slots, first, second, marked, place):
    """Put an entry; returns 1 if there was none of its digest."""
    at = _place_of(table, slots, first, second)
    found = table[at + uint64(2)]
    if marked >= found:
        table[at] = first
        table[at + uint64(1)] = second
        table[at + uint64(2)] = marked
        table[at + uint64(3)] = place
    return int64(found == uint64(0))


@jit
def put_keys(table, slots, secret, data, starts, sizes, offsets, places, begin, entries, limit):
    """
    Put records; of a key the one with the greatest offset stays, and of one offset the last that is put.

    Args:
        table, slots: the table; `slots` is above `limit`.
        secret: SECRET_WORDS words.
        data, starts, sizes: the keys; without one (size -1) a record is left out.
        offsets, places: int64 a record.
        begin: the first record to put.
        entries, limit: keys in the table, and how many it may have.
    Returns:
        (the first record that was not put because the table is full, entries afterwards).
    """
    for i in range(begin, offsets.size):
        if sizes[i] < 0:
            continue
        if entries >= limit:
            return i, entries
        first, second = digest_key(data, starts[i], sizes[i], secret)
        entries += _put(table, slots, first, second, uint64(offsets[i] + 1), uint64(places[i]))
    return offsets.size, entries


@jit
def digest_entries(secret, data, starts, sizes, offsets, places, begin, rows, used):
    """
    Write the entries of records behind the first `used` of `rows`, flat entries; arguments as for `put_keys`.

    Returns:
        (the first record for which there was no room, entries in `rows` afterwards).
    """
    room = rows.size // ENTRY_WORDS
    for i in range(begin, offsets.size):
        if sizes[i] < 0:
            continue
        if used == room:
            return i, used
        at = uint64(ENTRY_WORDS) * uint64(used)
        rows[at], rows[at + uint64(1)] = digest_key(data, starts[i], sizes[i], secret)
        rows[at + uint64(2)] = uint64(offsets[i] + 1)
        rows[at + uint64(3)] = uint64(places[i])
        used += 1
    return offsets.size, used


@jit
def group_entries(rows, count, grouped, ends):
    """Write the first `count` entries of `rows` in order of their groups; `ends`: int64, GROUPS, behind each group."""
    ends[:] = 0
    for i in range(count):
        ends[int64(rows[uint64(ENTRY_WORDS) * uint64(i)] >> uint64(_GROUP_SHIFT))] += 1
    begin = int64(0)
    for group in range(GROUPS):
        begin, ends[group] = begin + ends[group], begin
    for i in range(count):
        at = uint64(ENTRY_WORDS) * uint64(i)
        group = int64(rows[at] >> uint64(_GROUP_SHIFT))
        to = uint64(ENTRY_WORDS) * uint64(ends[group])
        for word in range(ENTRY_WORDS):
            grouped[to + uint64(word)] = rows[at + uint64(word)]
        ends[group] += 1


@jit
def put_entries(table, slots, rows, begin, entries, limit):
    """Put the entries of `rows` from the one numbered `begin` on; arguments and result as of `put_keys`."""
    count = rows.size // ENTRY_WORDS
    for i in range(begin, count):
        if entries >= limit:
            return i, entries
        at = uint64(ENTRY_WORDS) * uint64(i)
        entries += _put(table, slots, rows[at], rows[at + uint64(1)], rows[at + uint64(2)], rows[at + uint64(3)])
    return count, entries


@jit
def count_missing(table, slots, rows):
    """Count the entries of `rows` whose digests are not in a table."""
    missing = 0
    for at in range(0, rows.size, ENTRY_WORDS):
        missing += table[_place_of(table, slots, rows[at], rows[at + 1]) + uint64(2)] == uint64(0)
    return missing


@jit
def move_keys(source, target, slots):
    """Put all entries of a table into an empty one of `slots` slots."""
    for at in range(0, source.size, ENTRY_WORDS):
        if source[at + 2] != uint64(0):
            to = _place_of(target, slots, source[at], source[at + 1])
            for word in range(ENTRY_WORDS):
                target[to + uint64(word)] = source[at + word]


@jit
def are_current(table, slots, secret, data, starts, sizes, offsets, scratch, current):
    """Set in `current`, bool a record, which records are those of the table for their keys; `scratch` as below."""
    for begin in range(0, offsets.size, BLOCK):
        count = min(int64(BLOCK), offsets.size - begin)
        for i in range(count):
            if sizes[begin + i] >= 0:
                first, second = digest_key(data, starts[begin + i], sizes[begin + i], secret)
                scratch[uint64(2 * i)], scratch[uint64(2 * i + 1)] = first, second
                prefetch(table, int64(_first_place(first, slots)))
        for i in range(count):
            current[begin + i] = False
            if sizes[begin + i] >= 0:
                at = _place_of(table, slots, scratch[uint64(2 * i)], scratch[uint64(2 * i + 1)])
                current[begin + i] = table[at + uint64(2)] == uint64(offsets[begin + i] + 1)


@inlined_jit
def _is_key(out, at, data, start, size):
    """Tell whether a key's size and bytes are at a place, and return where they end."""
    left = uint64(2) * uint64(size)
    while True:
        byte = left & uint64(0x7F)
        left >>= uint64(7)
        if left != uint64(0):
            byte |= uint64(0x80)
        if load_u8(out, at) != byte:
            return False, at
        at += 1
        if left == uint64(0):
            break
    for i in range(size):
        if load_u8(out, at + i) != load_u8(data, start + i):
            return False, at
    return True, at + size


@inlined_jit
def _size_varint(out, at):
    """Return the size at a place, -1 for null, below -1 if it is no varint of a size, and where it ends."""
    value, shift = uint64(0), uint64(0)
    for _ in range(_VARINT_BYTES):
        byte = load_u8(out, at)
        at += 1
        value |= (byte & uint64(0x7F)) << shift
        shift += uint64(7)
        if byte < uint64(0x80):
            return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), at
    return int64(-2), at


@inlined_jit
def _read_value(descriptor, position, data, start, size, out, used):
    """Read one record's value behind `used`; returns (status, start, size); a size that `out` has no room for."""
    head = int64(1)
    while uint64(2) * uint64(size) >> uint64(7 * head) != uint64(0):
        head += 1
    got = read_at(descriptor, out, used, head + size + _VARINT_BYTES + _GUESS, position - head)
    if got < head + size + 1:
        return LOOK_CLOSER, int64(0), int64(-1)
    is_same, at = _is_key(out, used, data, start, size)
    if not is_same:
        return LOOK_CLOSER, int64(0), int64(-1)
    value_size, at = _size_varint(out, at)
    if value_size < 0 or at > used + got:
        return LOOK_CLOSER, int64(0), int64(-1)
    have = used + got - at
    if value_size > have and at + value_size <= out.size:
        left = value_size - have
        if read_at(descriptor, out, used + got, left, position - head + got) < left:
            return LOOK_CLOSER, int64(0), int64(-1)
    return FOUND, at, value_size


@inlined_jit
def _first_shelf(shelves, tag):
    groups = uint64(shelves.size // (SHELF_WORDS * SHELVES_A_PLACE))
    return int64(multiply_high(uint64(tag) * uint64(_SPREAD), groups)) * SHELF_WORDS * SHELVES_A_PLACE


@jit
def shelf_for(shelves, tag):
    """Return the word at which a batch's shelf is or may be put: its own, or the one of its four that is oldest."""
    first = _first_shelf(shelves, tag)
    chosen = first
    for at in range(first, first + SHELF_WORDS * SHELVES_A_PLACE, SHELF_WORDS):
        if shelves[at] == tag:
            return at
        if shelves[at] == 0 or (shelves[chosen] != 0 and shelves[at + 1] < shelves[chosen + 1]):
            chosen = at
    return chosen


@inlined_jit
def _row_of(words, row, count, offset):
    """Return the word that is a record's offset, among `count` from `row` on; -1: it is not there."""
    low, high = row, row + count
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low if low < row + count and words[low] == offset else int64(-1)


@inlined_jit
def _find_unpacked(unpacked, words, shelves, written, tag, offset, data, start, size):
    """Return where a record's value begins in the ring and its size; size -1: it is not there."""
    first = _first_shelf(shelves, tag)
    for at in range(first, first + SHELF_WORDS * SHELVES_A_PLACE, SHELF_WORDS):
        if shelves[at] == tag and written - shelves[at + 1] <= unpacked.size:
            begin, count = shelves[at + 1] % unpacked.size, shelves[at + 2]
            row = _row_of(words, begin // _WORD_BYTES, count, offset)
            if row < 0 or words[row + 2 * count] != size:
                break
            body = begin + UNPACKED_ROWS * _WORD_BYTES * count
            key = body + words[row + count]
            for i in range(size):
                if load_u8(unpacked, key + i) != load_u8(data, start + i):
                    return int64(0), int64(-1)
            return body + words[row + 3 * count], words[row + 4 * count]
    return int64(0), int64(-1)


@jit
def read_values(
    table,
    slots,
    secret,
    descriptors,
    start_offset,
    unpacked,
    unpacked_words,
    shelves,
    written,
    data,
    starts,
    sizes,
    scratch,
    out,
    statuses,
    values,
    state,
):
    """
    Look up keys and read their values, from STATE_DONE on.

    Args:
        table, slots, secret, data, starts, sizes: as for `put_keys`; every key has a size.
        descriptors: int64, of the files by their numbers; -1: replaced, or gone.
        start_offset: records below it do not count.
        unpacked, unpacked_words, shelves, written: the ring of unpacked batches, as uint8 and as int64, its shelves,
            and int64, one cell, the bytes that were written into it.
        scratch: uint64, SCRATCH_WORDS.
        out: uint8, for values and what is read with them; from STATE_USED on.
        statuses: uint8 a key: NO_VALUE, FOUND, or LOOK_CLOSER: the record has to be unpacked, its file was replaced, or
            what is there is not this key.
        values: int64, shape (3, n): start in `out`, size (-1 without a value) and offset; for LOOK_CLOSER its place
            instead of the start.
        state: STATE_DONE is the first key that was not looked up: `out` has no room for its value.
    Returns:
        0; or the bytes that `out` must have behind STATE_USED.
    """
    done, used = state[STATE_DONE], state[STATE_USED]
    short = int64(0)
    while done < sizes.size and short == 0:
        count = min(int64(BLOCK), sizes.size - done)
        for i in range(count):
            first, second = digest_key(data, starts[done + i], sizes[done + i], secret)
            scratch[uint64(2 * i)], scratch[uint64(2 * i + 1)] = first, second
            prefetch(table, int64(_first_place(first, slots)))
        for i in range(count):
            at = _place_of(table, slots, scratch[uint64(2 * i)], scratch[uint64(2 * i + 1)])
            marked, place = table[at + uint64(2)], table[at + uint64(3)]
            status, start, size = NO_VALUE, int64(0), int64(-1)
            if marked > uint64(start_offset):
                number = int64(place >> uint64(NUMBER_SHIFT))
                descriptor = descriptors[number] if number < descriptors.size else int64(-1)
                if place & uint64(TOMBSTONE) and descriptor >= 0:
                    # In a table that is right; a key's bytes are compared before a value is handed out.
                    status = NO_VALUE
                elif descriptor < 0:
                    status = LOOK_CLOSER
                elif place & uint64(PACKED):
                    key, offset = starts[done], int64(marked) - 1
                    start, size = _find_unpacked(
                        unpacked, unpacked_words, shelves, written[0], int64(place), offset, data, key, sizes[done]
                    )
                    status = FOUND if size >= 0 else LOOK_CLOSER
                    if size >= 0:
                        if used + size > out.size:
                            short = size
                            break
                        copy_bytes(out, used, unpacked, start, size)
                        start, used = used, used + size
                elif used + sizes[done] + 2 * _VARINT_BYTES + _GUESS > out.size:
                    short = sizes[done] + 2 * _VARINT_BYTES + _GUESS
                    break
                else:
                    position = int64(place & uint64(POSITION_MASK))
                    status, start, size = _read_value(descriptor, position, data, starts[done], sizes[done], out, used)
                    if size >= 0 and start + size > out.size:
                        short = start - used + size + _GUESS
                        break
                    if size >= 0:
                        used = start + size
            statuses[done], values[0, done], values[1, done] = status, start, size
            values[2, done] = int64(marked) - 1
            if status == LOOK_CLOSER:
                values[0, done] = int64(place)
            done += 1
    state[STATE_DONE], state[STATE_USED] = done, used
    return short
