"""gzip members of stored blocks, read without a library; other gzip tests are in test_compression.py."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Sequence

import pytest
from isal import isal_zlib

from cleaner.format import gzip_stream
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError

LIMIT = 1 << 20
NOISE = random.Random(1).randbytes(50_000)
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def _block(content: bytes, is_last: bool = False, head: int | None = None) -> bytes:
    first = int(is_last) if head is None else head
    return struct.pack("<BHH", first, len(content), len(content) ^ 0xFFFF) + content


def _member(blocks: Sequence[bytes], content: bytes, header: bytes = HEADER) -> bytes:
    return header + b"".join(blocks) + struct.pack("<II", zlib.crc32(content), len(content))


def _stored(content: bytes, block_bytes: int) -> bytes:
    pieces = [content[at : at + block_bytes] for at in range(0, len(content), block_bytes)] or [b""]
    return _member([_block(piece, i == len(pieces) - 1) for i, piece in enumerate(pieces)], content)


def _read(stream: bytes, limit_bytes: int = LIMIT) -> bytes:
    out = GrowingBuffer(16)
    out.view[:3] = b"abc"
    length = gzip_stream.decompress(memoryview(stream), out, 3, limit_bytes)
    assert bytes(out.view[:3]) == b"abc"
    return bytes(out.view[3 : 3 + length])


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a library is called to unpack."""
    monkeypatch.delattr(isal_zlib, "decompressobj")


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(_stored(NOISE, 16_384), id="blocks-of-16K"),
        pytest.param(_stored(NOISE, 65_535), id="one-block"),
        pytest.param(_stored(NOISE, 4096), id="smallest"),
        pytest.param(gzip.compress(NOISE), id="as-zlib-makes-them"),
    ],
)
def test_stored_blocks_are_read_without_a_library(stream: bytes) -> None:
    """Every producer writes incompressible data in such blocks."""
    assert _read(stream) == NOISE


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(_stored(b"", 1), b"", id="empty"),
        pytest.param(_stored(NOISE, 100), NOISE, id="many-small-blocks"),
        pytest.param(_stored(NOISE, 16_384) + b"garbage behind it that is no member", NOISE, id="garbage-behind"),
        pytest.param(_stored(NOISE, 16_384) + _stored(b"more", 9), NOISE + b"more", id="two-members"),
        pytest.param(
            _member(
                [_block(NOISE[:9000], head=0xF8), _block(NOISE[9000:18_000], head=0xF9)],
                NOISE[:18_000],
            ),
            NOISE[:18_000],
            id="padding-that-is-not-zero",
        ),
        pytest.param(
            _member([_block(NOISE, True)], NOISE, b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\0"), NOISE, id="with-a-name"
        ),
        pytest.param(gzip.compress(NOISE + bytes(90_000)), NOISE + bytes(90_000), id="stored-then-packed"),
    ],
)
def test_other_blocks_are_read_by_the_library(stream: bytes, expected: bytes) -> None:
    """The short way accepts only what is sound and usual."""
    assert _read(stream) == expected


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(_member([_block(NOISE, True)], NOISE[:-1] + b"?"), id="wrong-crc"),
        pytest.param(_stored(NOISE, 16_384)[:-4] + bytes(4), id="wrong-length"),
        pytest.param(_stored(NOISE, 16_384)[:-1], id="trailer-cut"),
        pytest.param(_stored(NOISE, 16_384)[:30_000], id="block-cut"),
        pytest.param(_member([_block(NOISE)], NOISE), id="no-last-block"),
        pytest.param(HEADER + struct.pack("<BHH", 1, 9, 9) + bytes(30), id="wrong-complement"),
        pytest.param(HEADER + b"\x01" + bytes(8), id="too-short-for-a-block"),
        pytest.param(HEADER + bytes(4), id="hardly-more-than-a-header"),
    ],
)
def test_damaged_stored_blocks_are_refused(damaged: bytes) -> None:
    """The library finds the error, so the reason is the library's."""
    with pytest.raises(DecompressionError):
        _read(damaged)


def test_stored_blocks_keep_to_the_limit() -> None:
    """A byte more than allowed is refused, and the buffer does not grow for it."""
    assert _read(_stored(NOISE, 16_384), len(NOISE)) == NOISE
    out = GrowingBuffer(16)
    with pytest.raises(DecompressedTooLargeError):
        gzip_stream.decompress(memoryview(_stored(NOISE, 16_384)), out, 0, len(NOISE) - 1)
    assert out.capacity < len(NOISE)
