"""The snappy kernel: any bytes come back through another library, in the room that was promised."""

from __future__ import annotations

import random

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernels import PAD_BYTES, snappy

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
def test_block_of_any_size_comes_back(size: int, kind: str) -> None:
    """Literals and copies of every length class, near and far, are laid out as snappy wants them."""
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
def test_block_of_repeated_pieces_comes_back(pieces: list[tuple[bytes, int]], last: bytes) -> None:
    """Overlapping copies, long copies and copies that touch the end give the data back."""
    data = (b"".join(piece * count for piece, count in pieces) + last)[:65536]
    assert bytes(cramjam.snappy.decompress_raw(_pack(data))) == data
