"""
Keys that collide in MurmurHash3 x64 128 under every seed, as anybody can make them.

The hash takes 16 bytes a step, mixes either half by a function that can be undone, and adds it to its state. A
difference in the highest bit of a sum never carries, so: flip the bit of the first half that the rotation moves to the
top, flip the bit of the second half that cancels it there, and in the next step flip the top bit of the first half,
which meets the difference left in the state. After 32 bytes the states are equal again: one bit of choice.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_INVERSE_1, _INVERSE_2 = pow(_C1, -1, 1 << 64), pow(_C2, -1, 1 << 64)


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> (64 - count)) & _MASK


def _flip_first(word: int, bit: int) -> int:
    """Return the word whose mix, as the first half of a step, differs in one bit."""
    mixed = _rotate(word * _C1 & _MASK, 31) * _C2 & _MASK
    return _rotate((mixed ^ 1 << bit) * _INVERSE_2 & _MASK, 64 - 31) * _INVERSE_1 & _MASK


def _flip_second(word: int, bit: int) -> int:
    """Return the word whose mix, as the second half of a step, differs in one bit."""
    mixed = _rotate(word * _C2 & _MASK, 33) * _C1 & _MASK
    return _rotate((mixed ^ 1 << bit) * _INVERSE_1 & _MASK, 64 - 33) * _INVERSE_2 & _MASK


def _pair(number: int) -> tuple[bytes, bytes]:
    """Return two different blocks of 32 bytes that leave the hash in the same state."""
    words = [number * 4 + i + 1 for i in range(4)]
    twin = [_flip_first(words[0], 63 - 27), _flip_second(words[1], 63 - 31), _flip_first(words[2], 63), words[3]]
    return struct.pack("<4Q", *words), struct.pack("<4Q", *twin)


def colliding_keys(bits: int) -> list[bytes]:
    """Return 2**bits different keys of 32 * bits bytes with one hash."""
    pairs = [_pair(number) for number in range(bits)]
    return [
        b"".join(pair[choice >> bit & 1] for bit, pair in enumerate(pairs)) for choice in range(1 << bits)
    ]  # fmt: skip
