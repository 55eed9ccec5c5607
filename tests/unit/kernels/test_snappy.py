"""The snappy kernel: any bytes come back through another library, and what it unpacks that library unpacks alike."""

from __future__ import annotations

import random

import cramjam
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.kernels import PAD_BYTES, snappy
from tests.unit.kernels.arrays import guarded

pytestmark = pytest.mark.kernels


def _pack(data: bytes) -> bytes:
    """Pack one block from the middle of an array into an array no larger than promised."""
    source = np.frombuffer(bytearray(b"#" * 3 + data), np.uint8)
    target = np.full(2 + 32 + len(data) + len(data) // 6 + PAD_BYTES, 0xEE, np.uint8)
    table = np.full(1 << snappy.TABLE_BITS, 0xFFFF, np.uint16)
    end = int(snappy.compress_block(source, 3, source.size, table, target, 2))
    assert bytes(target[:2]) == b"\xee\xee"
    assert bytes(target[-PAD_BYTES:]) == b"\xee" * PAD_BYTES
    return bytes(target[2:end])


@pytest.mark.parametrize("size", [1, 14, 15, 16, 17, 59, 60, 61, 62, 255, 256, 257, 4096, 32768, 65535, 65536])
@pytest.mark.parametrize("kind", ["noise", "zeros", "steps", "words"])
def test_packed_block_of_any_size_is_unpacked(size: int, kind: str) -> None:
    """Literals and copies of every length class, near and far, have the form that snappy requires."""
    generator = random.Random(size)
    data = {
        "noise": generator.randbytes(size),
        "zeros": bytes(size),
        "steps": b"".join(i.to_bytes(2, "big") for i in range(size // 2 + 1))[:size],
        "words": b"".join(generator.choices([b"one", b"fourteen words", generator.randbytes(90)], k=size))[:size],
    }[kind]
    assert bytes(cramjam.snappy.decompress_raw(_pack(data))) == data


_PIECES = st.one_of(
    st.binary(max_size=70),
    st.builds(lambda byte, count: bytes([byte]) * count, st.integers(0, 255), st.integers(0, 300)),
)


@given(st.lists(st.tuples(_PIECES, st.integers(1, 3)), min_size=1, max_size=40), st.binary(min_size=1, max_size=20))
def test_packed_block_of_repeated_pieces_is_unpacked(pieces: list[tuple[bytes, int]], last: bytes) -> None:
    """Overlapping copies, long copies and copies that touch the end give the data back."""
    data = (b"".join(piece * count for piece, count in pieces) + last)[:65536]
    assert bytes(cramjam.snappy.decompress_raw(_pack(data))) == data


def _unpack(block: bytes, room: int) -> bytes | None:
    """Unpack one block from and to the middle of arrays; None when the kernel refuses it."""
    with guarded() as guards:
        out = guards.room(5 + room)
        source = guards.bytes(b"#" * 3 + block)
        end = 3 + len(block)
        length, elements = snappy.read_length(source, 3, end)
        if length < 0 or length > room:
            return None
        assert 3 < elements <= end
        is_sound = snappy.decompress_elements(source, elements, end, out, 5, 5 + length)
        assert bytes(out[:5]) == bytes(5)
        assert not out[5 + length :].any()
    return bytes(out[5 : 5 + length]) if is_sound else None


def _library_unpack(block: bytes) -> bytes | None:
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return None


def _some_data(generator: random.Random, size: int) -> bytes:
    return b"".join(generator.choices([b"one", b"fourteen words", generator.randbytes(90), bytes(70)], k=size))[:size]


@pytest.mark.parametrize("size", [1, 3, 59, 60, 61, 255, 256, 257, 300, 4096, 65535, 65536, 70000, 1 << 20])
def test_block_the_library_packed_is_unpacked(size: int) -> None:
    """Of any size, with literals longer than 64 KiB."""
    generator = random.Random(size)
    for data in (_some_data(generator, size), generator.randbytes(size), bytes(size)):
        assert _unpack(bytes(cramjam.snappy.compress_raw(data)), size) == data


def test_block_cut_anywhere_is_refused() -> None:
    """Every truncation: the elements no longer fill the length declared."""
    packed = bytes(cramjam.snappy.compress_raw(_some_data(random.Random(3), 900)))
    assert [end for end in range(len(packed)) if _unpack(packed[:end], 1000) is not None] == []


@settings(deadline=None, max_examples=500)
@given(
    st.lists(st.tuples(_PIECES, st.integers(1, 3)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
def test_changed_block_is_unpacked_as_by_the_library_or_refused(
    pieces: list[tuple[bytes, int]], changes: list[tuple[int, int]]
) -> None:
    """Whatever the kernel accepts the library accepts, with the same bytes."""
    packed = bytearray(cramjam.snappy.compress_raw(b"".join(piece * count for piece, count in pieces)))
    for position, byte in changes:
        packed[position % len(packed)] = byte
    found = _unpack(bytes(packed), 100_000)
    assert found is None or found == _library_unpack(bytes(packed))


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 300), st.binary(max_size=60))
@example(100, b"\x00a" + b"\xff\x01\x00\x00\x00")
@example(100, b"\xfc\xff\xff\xff\xff")
@example(100, b"\xfc\xff\xff")
@example(4, b"\x00a\x01\x00")
@example(5, b"\x00a\x01\x01")
def test_random_elements_are_unpacked_as_by_the_library_or_refused(length: int, elements: bytes) -> None:
    """Offsets of 0 and before the start, lengths beyond the end, elements cut off."""
    block = (bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])) + elements
    found = _unpack(block, 400)
    assert found is None or found == _library_unpack(block)
    if length and found is None:
        assert _library_unpack(block) is None
