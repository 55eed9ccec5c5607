"""
Finds some of many byte strings: as keys of records, by their digests, or anywhere in an array.

Each string has a digest of two words (`kernels/proof.py`) in a table with open addressing. Bytes anywhere are found in
three steps, of which most places pass only the first: do four bytes begin any string, do the first 4, 8, 16 or 32 bytes
begin one that is at least as long, and is the digest of as many bytes as some string has in the table. The time does
not depend on the number of strings that begin alike.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.memory import load_u8, load_u32_be, load_u64_le
from cleaner.kernels.proof import DIGEST_WORDS, siphash24_wide
from cleaner.kernels.records import skip_headers

SHORTEST = 4
CLASSES = 4  # of lengths: from 4, 8, 16 and 32 bytes on
HEAD_BITS = 18
HIT_CELLS = 3  # of a hit: which part, where, which string

_ODD = uint64(0x9E3779B97F4A7C15)
_OTHER_ODD = uint64(0xC2B2AE3D27D4EB4F)


@inlined_jit
def _find(first, second, digests, slots):
    """Return the number of the string with a digest, or -1."""
    mask = uint64(slots.size - 1)
    at = first & mask
    while slots[at] >= 0:
        number = slots[at]
        if digests[DIGEST_WORDS * number] == first and digests[DIGEST_WORDS * number + 1] == second:
            return int64(number)
        at = (at + uint64(1)) & mask
    return int64(-1)


@jit
def fill_slots(digests, slots):
    """
    Make the table.

    Args:
        digests: uint64, DIGEST_WORDS a string.
        slots: int32, a power of two of them and more than there are strings, all -1.
    """
    mask = uint64(slots.size - 1)
    for number in range(digests.size // DIGEST_WORDS):
        at = digests[DIGEST_WORDS * number] & mask
        while slots[at] >= 0:
            at = (at + uint64(1)) & mask
        slots[at] = number


@jit
def look_up(sizes, digests, all_digests, slots, numbers):
    """
    Find keys in the table.

    Args:
        sizes: int64, of the keys; -1 for null.
        digests: uint64, of the keys.
        all_digests, slots: of the table.
        numbers: int64, for each key: set to the number of its string, or -1.
    """
    for i in range(sizes.size):
        numbers[i] = -1
        if sizes[i] >= 0:
            numbers[i] = _find(digests[DIGEST_WORDS * i], digests[DIGEST_WORDS * i + 1], all_digests, slots)


@jit
def match_prefixes(data, starts, sizes, text, prefix_starts, prefix_sizes, first_number, numbers):
    """Set the number of each key that has none and begins with a prefix: `first_number` and the prefix's place."""
    for i in range(starts.size):
        if numbers[i] >= 0:
            continue
        for p in range(prefix_starts.size):
            if sizes[i] < prefix_sizes[p]:
                continue
            at = int64(0)
            while at < prefix_sizes[p] and load_u8(data, starts[i] + at) == load_u8(text, prefix_starts[p] + at):
                at += 1
            if at == prefix_sizes[p]:
                numbers[i] = first_number + p
                break


@inlined_jit
def _head_of(data, at):
    """Return a number below 2**HEAD_BITS of the first four bytes."""
    return ((load_u32_be(data, at) * _ODD) & uint64(0xFFFFFFFF)) >> uint64(32 - HEAD_BITS)


@inlined_jit
def _begin_of(data, at, kind, shift):
    """Return a number of the first 4, 8, 16 or 32 bytes, by the class of lengths."""
    if kind == 0:
        word = load_u32_be(data, at)
    else:
        word = load_u64_le(data, at)
    word *= _ODD
    if kind >= 2:
        word = (word ^ (word >> uint64(29)) ^ load_u64_le(data, at + 8)) * _OTHER_ODD
    if kind == 3:
        word = (word ^ (word >> uint64(31)) ^ load_u64_le(data, at + 16)) * _ODD
        word = (word ^ (word >> uint64(30)) ^ load_u64_le(data, at + 24)) * _OTHER_ODD
    word = (word ^ (word >> uint64(32))) * _ODD
    return word >> shift


@inlined_jit
def _has_bit(bits, number):
    return (bits[number >> uint64(6)] >> (number & uint64(63))) & uint64(1) != 0


@inlined_jit
def _set_bit(bits, number):
    bits[number >> uint64(6)] |= uint64(1) << (number & uint64(63))


@inlined_jit
def _class_of(size):
    return int64(0) if size < 8 else int64(1) if size < 16 else int64(2) if size < 32 else int64(3)


@jit
def fill_filters(data, starts, sizes, heads, begins, shift):
    """
    Set the bits by which places are passed over.

    Args:
        data, starts, sizes: of the strings; shorter ones than SHORTEST are left out.
        heads: uint64, 2**HEAD_BITS bits.
        begins: uint64, of shape (CLASSES, words): 2**(64 - shift) bits a class.
    """
    for i in range(starts.size):
        if sizes[i] >= SHORTEST:
            kind = _class_of(sizes[i])
            _set_bit(heads, _head_of(data, starts[i]))
            _set_bit(begins[kind], _begin_of(data, starts[i], kind, shift))


@jit
def find_in_parts(
    data, starts, sizes, spare, state, heads, begins, shift, lengths, length_starts, secret, all_digests, slots, hits
):
    """
    Find the strings in parts of an array, at every place.

    Args:
        data: uint8.
        starts, sizes: int64, of the parts; a size below SHORTEST, as that of a null, is passed over.
        spare: so many bytes at the end of each part are not searched for beginnings of strings.
        state: int64, part and place to go on from; (0, 0) at first, and (number of parts, 0) at the end.
        heads, begins, shift: see `fill_filters`.
        lengths, length_starts: int64, the different lengths of strings by class, and where each class begins.
        secret: uint64, of the digests.
        all_digests, slots: of the table.
        hits: int64, HIT_CELLS a hit, with room for at least as many as there are lengths.
    Returns:
        How many hits were written; call again until `state` has come to the end.
    """
    count = 0
    room = hits.size // HIT_CELLS - lengths.size
    at = state[1]
    for part in range(state[0], starts.size):
        limit = starts[part] + sizes[part]
        at = max(at, starts[part])
        end = min(limit - SHORTEST + 1, limit - spare)
        while at < end:
            if _has_bit(heads, _head_of(data, at)):
                if count > room:
                    state[0], state[1] = part, at
                    return count
                for kind in range(CLASSES):
                    first, last = length_starts[kind], length_starts[kind + 1]
                    if first == last or at + (int64(4) << kind) > limit:
                        continue
                    if not _has_bit(begins[kind], _begin_of(data, at, kind, shift)):
                        continue
                    for each in range(first, last):
                        if at + lengths[each] <= limit:
                            one, two = siphash24_wide(data, at, lengths[each], secret[0], secret[1])
                            number = _find(one, two, all_digests, slots)
                            if number >= 0:
                                hits[HIT_CELLS * count] = part
                                hits[HIT_CELLS * count + 1] = at
                                hits[HIT_CELLS * count + 2] = number
                                count += 1
            at += 1
        at = int64(0)
    state[0], state[1] = starts.size, 0
    return count


@jit
def measure_headers(data, starts, sizes):
    """Set the size of each record's headers, which have been checked, from where they begin."""
    for i in range(starts.size):
        end, _ = skip_headers(data, starts[i], int64(data.size))
        sizes[i] = end - starts[i]
