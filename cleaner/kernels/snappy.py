"""
Blocks of snappy, packed and unpacked (R-251).

    block: unpacked length, a varint | elements
    element: tag | length | offset | bytes
        the tag's low two bits: 0 literal, 1 copy with 11 bits of offset, 2 with 16, 3 with 32

Packing makes the same choices as Kafka's library (snappy-java 1.1.10.7): the bytes are equal. Every position is looked
up in a table of earlier positions by a hash of its four bytes; a match is extended as far as possible, the bytes
between matches are literals. While no match is found, the steps become longer.

Unpacking accepts sound blocks and refuses others without a reason; for one, the caller tries a library.
"""

from __future__ import annotations

from numba import int64, uint8, uint16, uint32, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.matches import copy_literal, copy_match, match_length
from cleaner.kernels.memory import copy_bytes, load_u8, load_u64_be, load_u64_le, store_u64_be

# Constants of the library; the output depends on each of them.
TABLE_BITS = 14
_SMALLEST_TABLE = 256
_HASH_FACTOR = 0x1E35A7BD
_MARGIN_BYTES = 15  # no match begins in the last bytes
_FIRST_SKIP = 32
_MAX_COPY = 64

BAD_BLOCK = -1
_LARGEST_SHORT_LITERAL = 60


@jit
def _slot(word, mask):
    product = uint32(uint32(word) * uint32(_HASH_FACTOR))
    return int64((product >> uint32(32 - TABLE_BITS)) & mask)


@jit
def _word(data, at):
    return uint32(load_u64_le(data, at))


@jit
def _put_literal(data, start, size, target, at):
    left = size - 1
    if left < 60:
        target[at] = uint8(left << 2)
        at += 1
    else:
        tag_at = at
        at += 1
        while left > 0:
            target[at] = uint8(left & 255)
            left >>= 8
            at += 1
        target[tag_at] = uint8((59 + at - tag_at - 1) << 2)
    copy_bytes(target, at, data, start, size)
    return at + size


@jit
def _put_copy(target, at, offset, size):
    while size > 0:
        # At least four bytes must remain for the last copy.
        step = size
        if size >= _MAX_COPY + 4:
            step = int64(_MAX_COPY)
        elif size > _MAX_COPY:
            step = int64(_MAX_COPY - 4)
        if step < 12 and offset < 2048:
            target[at] = uint8(1 | (step - 4) << 2 | (offset >> 8) << 5)
            target[at + 1] = uint8(offset & 255)
            at += 2
        else:
            target[at] = uint8(2 | (step - 1) << 2)
            target[at + 1] = uint8(offset & 255)
            target[at + 2] = uint8(offset >> 8)
            at += 3
        size -= step
    return at


@jit
def compress_block(data, start, end, table, target, at):
    """
    Pack `data[start:end]` as one snappy block.

    Args:
        data: uint8 array; 1 to 65536 bytes of it.
        table: uint16 array of 2**TABLE_BITS words, with any content.
        target: uint8 array with room for 32 + n + n/6 bytes from `at` on; not `data`.
    Returns:
        The position in `target` after the block.
    """
    size = end - start
    left = size
    while left >= 128:
        target[at] = uint8(left & 127 | 128)
        left >>= 7
        at += 1
    target[at] = uint8(left)
    at += 1
    slots = _SMALLEST_TABLE
    while slots < size and slots < 1 << TABLE_BITS:
        slots <<= 1
    table[:slots] = 0
    mask = uint32(slots - 1)
    position = int64(start)
    emitted = position
    limit = end - _MARGIN_BYTES
    if size < _MARGIN_BYTES:
        return _put_literal(data, emitted, size, target, at)
    while True:
        # Step 1: search four bytes that occurred before.
        position += 1
        skip = int64(_FIRST_SKIP)
        while True:
            next_position = position + (skip >> 5)
            if next_position > limit:
                return _put_literal(data, emitted, end - emitted, target, at)
            skip += skip >> 5
            word = _word(data, position)
            slot = _slot(word, mask)
            candidate = start + int64(table[slot])
            table[slot] = uint16(position - start)
            if _word(data, candidate) == word:
                break
            position = next_position
        literal = position - emitted
        if literal <= 16:
            # Always copying 16 bytes is faster; the surplus is overwritten later, and no match begins so late that
            # fewer than 16 bytes could be read.
            target[at] = uint8((literal - 1) << 2)
            store_u64_be(target, at + 1, load_u64_be(data, emitted))
            store_u64_be(target, at + 9, load_u64_be(data, emitted + 8))
            at += 1 + literal
        else:
            at = _put_literal(data, emitted, literal, target, at)
        # Step 2: copy it, and continue while another match follows immediately.
        while True:
            matched = 4 + match_length(data, candidate + 4, position + 4, end)
            at = _put_copy(target, at, position - candidate, matched)
            position += matched
            emitted = position
            if position >= limit:
                if position < end:
                    at = _put_literal(data, emitted, end - emitted, target, at)
                return at
            table[_slot(_word(data, position - 1), mask)] = uint16(position - 1 - start)
            word = _word(data, position)
            slot = _slot(word, mask)
            candidate = start + int64(table[slot])
            table[slot] = uint16(position - start)
            if _word(data, candidate) != word:
                break


@jit
def read_length(data, start, end):
    """
    Return the unpacked length that a block at `data[start:end]` claims, and where its elements begin.

    The length is BAD_BLOCK if it is not a varint of at most four bytes, or not above 0.
    """
    length, shift, at = int64(0), int64(0), int64(start)
    while at < end and shift < 28:
        byte = int64(data[at])
        at += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (length if length > 0 else int64(BAD_BLOCK)), at
    return int64(BAD_BLOCK), at


@jit
def decompress_elements(data, source, end, out, at, room_end):
    """
    Unpack the elements at `data[source:end]` so that they fill `out[at:room_end]`.

    Args:
        data: uint8 array with 8 readable bytes after `end`.
        out: uint8 array, not `data`; nothing before `at` is read or written.
    Returns:
        Whether they are sound and filled it exactly.
    """
    begin = int64(at)
    at = begin
    source = int64(source)
    while source < end:
        tag = int64(load_u8(data, source))
        source += 1
        if tag & 3 == 0:
            size = (tag >> 2) + 1
            if size > _LARGEST_SHORT_LITERAL:
                more = size - _LARGEST_SHORT_LITERAL
                if more > end - source:
                    return False
                size = int64(load_u64_le(data, source) & (uint64(0xFFFFFFFF) >> uint64(32 - 8 * more))) + 1
                source += more
            if size > end - source or size > room_end - at:
                return False
            copy_literal(out, at, room_end, data, source, size)
            source += size
            at += size
            continue
        if tag & 3 == 1:
            width = 1
            size = 4 + (tag >> 2 & 7)
        else:
            width = 2 if tag & 3 == 2 else 4
            size = 1 + (tag >> 2)
        if width > end - source:
            return False
        offset = int64(load_u64_le(data, source) & (uint64(0xFFFFFFFF) >> uint64(32 - 8 * width)))
        if width == 1:
            offset |= (tag >> 5) << 8
        source += width
        if offset == 0 or offset > at - begin or size > room_end - at:
            return False
        copy_match(out, at, room_end, offset, size)
        at += size
    return at == room_end
