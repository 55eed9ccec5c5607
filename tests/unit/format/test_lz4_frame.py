"""lz4 frames: what Kafka's reader takes and what it refuses (R-252)."""

from __future__ import annotations

import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format import compression, lz4_frame
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressionError
from cleaner.kernels.checksums import xxhash32
from cleaner.kernels.codec_table import LZ4

INDEPENDENT, BLOCK_CHECKSUM, CONTENT_SIZE, CONTENT_CHECKSUM = 0x60, 0x10, 0x08, 0x04
DATA = b"lz4 frames of many producers " * 40


def _frame(
    data: bytes,
    *,
    flags: int = INDEPENDENT,
    descriptor: int = 0x40,
    step: int = 500,
    check_byte: int | None = None,
    stored: bool = False,
) -> bytes:
    """Frame `data` with any flags, in blocks of `step` bytes."""
    header = bytes([flags, descriptor])
    if flags & CONTENT_SIZE:
        header += struct.pack("<Q", len(data))
    check = xxhash32(header) >> 8 & 255 if check_byte is None else check_byte
    frame = b"\x04\x22\x4d\x18" + header + bytes([check])
    for start in range(0, len(data), step):
        block = data[start : start + step]
        packed = block if stored else bytes(cramjam.lz4.compress_block(block, store_size=False))
        frame += struct.pack("<I", len(packed) | stored << 31) + packed
        if flags & BLOCK_CHECKSUM:
            frame += struct.pack("<I", xxhash32(packed))
    return frame + bytes(4) + (b"sum?" if flags & CONTENT_CHECKSUM else b"")


def _read(frame: bytes, *, check_header: bool = True, limit_bytes: int = 1 << 23) -> bytes:
    out = GrowingBuffer(1)
    length = lz4_frame.decompress(memoryview(frame), out, 0, limit_bytes, check_header=check_header)
    return bytes(out.view[:length])


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(_frame(DATA), id="plain"),
        pytest.param(_frame(DATA, stored=True), id="stored-blocks"),
        pytest.param(_frame(DATA, flags=INDEPENDENT | CONTENT_SIZE), id="content-size"),
        pytest.param(_frame(DATA, flags=INDEPENDENT | BLOCK_CHECKSUM), id="block-checksums"),
        pytest.param(_frame(DATA, flags=INDEPENDENT | BLOCK_CHECKSUM, stored=True), id="block-checksums-stored"),
        pytest.param(_frame(DATA, flags=INDEPENDENT | CONTENT_CHECKSUM), id="content-checksum-not-verified"),
        pytest.param(_frame(DATA, descriptor=0x70, step=len(DATA)), id="blocks-of-4-mib"),
        pytest.param(_frame(DATA) + b"anything", id="bytes-behind-the-end"),
        pytest.param(_frame(DATA)[:-4] + b"\x00\x00\x00\x80", id="end-mark-with-top-bit"),
    ],
)
def test_frame_kafka_reads_is_read(frame: bytes) -> None:
    """Every flag that Kafka allows is allowed."""
    assert _read(frame) == DATA


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(b"", "cut short", id="empty"),
        pytest.param(_frame(DATA)[:6], "cut short", id="header-cut"),
        pytest.param(_frame(DATA, flags=0x68)[:10], "cut short", id="content-size-cut"),
        pytest.param(b"\x02" + _frame(DATA)[1:], "not an lz4 frame", id="wrong-magic"),
        pytest.param(_frame(DATA, flags=0x40), "depend", id="dependent-blocks"),
        pytest.param(_frame(DATA, flags=0x61), "reserved", id="dictionary-bit"),
        pytest.param(_frame(DATA, flags=0x62), "reserved", id="reserved-flag"),
        pytest.param(_frame(DATA, flags=0x20), "version 0", id="version-0"),
        pytest.param(_frame(DATA, flags=0xA0), "version 2", id="version-2"),
        pytest.param(_frame(DATA, descriptor=0x41), "reserved", id="reserved-low-bits"),
        pytest.param(_frame(DATA, descriptor=0xC0), "reserved", id="reserved-high-bit"),
        pytest.param(_frame(DATA, descriptor=0x30), "size code 3", id="block-size-code"),
        pytest.param(_frame(DATA, check_byte=0x83), "check byte", id="check-byte"),
        pytest.param(_frame(DATA)[:-4], "cut short", id="no-end-mark"),
        pytest.param(_frame(DATA)[:-9], "cut short", id="block-cut"),
        pytest.param(_frame(DATA, flags=INDEPENDENT | CONTENT_CHECKSUM)[:-1], "cut short", id="content-checksum-cut"),
        pytest.param(_frame(bytes(70_000), step=70_000, stored=True), "70000 bytes", id="block-too-large-stored"),
        pytest.param(_frame(bytes(70_000), step=70_000), "damaged", id="block-too-large-unpacked"),
        pytest.param(_frame(b"")[:-4] + b"\x01\x00\x00\x00\x00" + bytes(4), "empty block", id="empty-block"),
    ],
)
def test_frame_kafka_refuses_is_refused(frame: bytes, reason: str) -> None:
    """Version, reserved bits, dependent blocks, block sizes and the end mark are checked."""
    with pytest.raises(DecompressionError, match=reason):
        _read(frame)


def test_block_with_wrong_checksum_is_refused() -> None:
    """A block that was changed after its checksum was taken does not pass."""
    frame = bytearray(_frame(DATA, flags=INDEPENDENT | BLOCK_CHECKSUM, stored=True))
    frame[20] ^= 1
    with pytest.raises(DecompressionError, match="checksum"):
        _read(bytes(frame))


def test_check_byte_of_old_producers_is_taken_for_magic_0_only() -> None:
    """Before 0.10 the hash also covered the frame's magic and came out as 0x1a."""
    frame = _frame(DATA, check_byte=0x1A)
    assert _read(frame, check_header=False) == DATA
    with pytest.raises(DecompressionError, match="check byte"):
        _read(frame, check_header=True)


def test_frame_written_is_kafkas_with_blocks_of_64_kib_stored_when_they_do_not_shrink() -> None:
    """Header 60 40 82; text is packed, noise is stored; four zeros end it."""
    noise = random.Random(5).randbytes(65536)
    data = bytes(65536) + noise + b"end"
    out = GrowingBuffer(1)
    length = compression.compress(LZ4, memoryview(data), out, 0)
    frame = bytes(out.view[:length])
    (first,) = struct.unpack_from("<I", frame, 7)
    second_at = 11 + first
    assert frame[:7] == bytes.fromhex("04224d18604082")
    assert first < 1000
    assert struct.unpack_from("<I", frame, second_at) == (65536 | 1 << 31,)
    assert frame[second_at + 4 : second_at + 4 + 65536] == noise
    assert frame[-4 - 3 - 4 :] == struct.pack("<I", 3 | 1 << 31) + b"end" + bytes(4)
    assert bytes(cramjam.lz4.decompress(frame)) == data


@given(st.binary(max_size=3000), st.integers(1, 1000), st.integers(0, 7), st.booleans())
def test_frame_of_any_blocks_reads_back(data: bytes, step: int, flag_bits: int, stored: bool) -> None:
    """Any mix of flags and block lengths gives the data back."""
    flags = INDEPENDENT | flag_bits << 2
    assert _read(_frame(data, flags=flags, step=step, stored=stored)) == data
