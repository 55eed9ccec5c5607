"""Shared parts of lz4 and snappy: measuring a match, and copying literals and matches."""

from __future__ import annotations

from llvmlite import ir
from numba import int64, types
from numba.extending import intrinsic

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.memory import copy_bytes, load_u8, load_u64_be, load_u64_le, store_u64_be

_STEP_BYTES = 16
_MAX_IN_STEPS = 256


@intrinsic
def _trailing_zeros(typing_context, word):
    """Return the number of trailing zero bits of a word that is not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@jit
def match_length(data, candidate, at, end):
    """Return how many bytes from `at`, up to `end`, equal those from `candidate`, an earlier position."""
    start = at
    while end - at >= 8:
        difference = load_u64_le(data, candidate) ^ load_u64_le(data, at)
        if difference:
            return at - start + int64(_trailing_zeros(difference) >> 3)
        candidate += 8
        at += 8
    while at < end and data[candidate] == data[at]:
        candidate += 1
        at += 1
    return at - start


@inlined_jit
def copy_literal(out, at, end, data, source, size):
    """
    Copy `size` bytes of `data` to `out[at:]`.

    It copies in steps of 16 bytes, which is faster: bytes after the copy, up to `end`, may change.
    """
    stop = at + size
    if size <= _MAX_IN_STEPS and end - stop >= _STEP_BYTES and data.size - source - size >= _STEP_BYTES:
        while at < stop:
            copy_bytes(out, at, data, source, _STEP_BYTES)
            at += _STEP_BYTES
            source += _STEP_BYTES
    else:
        copy_bytes(out, at, data, source, size)


@jit
def _copy_long_match(out, at, offset, size):
    """Copy `size` bytes, two steps or more, of `out` from `offset` before `at` to `at`, and change nothing behind."""
    source, stop = at - offset, at + size
    if offset < _STEP_BYTES:
        # The bytes come again after any multiple of the offset; a multiple of a step or more allows steps.
        first = source
        offset *= (_STEP_BYTES + offset - 1) // offset
        while at - first < offset:
            out[at] = load_u8(out, source)
            at += 1
            source += 1
        source = first
    while stop - at >= _STEP_BYTES:
        copy_bytes(out, at, out, source, _STEP_BYTES)
        at += _STEP_BYTES
        source += _STEP_BYTES
    while at < stop:
        out[at] = load_u8(out, source)
        at += 1
        source += 1


@inlined_jit
def copy_match(out, at, end, offset, size):
    """
    Copy `size` bytes of `out` from `offset` (at least 1) before `at` to `at`; the ranges may overlap.

    Bytes after the copy, up to `end`, may change; `end - at` is at least `size`.
    """
    source = at - offset
    stop = at + size
    if offset >= _STEP_BYTES and end - stop >= _STEP_BYTES:
        while at < stop:
            copy_bytes(out, at, out, source, _STEP_BYTES)
            at += _STEP_BYTES
            source += _STEP_BYTES
    elif size >= 2 * _STEP_BYTES:
        _copy_long_match(out, at, offset, size)
    elif offset >= 8 and end - stop >= 8:
        while at < stop:
            store_u64_be(out, at, load_u64_be(out, source))
            at += 8
            source += 8
    else:
        while at < stop:
            out[at] = load_u8(out, source)
            at += 1
            source += 1
