"""Copies within the output, as lz4 and snappy ask for them: one byte after the other is what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernels.compile import jit
from cleaner.kernels.matches import copy_match
from tests.unit.kernels.arrays import Bytes, guarded

pytestmark = pytest.mark.kernels


@jit
def copy(out: Bytes, at: int, end: int, offset: int, size: int) -> None:
    """Call what is compiled into its callers."""
    copy_match(out, at, end, offset, size)


def slowly(data: bytes, offset: int, size: int) -> bytes:
    """Append `size` bytes, each from `offset` before it."""
    whole = bytearray(data)
    for _ in range(size):
        whole.append(whole[-offset])
    return bytes(whole)


def copied(data: bytes, offset: int, size: int, spare: int) -> bytes:
    """Copy with the kernel into room of which `spare` bytes are left; nothing behind it changes."""
    with guarded() as guards:
        out = guards.room(len(data) + size + spare)
        out[: len(data)] = np.frombuffer(data, np.uint8)
        copy(out, len(data), out.size, offset, size)
        return bytes(out[: len(data) + size])


@pytest.mark.parametrize("offset", range(1, 41))
def test_every_size_and_room(offset: int) -> None:
    """Short and long, overlapping or not, with room for a step behind it and without."""
    data = bytes(range(1, 60))
    for size in range(1, 100):
        for spare in (0, 1, 7, 8, 15, 16, 40):
            assert copied(data, offset, size, spare) == slowly(data, offset, size)


@settings(deadline=None, max_examples=200)
@given(st.binary(min_size=1, max_size=80), st.integers(1, 80), st.integers(1, 5000), st.integers(0, 40))
def test_long_matches(data: bytes, offset: int, size: int, spare: int) -> None:
    """Any content."""
    offset = min(offset, len(data))
    assert copied(data, offset, size, spare) == slowly(data, offset, size)
