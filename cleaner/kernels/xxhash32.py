"""xxHash32 with seed 0: the check byte and the block checksums of lz4 frames (R-252)."""

from __future__ import annotations

from numba import uint32, uint64

from cleaner.kernels.compile import jit

# The five primes of the algorithm.
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_START_1, _START_2, _START_4 = (_PRIME_1 + _PRIME_2) & 0xFFFFFFFF, _PRIME_2, -_PRIME_1 & 0xFFFFFFFF


@jit
def _rotate(value, count):
    return uint32((value << uint32(count)) | (value >> uint32(32 - count)))


@jit
def _word(data, position):
    return uint32(
        uint32(data[position])
        | uint32(data[position + 1]) << uint32(8)
        | uint32(data[position + 2]) << uint32(16)
        | uint32(data[position + 3]) << uint32(24)
    )


@jit
def _round(state, word):
    return uint32(_rotate(uint32(state + uint32(word * uint32(_PRIME_2))), 13) * uint32(_PRIME_1))


@jit
def xxhash32_range(data, start, end):
    """Return the xxHash32 of `data[start:end]` as a uint32; `data` is a uint8 array, `end` within it."""
    position = start
    if end - start >= 16:
        one, two, three, four = uint32(_START_1), uint32(_START_2), uint32(0), uint32(_START_4)
        while position + 16 <= end:
            one = _round(one, _word(data, position))
            two = _round(two, _word(data, position + 4))
            three = _round(three, _word(data, position + 8))
            four = _round(four, _word(data, position + 12))
            position += 16
        state = uint32(_rotate(one, 1) + _rotate(two, 7) + _rotate(three, 12) + _rotate(four, 18))
    else:
        state = uint32(_PRIME_5)
    state = uint32(state + uint32(uint64(end - start) & uint64(0xFFFFFFFF)))
    while position + 4 <= end:
        state = uint32(state + uint32(_word(data, position) * uint32(_PRIME_3)))
        state = uint32(_rotate(state, 17) * uint32(_PRIME_4))
        position += 4
    while position < end:
        state = uint32(state + uint32(uint32(data[position]) * uint32(_PRIME_5)))
        state = uint32(_rotate(state, 11) * uint32(_PRIME_1))
        position += 1
    state = uint32((state ^ (state >> uint32(15))) * uint32(_PRIME_2))
    state = uint32((state ^ (state >> uint32(13))) * uint32(_PRIME_3))
    return uint32(state ^ (state >> uint32(16)))
