"""Streams of snappy and lz4 in kernels: they accept what `format/compression.py` accepts, with the same bytes."""

from __future__ import annotations

import random
import struct

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressionError
from cleaner.format.zstd_frame import kernel_cells
from cleaner.kernels import codecs, inflate
from cleaner.kernels.checksums import xxhash32
from cleaner.kernels.codec_table import LZ4, SNAPPY
from tests.support.batch_builder import Record, data_batch
from tests.support.codecs import compress, compress_snappy_raw, decompress, some_text
from tests.unit.kernels.arrays import guarded, scan

pytestmark = pytest.mark.kernels

NAMES = {SNAPPY: "snappy", LZ4: "lz4"}
BOTH = [pytest.param(codec, id=name) for codec, name in NAMES.items()]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
CONTENT_CHECKSUM, CONTENT_SIZE, BLOCK_CHECKSUM = 0x04, 0x08, 0x10


def unpack(codec: int, stream: bytes, room: int) -> bytes | None:
    """Unpack in the middle of arrays; None when the kernel refuses."""
    with guarded() as guards:
        source = guards.bytes(b"#" * 3 + stream)
        out = guards.room(5 + room)
        length = int(codecs.unpack_stream(codec, source, 3, 3 + len(stream), out, 5, 5 + room))
        assert bytes(out[:5]) == bytes(5)
    assert codecs.BAD_STREAM <= length <= room
    return None if length == codecs.BAD_STREAM else bytes(out[5 : 5 + length])


def slowly(codec: int, stream: bytes, limit_bytes: int) -> bytes | None:
    """Unpack block by block, as the code does that finds reasons."""
    out = GrowingBuffer(1)
    try:
        length = compression.decompress(codec, 2, memoryview(stream), out, 0, limit_bytes)
    except DecompressionError:
        return None
    return bytes(out.view[:length])


def frame(data: bytes, flags: int = 0, descriptor: int = 0x40, step: int = 500) -> bytes:
    """Frame `data` as lz4 with any flags."""
    header = bytes([0x60 | flags, descriptor]) + (struct.pack("<Q", len(data)) if flags & CONTENT_SIZE else b"")
    framed = b"\x04\x22\x4d\x18" + header + bytes([xxhash32(header) >> 8 & 255])
    for start in range(0, len(data), step):
        block = bytes(cramjam.lz4.compress_block(data[start : start + step], store_size=False))
        framed += struct.pack("<I", len(block)) + block
        if flags & BLOCK_CHECKSUM:
            framed += struct.pack("<I", xxhash32(block))
    return framed + bytes(4) + (b"sum?" if flags & CONTENT_CHECKSUM else b"")


@pytest.mark.parametrize("codec", BOTH)
@pytest.mark.parametrize("size", [0, 1, 100, 32_768, 32_769, 65_536, 65_537, 300_000])
def test_packed_stream_is_unpacked(codec: int, size: int) -> None:
    """By the kernel and by another library, within the promised size."""
    for data in (some_text(size), random.Random(size).randbytes(size), bytes(size)):
        with guarded() as guards:
            target = guards.room(7 + int(codecs.max_packed_bytes(size)))
            table = np.full(codecs.TABLE_WORDS, 0xFFFF, np.uint16)
            source = np.frombuffer(bytearray(b"#" + data), np.uint8)
            end = int(codecs.pack_stream(codec, source, 1, source.size, table, target, 7))
            assert bytes(target[:7]) == bytes(7)
        stream = bytes(target[7:end])
        assert decompress(NAMES[codec], stream) == data
        assert unpack(codec, stream, size) == data


@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        pytest.param(SNAPPY, compress("snappy", some_text(100_000)), id="snappy"),
        pytest.param(SNAPPY, compress_snappy_raw(some_text(100_000)), id="snappy-bare"),
        pytest.param(SNAPPY, compress("snappy", some_text(100_000)) + b"abc", id="snappy-bytes-behind"),
        pytest.param(LZ4, compress("lz4", some_text(100_000)), id="lz4"),
        pytest.param(LZ4, compress("lz4", some_text(100_000)) + b"abc", id="lz4-bytes-behind"),
        pytest.param(LZ4, frame(some_text(100_000), CONTENT_SIZE | CONTENT_CHECKSUM), id="lz4-flags"),
        pytest.param(LZ4, frame(some_text(100_000), BLOCK_CHECKSUM), id="lz4-block-checksums"),
        pytest.param(LZ4, frame(some_text(100_000), 0, 0x70, 100_000), id="lz4-large-blocks"),
    ],
)
def test_stream_of_any_producer_is_unpacked(codec: int, stream: bytes) -> None:
    """Every usual stream is unpacked by the kernel."""
    assert unpack(codec, stream, 100_000) == some_text(100_000)
    assert unpack(codec, stream, 99_999) is None


@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        pytest.param(SNAPPY, compress("snappy", some_text(900)), id="snappy"),
        pytest.param(LZ4, frame(some_text(900), CONTENT_SIZE | CONTENT_CHECKSUM, step=300), id="lz4"),
        pytest.param(LZ4, frame(some_text(900), BLOCK_CHECKSUM, step=300), id="lz4-block-checksums"),
    ],
)
def test_stream_cut_or_with_a_bit_flipped_is_refused_unless_it_is_sound(codec: int, stream: bytes) -> None:
    """Every truncation and every flip: never more than the slow way takes, never other bytes."""
    cut = [stream[:end] for end in range(len(stream))]
    flipped = [
        stream[:at] + bytes([stream[at] ^ 1 << bit]) + stream[at + 1 :] for at in range(len(stream)) for bit in range(8)
    ]
    for changed in cut + flipped:
        found = unpack(codec, changed, 2000)
        assert found is None or found == slowly(codec, changed, 2000)


_CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(sorted(NAMES)), st.integers(0, 7), st.sampled_from([0, 1, 60, 3000]), _CHANGES, st.integers(0, 4000)
)
def test_changed_stream_is_unpacked_as_slowly_or_refused(
    codec: int, flag_bits: int, size: int, changes: list[tuple[int, int]], room: int
) -> None:
    """Any flags, any bytes changed, any room."""
    data = some_text(size)
    stream = bytearray(frame(data, flag_bits << 2) if codec == LZ4 else compress("snappy", data))
    for position, byte in changes:
        stream[position % len(stream)] = byte
    found = unpack(codec, bytes(stream), room)
    assert found is None or found == slowly(codec, bytes(stream), room)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(NAMES)), st.sampled_from([b"", XERIAL, frame(b"")[:7]]), st.binary(max_size=80))
def test_random_stream_is_unpacked_as_slowly_or_refused(codec: int, header: bytes, rest: bytes) -> None:
    """Anything behind a sound header, or none."""
    found = unpack(codec, header + rest, 1000)
    assert found is None or found == slowly(codec, header + rest, 1000)


def test_batches_are_unpacked_up_to_the_one_that_is_not_for_the_kernel() -> None:
    """In order; it stops before a batch for the caller, and when enough is unpacked."""
    names = ["lz4", "snappy", "none", "gzip", "zstd", "snappy"]
    records = [Record(b"k%d" % i, b"value") for i in range(9)]
    with guarded() as guards:
        log = guards.bytes(b"".join(data_batch(records, 10 * i, codec=name) for i, name in enumerate(names)))
        rows = scan(log, log.size - 64).rows
        ways = np.array([codecs.BY_KERNEL, codecs.BY_KERNEL, 0, codecs.BY_KERNEL, codecs.BY_CALLER, codecs.BY_KERNEL])
        body = int(rows["body_end"][2] - rows["body_start"][2])
        out, work = guards.room(10 * body), inflate.new_work()

        def run(first: int, used: int, *, capacity: int = out.size, enough: int = 1 << 20) -> tuple[int, int]:
            found = codecs.unpack_batches(
                log, rows, ways.astype(np.uint8), first, out, capacity, used, enough, 1 << 20, work, kernel_cells()
            )  # fmt: skip
            return int(found[0]), int(found[1])

        assert run(0, 0, enough=1) == (1, body)
        assert run(1, body, capacity=2 * body - 1) == (1, body)
        assert run(0, 0) == (4, 3 * body)
        assert rows["unpacked"].tolist() == [1, 1, 0, 1, 0, 0]
        assert rows["body_start"][[0, 1, 3]].tolist() == [0, body, 2 * body]
        assert rows["body_end"][[0, 1, 3]].tolist() == [body, 2 * body, 3 * body]
        assert run(5, 3 * body) == (6, 4 * body)
        assert bytes(out[: 4 * body]) == bytes(log[int(rows["body_start"][2]) : int(rows["body_end"][2])]) * 4


def test_batch_that_claims_more_records_than_it_holds_is_left_to_the_caller() -> None:
    """The caller has the words for the error."""
    liar = data_batch([Record(b"k", b"v")], 0, codec="lz4", overrides={"count": 1000, "last_offset_delta": 999})
    with guarded() as guards:
        log = guards.bytes(liar)
        rows = scan(log, len(liar)).rows
        found = codecs.unpack_batches(
            log, rows, np.ones(1, np.uint8), 0, guards.room(4096), 4096, 0, 1 << 20, 1 << 20, inflate.new_work(),
            kernel_cells(),
        )  # fmt: skip
        assert (int(found[0]), int(found[1]), int(rows["unpacked"][0])) == (0, 0, 0)
