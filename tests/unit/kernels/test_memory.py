"""Words at any alignment, and the machine's instructions."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import uint64

from cleaner.kernels import memory
from cleaner.kernels.compile import jit
from tests.unit.kernels.arrays import guarded, padded

pytestmark = pytest.mark.kernels

words = st.integers(0, 2**64 - 1)


@jit
def _loads(data, at):  # type: ignore[no-untyped-def]
    return (
        memory.load_u64_le(data, at),
        memory.load_u64_be(data, at),
        memory.load_u32_be(data, at),
        memory.load_u16_be(data, at),
    )


@jit
def _stores(data, at, word):  # type: ignore[no-untyped-def]
    memory.store_u64_be(data, at, word)
    memory.store_u32_be(data, at + 8, word)
    memory.store_u16_be(data, at + 12, word)


@jit
def _copy(target, target_at, source, source_at, size):  # type: ignore[no-untyped-def]
    memory.copy_bytes(target, target_at, source, source_at, size)


@jit
def _arithmetic(left, right, count):  # type: ignore[no-untyped-def]
    return memory.multiply_high(left, right), memory.rotate_left(left, uint64(count))  # type: ignore[call-arg]


@given(st.binary(min_size=8, max_size=30), st.integers(0, 22))
def test_words_are_loaded_from_any_position(data: bytes, at: int) -> None:
    """Both orders of bytes, every width, any alignment."""
    at = min(at, len(data) - 8)
    little, big, half, quarter = _loads(padded(data), at)
    assert little == struct.unpack_from("<Q", data, at)[0]
    assert big == struct.unpack_from(">Q", data, at)[0]
    assert half == struct.unpack_from(">I", data, at)[0]
    assert quarter == struct.unpack_from(">H", data, at)[0]


@given(words, st.integers(0, 9))
def test_words_are_stored_at_any_position_and_nowhere_else(word: int, at: int) -> None:
    """The low part of the word, highest byte first; neighbours are left alone."""
    with guarded() as guards:
        data = guards.room(at + 14)
        _stores(data, at, np.uint64(word))
        expected = bytes(at) + struct.pack(">QIH", word, word & 0xFFFFFFFF, word & 0xFFFF)
        assert data.tobytes() == expected


@given(st.binary(max_size=80), st.integers(0, 20))
def test_bytes_are_copied_exactly(data: bytes, at: int) -> None:
    """Not one byte more, whatever the size."""
    with guarded() as guards:
        target = guards.room(at + len(data))
        _copy(target, at, padded(data), 0, len(data))
        assert target.tobytes() == bytes(at) + data


@given(words, words, st.integers(0, 63))
def test_wide_product_and_rotation_are_arithmetic(left: int, right: int, count: int) -> None:
    """The upper half of the product, and a rotation by any count."""
    high, rotated = _arithmetic(np.uint64(left), np.uint64(right), count)
    assert high == left * right >> 64
    assert rotated == ((left << count) | (left >> (64 - count))) & (2**64 - 1)
