"""
CRC-32C (Castagnoli), the checksum of record batches (R-201) and producer snapshots (R-125).

The processor's own instruction takes three cycles for eight bytes but can start every cycle, so long inputs run in
three parallel lanes; tables for the effect of appended zeros on a checksum combine the lanes. If the target or the
processor has neither SSE4.2 nor the ARM CRC extension, tables for eight bytes a step are used instead.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types, uint32, uint64
from numba.extending import intrinsic

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import load_u64_le
from cleaner.kernels.target import TARGET

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_LONG_LANE = 2048  # bytes a lane; three of them and their tables fit into the first-level cache
_SHORT_LANE = 256


def _shift_byte(states: np.ndarray, polynomial: int = _POLYNOMIAL) -> np.ndarray:
    """Return checksum states after one zero byte."""
    for _ in range(8):
        states = np.where(states & 1, (states >> 1) ^ polynomial, states >> 1)
    return states


def _apply(matrix: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Multiply bit vectors by a matrix of 32 columns over GF(2)."""
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= np.where(states >> bit & 1, matrix[bit], 0)
    return result


def _append_zeros_table(count: int) -> np.ndarray:
    """Return four tables of 256 words: XOR of one word each gives the checksum state after `count` zero bytes."""
    matrix = np.int64(1) << np.arange(32)
    power = _shift_byte(matrix)
    while count:
        if count & 1:
            matrix = _apply(power, matrix)
        power = _apply(power, power)
        count >>= 1
    words = (np.arange(256) << np.arange(0, 32, 8)[:, None]).ravel()
    return _apply(matrix, words).astype(np.uint64)


def slicing_table(polynomial: int) -> np.ndarray:
    """Return eight rows of 256 words: a byte's effect on a checksum's state, and that with 1 to 7 zeros after it."""
    rows = [_shift_byte(np.arange(256), polynomial)]
    for _ in range(7):
        rows.append((rows[-1] >> 8) ^ rows[0][rows[-1] & 255])
    return np.concatenate(rows).astype(np.uint64)


_LONG_ONE, _LONG_TWO = _append_zeros_table(_LONG_LANE), _append_zeros_table(2 * _LONG_LANE)
_SHORT_ONE, _SHORT_TWO = _append_zeros_table(_SHORT_LANE), _append_zeros_table(2 * _SHORT_LANE)
_SLICING = slicing_table(_POLYNOMIAL)

HAS_INSTRUCTION = TARGET.crc_instruction


@intrinsic
def _instruction_8_bytes(typing_context, state, word):
    def generate(context, builder, signature, arguments):
        i32, i64 = ir.IntType(32), ir.IntType(64)
        if HAS_INSTRUCTION == "x86":
            shape = ir.FunctionType(i64, [i64, i64])
            step = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=shape)
            return builder.call(step, arguments)
        shape = ir.FunctionType(i32, [i32, i64])
        step = builder.module.declare_intrinsic("llvm.aarch64.crc32cx", fnty=shape)
        return builder.zext(builder.call(step, [builder.trunc(arguments[0], i32), arguments[1]]), i64)

    return types.uint64(types.uint64, types.uint64), generate


@jit
def _table_8_bytes(state, word):
    word ^= state
    result = uint64(0)
    for row in range(8):
        result ^= _SLICING[(7 - row) * 256 + int((word >> uint64(8 * row)) & uint64(255))]
    return result


_step = _instruction_8_bytes if HAS_INSTRUCTION else _table_8_bytes


@jit
def _append_zeros(table, state):
    return (
        table[state & uint64(255)]
        ^ table[uint64(256) + ((state >> uint64(8)) & uint64(255))]
        ^ table[uint64(512) + ((state >> uint64(16)) & uint64(255))]
        ^ table[uint64(768) + (state >> uint64(24))]
    )


@jit
def crc32c_range(data, start, end):
    """Return the CRC-32C of `data[start:end]` as a uint32; `data` is a uint8 array, `end` within it."""
    state = uint64(0xFFFFFFFF)
    at = start
    while at + 3 * _LONG_LANE <= end:
        second, third = uint64(0), uint64(0)
        for i in range(at, at + _LONG_LANE, 8):
            state = _step(state, load_u64_le(data, i))
            second = _step(second, load_u64_le(data, i + _LONG_LANE))
            third = _step(third, load_u64_le(data, i + 2 * _LONG_LANE))
        state = _append_zeros(_LONG_TWO, state) ^ _append_zeros(_LONG_ONE, second) ^ third
        at += 3 * _LONG_LANE
    while at + 3 * _SHORT_LANE <= end:
        second, third = uint64(0), uint64(0)
        for i in range(at, at + _SHORT_LANE, 8):
            state = _step(state, load_u64_le(data, i))
            second = _step(second, load_u64_le(data, i + _SHORT_LANE))
            third = _step(third, load_u64_le(data, i + 2 * _SHORT_LANE))
        state = _append_zeros(_SHORT_TWO, state) ^ _append_zeros(_SHORT_ONE, second) ^ third
        at += 3 * _SHORT_LANE
    while at + 8 <= end:
        state = _step(state, load_u64_le(data, at))
        at += 8
    while at < end:
        state = _SLICING[(state ^ uint64(data[at])) & uint64(255)] ^ (state >> uint64(8))
        at += 1
    return uint32(state ^ uint64(0xFFFFFFFF))
