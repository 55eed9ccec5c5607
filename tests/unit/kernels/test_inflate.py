"""Small gzip streams in the kernel: what it accepts is what the library unpacks, and it accepts what the JDK writes."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressionError
from cleaner.kernels import inflate
from cleaner.kernels.codec_table import GZIP
from tests.unit.kernels.arrays import guarded

pytestmark = pytest.mark.kernels

_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)
_WORDS = [random.Random(i).randbytes(1 + i % 11) for i in range(80)]


def packed(data: bytes, level: int = 6, strategy: int = zlib.Z_DEFAULT_STRATEGY, flush: int = zlib.Z_NO_FLUSH) -> bytes:
    """Pack as any writer may, with a flush in the middle."""
    stream = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
    half = len(data) // 2
    return stream.compress(data[:half]) + stream.flush(flush) + stream.compress(data[half:]) + stream.flush()


def unpack(stream: bytes, room: int) -> bytes | None:
    """Unpack in the middle of arrays; None when the kernel refuses."""
    with guarded() as guards:
        source = guards.bytes(b"#" * 3 + stream)
        out = guards.room(5 + room)
        work = guards.room(4 * inflate.WORDS).view(np.int32)
        work[:] = inflate.new_work()
        length = int(inflate.unpack_small_gzip(source, 3, 3 + len(stream), out, 5, 5 + room, work))
        assert bytes(out[:5]) == bytes(5)
    assert inflate.BAD <= length <= room
    return None if length == inflate.BAD else bytes(out[5 : 5 + length])


def slowly(stream: bytes) -> bytes | None:
    """Unpack with the library, as the code does that finds reasons."""
    out = GrowingBuffer(1)
    try:
        length = compression.decompress(GZIP, 2, memoryview(stream), out, 0, 1 << 20)
    except DecompressionError:
        return None
    return bytes(out.view[:length])


@st.composite
def some_data(draw: st.DrawFn) -> bytes:
    """Draw bytes with much, some or no repetition."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300))
    numbers = draw(st.lists(st.integers(0, draw(st.integers(0, len(_WORDS) - 1))), max_size=200))
    return b"".join(_WORDS[number] for number in numbers)


@given(
    some_data(), st.integers(0, 9), st.sampled_from(_STRATEGIES), st.sampled_from([zlib.Z_NO_FLUSH, zlib.Z_FULL_FLUSH])
)
@settings(max_examples=300)
@example(b"", 6, zlib.Z_DEFAULT_STRATEGY, zlib.Z_NO_FLUSH)
@example(bytes(70_000), 9, zlib.Z_DEFAULT_STRATEGY, zlib.Z_NO_FLUSH)  # runs of 258
@example(random.Random(1).randbytes(900), 0, zlib.Z_DEFAULT_STRATEGY, zlib.Z_NO_FLUSH)
def test_streams_of_zlib_are_unpacked(data: bytes, level: int, strategy: int, flush: int) -> None:
    """Stored, fixed and dynamic blocks; with exactly enough room, and with one byte less."""
    stream = packed(data, level, strategy, flush)
    assert unpack(stream, len(data)) == data
    if data:
        assert unpack(stream, len(data) - 1) is None


@given(some_data(), st.sampled_from(_STRATEGIES), st.data())
@settings(max_examples=300)
def test_changed_streams_are_refused_or_unpacked_as_by_the_library(
    data: bytes, strategy: int, chosen: st.DataObject
) -> None:
    """Bits flipped, bytes cut off, put in or behind; the checksum right or wrong."""
    stream = bytearray(packed(data, 6, strategy))
    for _ in range(chosen.draw(st.integers(1, 3))):
        at = chosen.draw(st.integers(0, len(stream) - 1))
        match chosen.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                stream[at] ^= 1 << chosen.draw(st.integers(0, 7))
            case "cut":
                del stream[at : at + chosen.draw(st.integers(1, 9))]
            case "insert":
                stream[at:at] = chosen.draw(st.binary(min_size=1, max_size=9))
        if not stream:
            return
    found = unpack(bytes(stream), 1 << 16)
    assert found is None or found == slowly(bytes(stream))


@given(st.binary(max_size=120))
@settings(max_examples=500)
def test_any_blocks_are_refused_or_unpacked_as_by_the_library(blocks: bytes) -> None:
    """Bytes that no writer makes, with the checksum and length of what the library makes of them."""
    stream = b"\x1f\x8b\x08" + bytes(7) + blocks
    raw = zlib.decompressobj(-15)
    try:
        content = raw.decompress(blocks, 1 << 16)
    except zlib.error:
        content = b""
    stream += zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")
    found = unpack(stream, 1 << 16)
    assert found is None or found == slowly(stream) == content


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"", id="empty"),
        pytest.param(packed(b"one") + packed(b"two"), id="two members"),
        pytest.param(packed(b"one") + b"x", id="a byte behind"),
        pytest.param(b"\x1f\x8b\x08\x08" + bytes(6) + b"name\x00" + packed(b"one")[10:], id="with a name"),
        pytest.param(packed(b"one")[:-4] + bytes(4), id="another length"),
        pytest.param(packed(b"one")[:-8] + bytes(4) + packed(b"one")[-4:], id="another checksum"),
        pytest.param(packed(b"one")[:10] + b"\x07" + packed(b"one")[11:], id="no kind of block"),
    ],
)
def test_what_is_not_one_plain_member_is_left_to_the_library(stream: bytes) -> None:
    """The library reads members one after the other, and has the words for errors."""
    assert unpack(stream, 1000) is None


def test_work_memory_has_the_tables_of_fixed_codes() -> None:
    """Each new one; they are not changed by a stream with codes of its own."""
    work = inflate.new_work()
    data = np.frombuffer(packed(b"".join(_WORDS)) + bytes(8), np.uint8)
    length = inflate.unpack_small_gzip(data, 0, len(data) - 8, np.zeros(4096, np.uint8), 0, 4096, work)
    assert length == len(b"".join(_WORDS))
    assert (work[: 512 + 32] == inflate.new_work()[: 512 + 32]).all()
    assert np.count_nonzero(work[:512]) == 512
