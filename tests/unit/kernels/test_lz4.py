"""The lz4 kernel: the library's own bytes, and nothing unpacked that the library would refuse."""

from __future__ import annotations

import random

import cramjam
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.kernels import lz4
from tests.unit.kernels.arrays import guarded

pytestmark = pytest.mark.kernels

KINDS = ("noise", "zeros", "steps", "words", "letters")


def some_data(kind: str, size: int) -> bytes:
    """Make data with few, long, near or far matches."""
    generator = random.Random(size)
    return {
        "noise": lambda: generator.randbytes(size),
        "zeros": lambda: bytes(size),
        "steps": lambda: b"".join(i.to_bytes(2, "big") for i in range(size // 2 + 1))[:size],
        "words": lambda: b"".join(generator.choices([b"one", b"fourteen words", generator.randbytes(90)], k=size))[
            :size
        ],
        "letters": lambda: bytes(generator.choices(b"abc", k=size)),
    }[kind]()


def pack(data: bytes) -> bytes:
    """Pack one block from the middle of an array to a place no larger than promised."""
    with guarded() as guards:
        source = np.frombuffer(bytearray(b"#" * 3 + data), np.uint8)
        target = guards.room(2 + len(data) + len(data) // 255 + 16)
        table = np.full(1 << lz4.TABLE_BITS, 0xFFFF, np.uint16)
        end = int(lz4.compress_block(source, 3, source.size, table, target, 2))
        assert bytes(target[:2]) == bytes(2)
    return bytes(target[2:end])


def unpack(block: bytes, room: int) -> bytes | None:
    """Unpack one block from and to the middle of arrays; None when the kernel refuses it."""
    with guarded() as guards:
        out = guards.room(5 + room)
        out[:5] = 7
        source = np.frombuffer(bytearray(b"#" * 3 + block), np.uint8)
        end = int(lz4.decompress_block(source, 3, source.size, out, 5, 5 + room))
        assert bytes(out[:5]) == b"\7" * 5
    assert end == lz4.BAD_BLOCK or 5 <= end <= 5 + room
    return None if end == lz4.BAD_BLOCK else bytes(out[5:end])


def library_unpack(block: bytes, room: int) -> bytes | None:
    """Unpack with the library that Kafka's is; None when it refuses."""
    out = bytearray(room)
    try:
        return bytes(out[: cramjam.lz4.decompress_block_into(block, out, output_len=room)])
    except cramjam.DecompressionError:
        return None


@pytest.mark.parametrize("size", [1, 5, 11, 12, 13, 14, 15, 16, 17, 31, 270, 271, 4096, 32768, 65535, 65536])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_block_has_the_librarys_bytes_and_is_unpacked(kind: str, size: int) -> None:
    """Sizes around every margin; the fast compressor's choices, one by one (R-254)."""
    data = some_data(kind, size)
    packed = pack(data)
    assert packed == bytes(cramjam.lz4.compress_block(data, store_size=False))
    assert unpack(packed, size) == data
    assert unpack(packed, 65536 + 64) == data


_PIECES = st.one_of(
    st.binary(max_size=70),
    st.builds(lambda byte, count: bytes([byte]) * count, st.integers(0, 255), st.integers(0, 300)),
)
_DATA = st.builds(
    lambda pieces, last: (b"".join(piece * count for piece, count in pieces) + last)[:65536],
    st.lists(st.tuples(_PIECES, st.integers(1, 3)), min_size=1, max_size=40),
    st.binary(min_size=1, max_size=20),
)


@settings(deadline=None, max_examples=300)
@given(_DATA)
def test_block_of_repeated_pieces_has_the_librarys_bytes_and_is_unpacked(data: bytes) -> None:
    """Overlapping matches, long ones and literals of every length class."""
    packed = pack(data)
    assert packed == bytes(cramjam.lz4.compress_block(data, store_size=False))
    assert unpack(packed, len(data)) == data


@pytest.mark.parametrize("kind", KINDS)
def test_block_cut_anywhere_is_refused_unless_the_library_takes_it(kind: str) -> None:
    """Every truncation of a block, and of the room for it."""
    data = some_data(kind, 600)
    packed = pack(data)
    for end in range(len(packed)):
        found = unpack(packed[:end], 700)
        assert found is None or found == library_unpack(packed[:end], 700)
    for room in range(len(data)):
        assert unpack(packed, room) is None


@settings(deadline=None, max_examples=500)
@given(_DATA, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.integers(0, 3000))
def test_changed_block_is_unpacked_as_by_the_library_or_refused(
    data: bytes, changes: list[tuple[int, int]], room: int
) -> None:
    """Whatever the kernel accepts the library accepts with the same bytes, in the same room."""
    packed = bytearray(pack(data))
    for position, byte in changes:
        packed[position % len(packed)] = byte
    found = unpack(bytes(packed), room)
    assert found is None or found == library_unpack(bytes(packed), room)


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=60), st.integers(0, 400))
@example(b"\xff" * 60, 400)
@example(b"\x1fa\x01\x00" + b"\xff" * 50, 400)
@example(b"\x10a\x00\x00\x50aaaaa", 100)
@example(b"", 0)
def test_random_block_is_unpacked_as_by_the_library_or_refused(block: bytes, room: int) -> None:
    """Lengths without end, offsets of 0 and before the start."""
    found = unpack(block, room)
    assert found is None or not found or found == library_unpack(block, room)
