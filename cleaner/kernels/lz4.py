"""
Blocks of lz4, packed and unpacked (R-252).

    sequence: token (high nibble: literals, low: match length - 4; 15 = more bytes follow) | more | literals |
        offset, u16 little-endian | more
    The last sequence has literals only, at least five; the last match begins at least twelve bytes before the end.

Packing makes the same choices as the library's fast compressor for blocks of up to 64 KiB, as Kafka writes them: the
bytes are equal. Every position is looked up in a table of earlier positions by a hash of its four bytes; while no match
is found, the steps become longer. A match is extended both ways; the bytes between matches are literals.

Unpacking accepts no block that the library would refuse, but refuses oddities that the library accepts. After a refusal
the caller tries the library, which also gives the error message.
"""

from __future__ import annotations

from numba import int64, uint8, uint16, uint32

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.matches import copy_literal, copy_match, match_length
from cleaner.kernels.memory import load_u8, load_u64_le

TABLE_BITS = 13
BAD_BLOCK = -1

# Constants of the library; the output depends on each of them.
_HASH_FACTOR = 2654435761
_SKIP_SHIFT = 6
_SHORTEST_MATCH = 4
_SHORTEST_PACKED = 13
_MATCH_MARGIN_BYTES = 12  # no match begins in the last bytes
_LAST_LITERALS = 5

_MORE = 15  # a nibble of a token: bytes with the rest follow


@inlined_jit
def _word(data, at):
    return uint32(load_u64_le(data, at))


@inlined_jit
def _slot(word):
    return int64(uint32(uint32(word) * uint32(_HASH_FACTOR)) >> uint32(32 - TABLE_BITS))


@inlined_jit
def _put_more(target, at, left):
    """Write the rest of a length, after the 15 in the token."""
    while left >= 255:
        target[at] = 255
        left -= 255
        at += 1
    target[at] = uint8(left)
    return at + 1


@inlined_jit
def _put_literals(target, at, limit, data, start, size):
    """Write a token and its literals; returns the token's position, and the position after the literals."""
    token_at = at
    at += 1
    if size < _MORE:
        target[token_at] = uint8(size << 4)
    else:
        target[token_at] = uint8(_MORE << 4)
        at = _put_more(target, at, size - _MORE)
    copy_literal(target, at, limit, data, start, size)
    return token_at, at + size


@jit
def compress_block(data, start, end, table, target, at):
    """
    Pack `data[start:end]` as one block.

    Args:
        data: uint8 array; at most 65536 bytes of it.
        table: uint16 array of 2**TABLE_BITS words, with any content.
        target: uint8 array with room for n + n/255 + 16 bytes from `at` on; not `data`.
    Returns:
        The position in `target` after the block.
    """
    limit = at + (end - start) + (end - start) // 255 + 16
    emitted = int64(start)
    if end - start >= _SHORTEST_PACKED:
        table[:] = 0
        last_match = end - _MATCH_MARGIN_BYTES
        # The first position is in the table by being 0.
        position = int64(start) + 1
        word = _word(data, position)
        while True:
            # Step 1: search four bytes that occurred before.
            next_position, step, attempts = position, int64(1), int64(1) << _SKIP_SHIFT
            candidate = int64(start)
            while True:
                position = next_position
                next_position += step
                step = attempts >> _SKIP_SHIFT
                attempts += 1
                if next_position > last_match + 1:
                    _, at = _put_literals(target, at, limit, data, emitted, end - emitted)
                    return at
                slot = _slot(word)
                candidate = start + int64(table[slot])
                table[slot] = uint16(position - start)
                if _word(data, candidate) == word:
                    break
                word = _word(data, next_position)
            while (
                position > emitted and candidate > start and load_u8(data, position - 1) == load_u8(data, candidate - 1)
            ):
                position -= 1
                candidate -= 1
            token_at, at = _put_literals(target, at, limit, data, emitted, position - emitted)
            # Step 2: write the match, and continue while another one follows immediately.
            while True:
                offset = position - candidate
                more = match_length(data, candidate + _SHORTEST_MATCH, position + _SHORTEST_MATCH, end - _LAST_LITERALS)
                target[at] = uint8(offset & 255)
                target[at + 1] = uint8(offset >> 8)
                at += 2
                target[token_at] = target[token_at] | uint8(min(more, _MORE))
                if more >= _MORE:
                    at = _put_more(target, at, more - _MORE)
                position += _SHORTEST_MATCH + more
                emitted = position
                if position > last_match:
                    _, at = _put_literals(target, at, limit, data, emitted, end - emitted)
                    return at
                table[_slot(_word(data, position - 2))] = uint16(position - 2 - start)
                word = _word(data, position)
                slot = _slot(word)
                candidate = start + int64(table[slot])
                table[slot] = uint16(position - start)
                if _word(data, candidate) != word:
                    break
                token_at = at
                target[at] = 0
                at += 1
            position += 1
            word = _word(data, position)
    _, at = _put_literals(target, at, limit, data, emitted, end - emitted)
    return at


@inlined_jit
def _read_more(data, at, end, limit):
    """Return the rest of a length and the position after it; a length above `limit` means damage."""
    more = int64(0)
    while at < end:
        byte = int64(load_u8(data, at))
        at += 1
        more += byte
        if byte < 255 or more > limit:
            return more, at
    return limit + 1, at


@jit
def decompress_block(data, start, end, out, at, room_end):
    """
    Unpack `data[start:end]` to `out[at:room_end]`; all of that range may be overwritten.

    Args:
        data: uint8 array.
        out: uint8 array, not `data`; nothing before `at` is read or written.
        room_end: whether the last match is valid depends on it; pass the same room as to the library.
    Returns:
        The position after the bytes unpacked, or BAD_BLOCK.
    """
    source = int64(start)
    begin = int64(at)
    at = begin
    while source < end:
        token = int64(load_u8(data, source))
        source += 1
        size = token >> 4
        if size == _MORE:
            more, source = _read_more(data, source, end, room_end - at)
            size += more
        if size > end - source or size > room_end - at:
            return int64(BAD_BLOCK)
        copy_literal(out, at, room_end, data, source, size)
        source += size
        at += size
        if source == end:
            return at
        if end - source < 8 or room_end - at < _MATCH_MARGIN_BYTES:
            return int64(BAD_BLOCK)
        offset = int64(load_u64_le(data, source)) & 0xFFFF
        source += 2
        size = token & 15
        if size == _MORE:
            more, source = _read_more(data, source, end, room_end - at)
            size += more
        size += _SHORTEST_MATCH
        if offset == 0 or offset > at - begin or size > room_end - at - _LAST_LITERALS:
            return int64(BAD_BLOCK)
        copy_match(out, at, room_end, offset, size)
        at += size
        if end - source < 1 + _LAST_LITERALS:
            return int64(BAD_BLOCK)
    return int64(BAD_BLOCK)
