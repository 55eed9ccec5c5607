"""The digests of keys against Python's own numbers, `mmh3` and a slow SipHash."""

from __future__ import annotations

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernels.compile import jit
from cleaner.kernels.digest import SECRET_WORDS, SHORT_BYTES, digest_key, murmur3_low, siphash13
from tests.unit.kernels.arrays import padded
from tests.unit.kernels.digesting import slow_short_digest

pytestmark = pytest.mark.kernels

_MASK = (1 << 64) - 1
words = st.integers(0, _MASK)


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> (64 - count)) & _MASK


def _sip_rounds(state: list[int], count: int) -> None:
    for _ in range(count):
        v0, v1, v2, v3 = state
        v0 = (v0 + v1) & _MASK
        v1 = _rotate(v1, 13) ^ v0
        v0 = _rotate(v0, 32)
        v2 = (v2 + v3) & _MASK
        v3 = _rotate(v3, 16) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = _rotate(v3, 21) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotate(v1, 17) ^ v2
        v2 = _rotate(v2, 32)
        state[:] = v0, v1, v2, v3


def slow_siphash(data: bytes, key0: int, key1: int, compression: int = 1, finalization: int = 3) -> int:
    """SipHash-c-d as its paper words it."""
    state = [
        key0 ^ 0x736F6D6570736575,
        key1 ^ 0x646F72616E646F6D,
        key0 ^ 0x6C7967656E657261,
        key1 ^ 0x7465646279746573,
    ]
    whole = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for at in range(0, len(whole), 8):
        word = int.from_bytes(whole[at : at + 8], "little")
        state[3] ^= word
        _sip_rounds(state, compression)
        state[0] ^= word
    state[2] ^= 0xFF
    _sip_rounds(state, finalization)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def test_slow_siphash_has_the_papers_example() -> None:
    """The twin itself is right: SipHash-2-4 of 00..0e under the key 00..0f is the paper's a129ca6149be45e5."""
    key = bytes(range(16))
    key0, key1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    assert slow_siphash(bytes(range(15)), key0, key1, 2, 4) == 0xA129CA6149BE45E5


@pytest.mark.parametrize("size", range(65))
def test_murmur3_low_at_every_size_is_low_half_of_mmh3(size: int) -> None:
    """The low 64 bits of MurmurHash3 x64 128, which `mmh3.hash64` gives first."""
    key = bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    low, _ = mmh3.hash64(key, 0, signed=False)
    assert mmh3.hash128(key, 0) & _MASK == low
    assert murmur3_low(padded(b"\xff" * 3 + key), 3, size) == low


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_murmur3_low_of_any_key_ignores_neighbouring_bytes(key: bytes, around: bytes) -> None:
    """The wide loads behind a key's end do not change its digest."""
    low, _ = mmh3.hash64(key, 0, signed=False)
    assert murmur3_low(padded(around + key + around), len(around), len(key)) == low


@pytest.mark.parametrize("size", [*range(65), 255, 256, 257])
def test_siphash13_at_every_size_equals_slow_twin(size: int) -> None:
    """All tails, and lengths beyond the one byte that is hashed of them."""
    key = bytes(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    found = siphash13(padded(b"\xff" * 5 + key + b"\xff" * 9), 5, size, np.uint64(size), np.uint64(_MASK - size))
    assert found == slow_siphash(key, size, _MASK - size)


@given(st.binary(max_size=300), words, words)
def test_siphash13_of_any_key_equals_slow_twin(key: bytes, key0: int, key1: int) -> None:
    """Any bytes under any key."""
    assert siphash13(padded(key), 0, len(key), np.uint64(key0), np.uint64(key1)) == slow_siphash(key, key0, key1)


@jit
def _digest(data, start, size, secret):  # type: ignore[no-untyped-def]
    return digest_key(data, start, size, secret)


def _found(key: bytes, secret: list[int], around: bytes = b"\xff" * 9) -> tuple[int, int]:
    found = _digest(padded(around + key + around), len(around), len(key), np.array(secret, np.uint64))
    return int(found[0]), int(found[1])


_SECRET = [pow(3, 1000 + i, 1 << 64) for i in range(SECRET_WORDS)]


@pytest.mark.parametrize("size", range(SHORT_BYTES + 1))
def test_digest_of_a_short_key_equals_slow_twin_at_every_size(size: int) -> None:
    """With all bits set, and with none."""
    for key in (bytes(size), b"\xff" * size, bytes(range(size))):
        assert _found(key, _SECRET) == slow_short_digest(key, _SECRET)


@given(st.binary(max_size=SHORT_BYTES), st.lists(words, min_size=SECRET_WORDS, max_size=SECRET_WORDS), st.binary())
def test_digest_of_any_short_key_equals_slow_twin(key: bytes, secret: list[int], around: bytes) -> None:
    """Whatever the secret, and the bytes next to the key."""
    assert _found(key, secret, around) == slow_short_digest(key, secret)


@given(st.binary(min_size=SHORT_BYTES + 1, max_size=SHORT_BYTES + 40))
def test_digest_of_a_longer_key_is_siphash_and_murmur(key: bytes) -> None:
    """Under the first two words of the secret."""
    assert _found(key, _SECRET) == (slow_siphash(key, *_SECRET[:2]), mmh3.hash64(key, 0, signed=False)[0])


def test_short_keys_that_are_alike_have_different_words() -> None:
    """Zeros at the end, a changed bit at any place, and another length: either word alone tells them apart."""
    keys = {bytes(size) for size in range(SHORT_BYTES + 1)}
    keys |= {(1 << bit).to_bytes(size, "little") for size in (7, 8, 16, 31, 32) for bit in range(8 * size)}
    found = [_found(key, _SECRET) for key in keys]
    assert [len(set(column)) for column in zip(*found, strict=True)] == [len(keys)] * 2
