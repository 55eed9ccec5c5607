"""
The offset map of a survivor rule that compares numbers of records, not their offsets (`cleaner.survivor`, D-19).

The table is that of `kernels/offset_map.py`. Beside it is an array with the number of each entry's record, 8 bytes a
slot: so an entry has 32 bytes, and the map of all other topics its 24. Numbers are unsigned: signed ones + 2^63. Behind
the numbers is a bit a slot: whether a later record of the key has lost against the one that stays.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import multiply_high
from cleaner.kernels.offset_map import DIGEST_WORDS, WORDS
from cleaner.kernels.records import read_varint

NO_NUMBER = 0
"""The number of a record that has none: every other is greater, except the smallest."""

_BIAS = 1 << 63
_LONG_BYTES = 8
_MOST_DIGITS = 19
_LONG_MAX = (1 << 63) - 1


def numbered_words(slots: int) -> int:
    """Return how many words the numbers of a table take, with their bits."""
    return slots + (slots >> 6) + 1


@jit
def put_numbered(table, numbers, slots, digests, given, count, entries, limit, latest, latest_base):
    """
    Put keys in the order of their records; of two records the one with the greater number stays, of equals the later.

    Args:
        table, slots, digests, count, entries, limit, latest, latest_base: as for `put_digests`.
        numbers: uint64 a slot, and the bits, as `numbered_words` counts them.
        given: uint64 a record.
    Returns:
        (keys put, entries afterwards, by how many more or fewer keys the last record is not the one that stays).
    """
    one, last_slot = uint64(1), uint64(slots - 1)
    bits, base = uint64(latest.size) * uint64(8), uint64(latest_base + 1)
    outranked = int64(0)
    for i in range(count):
        if entries >= limit:
            return i, entries, outranked
        digest = uint64(DIGEST_WORDS * i)
        first, second, marked = digests[digest], digests[digest + one], digests[digest + uint64(2)]
        slot = multiply_high(first, uint64(slots))
        while True:
            at = uint64(WORDS) * slot
            found = table[at + uint64(2)]
            if found == uint64(0):
                table[at], table[at + one] = first, second
                entries += 1
                stays = True
                break
            if table[at] == first and table[at + one] == second:
                stays = given[i] >= numbers[slot]
                bits_at, bit = uint64(slots) + (slot >> uint64(6)), one << (slot & uint64(63))
                was_outranked = numbers[bits_at] & bit != uint64(0)
                outranked += int64(not stays) - int64(was_outranked)
                numbers[bits_at] = numbers[bits_at] & ~bit if stays else numbers[bits_at] | bit
                if stays:
                    place = found - base
                    if place < bits:
                        latest[place >> uint64(3)] &= ~(one << (place & uint64(7)))
                break
            slot = uint64(0) if slot == last_slot else slot + one
        if not stays:
            continue
        table[at + uint64(2)] = marked
        numbers[slot] = given[i]
        place = marked - base
        if place < bits:
            latest[place >> uint64(3)] |= one << (place & uint64(7))
    return count, entries, outranked


@jit
def _number_in(data, start, size):
    """Return the number in a header's value, + 2^63; NO_NUMBER if it has none."""
    negative = size > 0 and data[start] == 0x2D
    first = int64(1) if negative else int64(0)
    is_decimal = 0 < size - first <= _MOST_DIGITS
    number = uint64(0)
    for i in range(first, size):
        if not is_decimal:
            break
        digit = int64(data[start + i]) - 0x30
        is_decimal = 0 <= digit <= 9
        number = number * uint64(10) + uint64(max(digit, int64(0)))
    if is_decimal and number <= uint64(_LONG_MAX):
        return uint64(_BIAS) - number if negative else uint64(_BIAS) + number
    if size != _LONG_BYTES:
        return uint64(NO_NUMBER)
    number = uint64(0)
    for i in range(_LONG_BYTES):
        number = number << uint64(8) | uint64(data[start + i])
    return number ^ uint64(_BIAS)


@jit
def header_numbers(data, starts, name, numbers):
    """
    Read a number from a header of each record: of the last header of that name.

    A value of digits, with a minus or not, is a decimal number, also if it has 8 bytes; any other of 8 bytes is a
    big-endian long. Everything else is no number.

    Args:
        data: uint8 array with the records, which were checked before.
        starts: int64, for each record where its headers begin, with their count.
        name: uint8, the header's key.
        numbers: uint64, one a record; NO_NUMBER without one.
    """
    for record in range(starts.size):
        numbers[record] = uint64(NO_NUMBER)
        count, at, _ = read_varint(data, starts[record], int64(data.size), 5)
        for _ in range(count):
            size, at, _ = read_varint(data, at, int64(data.size), 5)
            is_named = size == name.size
            for i in range(size if is_named else int64(0)):
                is_named &= data[at + i] == name[i]
            at += size
            size, at, _ = read_varint(data, at, int64(data.size), 5)
            if is_named:
                numbers[record] = _number_in(data, at, size)
            at += max(size, int64(0))
