"""
Small gzip streams (R-250): one call of a library for each batch of a few records would take longer than the rest of it.

A kernel accepts one plain member that fills its bytes, with complete codes of at most 12 bits and the right checksum
and length. It leaves everything else to `format/gzip_stream.py`, and so do its callers with streams that are not small.

The codes of a block are looked up in tables: the next bits of the stream give `symbol << 4 | length` of its code, or 0.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.crc32c import slicing_table
from cleaner.kernels.memory import copy_bytes, load_u64_le

MOST_PACKED_BYTES = 1024
"""A stream is small up to here; isal is faster with longer ones."""

BAD = -1

_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_PLAIN_HEADER = 0x00088B1F  # no flags
_STORED, _FIXED, _DYNAMIC = range(3)
_CODE_BITS = 12  # of the longest code
_LENGTHS_BITS = 7  # of the longest code of code lengths
_MOST_LITERALS, _MOST_DISTANCES = 286, 30
_END_OF_BLOCK = 256
_REPEAT, _ZEROS, _MORE_ZEROS = 16, 17, 18

# The work memory, in words: tables, and the lengths that they are made of.
_FIXED_LITERALS = 0
_FIXED_LITERAL_BITS = 9
_FIXED_DISTANCES = _FIXED_LITERALS + (1 << _FIXED_LITERAL_BITS)
_FIXED_DISTANCE_BITS = 5
_LITERALS = _FIXED_DISTANCES + (1 << _FIXED_DISTANCE_BITS)
_DISTANCES = _LITERALS + (1 << _CODE_BITS)
_CODE_LENGTHS = _DISTANCES + (1 << _CODE_BITS)
_LENGTHS = _CODE_LENGTHS + (1 << _LENGTHS_BITS)
_COUNTS = _LENGTHS + _MOST_LITERALS + _MOST_DISTANCES + 2
_NEXT = _COUNTS + 16
WORDS = _NEXT + 16

_ORDER = np.array([16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15], np.int64)
_RUN_EXTRA = np.array([0] * 8 + [i // 4 for i in range(4, 24)] + [0], np.int64)
_RUN_BASE = np.array([3 + int(n) for n in np.cumsum([0, *(1 << _RUN_EXTRA[:-2])])] + [258], np.int64)
_DISTANCE_EXTRA = np.array([0, 0] + [i // 2 for i in range(28)], np.int64)
_DISTANCE_BASE = np.array([1 + int(n) for n in np.cumsum([0, *(1 << _DISTANCE_EXTRA[:-1])])], np.int64)
_CRC_32 = slicing_table(0xEDB88320)


@jit
def _crc32(data, start, end):
    """Return the CRC-32 of gzip of `data[start:end]`."""
    state = uint64(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        word = load_u64_le(data, at) ^ state
        state = uint64(0)
        for row in range(8):
            state ^= _CRC_32[(7 - row) * 256 + int64((word >> uint64(8 * row)) & uint64(255))]
        at += 8
    while at < end:
        state = _CRC_32[int64((state ^ uint64(data[at])) & uint64(255))] ^ (state >> uint64(8))
        at += 1
    return int64(state ^ uint64(0xFFFFFFFF))


@jit
def _build_table(work, first, count, table, most_bits, is_distances):
    """
    Make a table from the lengths of `count` codes at `first`; 0: no code.

    Returns:
        How many bits it is looked up with; BAD: no complete set of codes, or one of too many bits. Of distances one
        code of one bit is enough, or none.
    """
    work[_COUNTS : _COUNTS + 16] = 0
    for i in range(first, first + count):
        work[_COUNTS + work[i]] += 1
    bits = int64(15)
    while bits and work[_COUNTS + bits] == 0:
        bits -= 1
    if bits > most_bits or (bits == 0 and not is_distances):
        return int64(BAD)
    left, code = int64(1), int64(0)
    for length in range(1, bits + 1):
        left = 2 * left - work[_COUNTS + length]
        if left < 0:
            return int64(BAD)
        work[_NEXT + length] = code
        code = (code + work[_COUNTS + length]) << 1
    if left and not (is_distances and bits <= 1):
        return int64(BAD)
    bits = max(bits, int64(1))
    work[table : table + (1 << bits)] = 0
    for i in range(count):
        length = int64(work[first + i])
        if length:
            code = int64(work[_NEXT + length])
            work[_NEXT + length] += 1
            place = int64(0)  # codes begin with their highest bit, the stream with its lowest
            for _ in range(length):
                place = place << 1 | code & 1
                code >>= 1
            while place < 1 << bits:
                work[table + place] = i << 4 | length
                place += 1 << length
    return bits


def new_work() -> np.ndarray:
    """Return work memory: an int32 array of WORDS, with the tables of blocks with fixed codes."""
    return _NEW_WORK.copy()


def _with_fixed_codes() -> np.ndarray:
    lengths = np.repeat(np.array([8, 9, 7, 8], np.int32), [144, 112, 24, 8])
    work = np.concatenate([np.zeros(WORDS, np.int32), lengths])  # 288 codes are more than any other block has
    build = _build_table.py_func  # without compiling it
    build(work, WORDS, len(lengths), _FIXED_LITERALS, _FIXED_LITERAL_BITS, False)
    work[WORDS : WORDS + 32] = _FIXED_DISTANCE_BITS
    build(work, WORDS, 32, _FIXED_DISTANCES, _FIXED_DISTANCE_BITS, True)
    return work[:WORDS]


_NEW_WORK = _with_fixed_codes()


@jit
def _read_lengths(data, bit, stop_bit, work):
    """
    Read the code lengths of a dynamic block, and make its tables.

    Returns:
        (the position behind them, the bits of both tables); the position is BAD for what is not accepted.
    """
    none = int64(0)
    word = load_u64_le(data, bit >> 3) >> uint64(bit & 7)
    literals = int64(word & uint64(31)) + 257
    distances = int64(word >> uint64(5) & uint64(31)) + 1
    codes = int64(word >> uint64(10) & uint64(15)) + 4
    bit += 14
    if literals > _MOST_LITERALS or distances > _MOST_DISTANCES:
        return int64(BAD), none, none
    work[_LENGTHS : _LENGTHS + 19] = 0
    word = load_u64_le(data, bit >> 3) >> uint64(bit & 7)  # 57 bits and more: 19 codes of three
    for i in range(codes):
        work[_LENGTHS + _ORDER[i]] = int64(word & uint64(7))
        word >>= uint64(3)
    bit += 3 * codes
    bits = _build_table(work, int64(_LENGTHS), int64(19), int64(_CODE_LENGTHS), int64(_LENGTHS_BITS), False)
    if bits < 0:
        return int64(BAD), none, none
    done, last = int64(0), int64(-1)
    while done < literals + distances:
        if bit > stop_bit:
            return int64(BAD), none, none
        word = load_u64_le(data, bit >> 3) >> uint64(bit & 7)
        entry = int64(work[_CODE_LENGTHS + int64(word & uint64((1 << bits) - 1))])
        length, symbol = entry & 15, entry >> 4
        word >>= uint64(length)
        bit += length
        times = int64(1)
        if symbol < _REPEAT:
            last = symbol
        elif symbol == _REPEAT:
            times = 3 + int64(word & uint64(3))
            bit += 2
        elif symbol == _ZEROS:
            times, last = 3 + int64(word & uint64(7)), int64(0)
            bit += 3
        else:
            times, last = 11 + int64(word & uint64(127)), int64(0)
            bit += 7
        if last < 0 or times > literals + distances - done:
            return int64(BAD), none, none
        for i in range(times):
            work[_LENGTHS + done + i] = last
        done += times
    if work[_LENGTHS + _END_OF_BLOCK] == 0:
        return int64(BAD), none, none
    literal_bits = _build_table(work, int64(_LENGTHS), literals, int64(_LITERALS), int64(_CODE_BITS), False)
    first = _LENGTHS + literals
    distance_bits = _build_table(work, first, distances, int64(_DISTANCES), int64(_CODE_BITS), True)
    if literal_bits < 0 or distance_bits < 0:
        return int64(BAD), none, none
    return bit, literal_bits, distance_bits


@jit
def _read_codes(data, bit, stop_bit, out, begin, at, room_end, work, literals, literal_bits, distances, distance_bits):
    """Unpack a block's codes; returns (the position behind them or BAD, the end of the output)."""
    literal_mask, distance_mask = uint64((1 << literal_bits) - 1), uint64((1 << distance_bits) - 1)
    while bit <= stop_bit:
        # At least 57 bits: the 48 of a run and its distance.
        word = load_u64_le(data, bit >> 3) >> uint64(bit & 7)
        entry = int64(work[literals + int64(word & literal_mask)])
        length, symbol = entry & 15, entry >> 4
        bit += length
        if symbol < _END_OF_BLOCK:
            if length == 0 or at >= room_end:
                break
            out[at] = symbol
            at += 1
            continue
        if symbol == _END_OF_BLOCK:
            return bit, at
        symbol -= _END_OF_BLOCK + 1
        if symbol >= _RUN_BASE.size:
            break
        word >>= uint64(length)
        extra = _RUN_EXTRA[symbol]
        run = _RUN_BASE[symbol] + int64(word & uint64((1 << extra) - 1))
        word >>= uint64(extra)
        bit += extra
        entry = int64(work[distances + int64(word & distance_mask)])
        length, symbol = entry & 15, entry >> 4
        if length == 0 or symbol >= _DISTANCE_BASE.size:
            break
        word >>= uint64(length)
        extra = _DISTANCE_EXTRA[symbol]
        distance = _DISTANCE_BASE[symbol] + int64(word & uint64((1 << extra) - 1))
        bit += length + extra
        if distance > at - begin or run > room_end - at:
            break
        for i in range(at, at + run):
            out[i] = out[i - distance]
        at += run
    return int64(BAD), at


@jit
def unpack_small_gzip(data, source, end, out, at, room_end, work):
    """
    Unpack the stream at `data[source:end]` to `out[at:room_end]`; all of that range may be overwritten.

    Args:
        data: uint8 array with 8 readable bytes after `end`.
        out: uint8 array, not `data`.
        work: int32 array of WORDS that began as `new_work()`.
    Returns:
        The unpacked length, or BAD: it is damaged, odd, or does not fit.
    """
    if end - source < _HEADER_BYTES + _TRAILER_BYTES:
        return int64(BAD)
    if int64(load_u64_le(data, source) & uint64(0xFFFFFFFF)) != _PLAIN_HEADER:
        return int64(BAD)
    stop = end - _TRAILER_BYTES
    begin, bit, stop_bit = at, 8 * (source + _HEADER_BYTES), 8 * stop
    is_last = False
    while not is_last:
        if bit > stop_bit:
            return int64(BAD)
        word = load_u64_le(data, bit >> 3) >> uint64(bit & 7)
        is_last, kind = word & uint64(1) == uint64(1), int64(word >> uint64(1) & uint64(3))
        bit += 3
        if kind == _STORED:
            byte = (bit + 7) >> 3
            word = load_u64_le(data, byte)
            size = int64(word & uint64(0xFFFF))
            byte += 4
            if size ^ int64(word >> uint64(16) & uint64(0xFFFF)) != 0xFFFF or size > min(stop - byte, room_end - at):
                return int64(BAD)
            copy_bytes(out, at, data, byte, size)
            at += size
            bit = 8 * (byte + size)
            continue
        literals, distances = int64(_FIXED_LITERALS), int64(_FIXED_DISTANCES)
        literal_bits, distance_bits = int64(_FIXED_LITERAL_BITS), int64(_FIXED_DISTANCE_BITS)
        if kind == _DYNAMIC:
            if bit > stop_bit:
                return int64(BAD)
            bit, literal_bits, distance_bits = _read_lengths(data, bit, stop_bit, work)
            literals, distances = int64(_LITERALS), int64(_DISTANCES)
        elif kind != _FIXED:
            return int64(BAD)
        if bit < 0:
            return int64(BAD)
        bit, at = _read_codes(
            data, bit, stop_bit, out, begin, at, room_end, work, literals, literal_bits, distances, distance_bits
        )
        if bit < 0:
            return int64(BAD)
    if (bit + 7) >> 3 != stop:
        return int64(BAD)
    trailer = load_u64_le(data, stop)
    length = at - begin
    if int64(trailer >> uint64(32)) != length or int64(trailer & uint64(0xFFFFFFFF)) != _crc32(out, begin, at):
        return int64(BAD)
    return length
