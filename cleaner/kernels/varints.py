"""Writes zig-zag varints (R-221), and keys and values after their lengths (R-220)."""

from __future__ import annotations

from numba import uint64

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.memory import copy_bytes


@inlined_jit
def varint_size(value):
    """Return how many bytes `write_varint` takes for an int64."""
    word = (uint64(value) << uint64(1)) ^ uint64(value >> 63)
    size = 1
    while word >= uint64(128):
        word >>= uint64(7)
        size += 1
    return size


@inlined_jit
def write_varint(out, at, value):
    """Write an int64 in its shortest form; returns the position after it."""
    word = (uint64(value) << uint64(1)) ^ uint64(value >> 63)
    while word >= uint64(128):
        out[at] = (word & uint64(127)) | uint64(128)
        word >>= uint64(7)
        at += 1
    out[at] = word
    return at + 1


@jit
def write_field(out, at, source, source_at, length):
    """Write a length, -1 for null, and that many bytes of `source`; returns the position after them."""
    at = write_varint(out, at, length)
    if length > 0:
        copy_bytes(out, at, source, source_at, length)
        at += length
    return at
