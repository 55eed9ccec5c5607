"""Zig-zag varints (R-221), one at a time, without a kernel."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)  # lengths repeat: three of them take as long as a twentieth of a small append
def encode_varint(value: int) -> bytes:
    """Return the shortest form of a number of 64 bits."""
    word = (value << 1) ^ (value >> 63)
    out = bytearray()
    while word >= 0x80:
        out.append(word & 0x7F | 0x80)
        word >>= 7
    out.append(word)
    return bytes(out)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it, in data whose structure has been checked."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
