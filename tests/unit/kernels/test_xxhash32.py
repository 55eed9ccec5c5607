"""xxHash32: the values its specification gives, and agreement with a slow twin."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernels.checksums import xxhash32

_MASK = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> (32 - count)) & _MASK


def _slow_xxhash32(data: bytes) -> int:
    lanes = [_P1 + _P2 & _MASK, _P2, 0, -_P1 & _MASK]
    whole = len(data) // 16 * 16
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        lane = at // 4 % 4
        lanes[lane] = _rotate(lanes[lane] + word * _P2 & _MASK, 13) * _P1 & _MASK
    state = sum(_rotate(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)) if whole else _P5
    state += len(data)
    rest = data[whole:]
    while len(rest) >= 4:
        state = _rotate(state + int.from_bytes(rest[:4], "little") * _P3 & _MASK, 17) * _P4 & _MASK
        rest = rest[4:]
    for byte in rest:
        state = _rotate(state + byte * _P5 & _MASK, 11) * _P1 & _MASK
    state &= _MASK
    state = (state ^ state >> 15) * _P2 & _MASK
    state = (state ^ state >> 13) * _P3 & _MASK
    return state ^ state >> 16


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", 0x02CC5D05, id="empty"),
        pytest.param(b"abc", 0x32D153FF, id="short"),
        pytest.param(b"Nobody inspects the spammish repetition", 0xE2293B2F, id="long"),
    ],
)
def test_xxhash32_of_published_example_is_published_value(data: bytes, expected: int) -> None:
    """The hash is the one lz4 means."""
    assert expected == xxhash32(data)


@pytest.mark.kernels
@settings(deadline=None)
@given(st.binary(max_size=200))
def test_xxhash32_of_any_bytes_equals_slow_twin(data: bytes) -> None:
    """Every length takes the right path through the lanes."""
    assert _slow_xxhash32(data) == xxhash32(data)
