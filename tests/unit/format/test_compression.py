"""The four codecs: Kafka's framings read and written, hostile streams refused within their limits."""

from __future__ import annotations

import gzip
import hashlib
import random
import struct
import subprocess
import sys
import threading
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError
from cleaner.kernels.codec_table import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD

CODECS = [pytest.param(codec, id=CODEC_NAMES[codec]) for codec in (GZIP, SNAPPY, LZ4, ZSTD)]
LIMIT_BYTES = 1 << 20

# Records of one batch each, as Kafka 4.3.1 packed them: varints, a key "key-..." and a value of JSON.
WRITTEN_BY_KAFKA = {
    GZIP: "1f8b08000000000000ff9bc2c8c020c0979d5aa96b646c5c55ad9499a26465646c6464aea3545c925892aa64a5945f90"
    "9aa7a4a394970fe6e5e417a5e62a64161497e62a20b3956a19006badb38e4c000000",
    SNAPPY: "82534e415050590000000001000000010000003f3fa87c00001e0c6b65792d3936647b226964223a393530312c227374"
    "617465223a22636c6f736564222c226e6f0510386c6f72656d20697073756d20227d00",
    LZ4: "04224d1860408242000080800100000a0e6b65792d313636667b226964223a37303838322c227374617465223a22636c"
    "6f736564222c226e6f7465223a226c6f72656d20697073756d20227d0000000000",
    ZSTD: "28b52ffd0058240200a403da010000080c6b65792d3937c0017b226964223a353931392c227374617465223a226f7065"
    "6e222c226e6f6c6f72656d20697073756d20227d000200bd445ab4b30c010000",
}


def _pack(codec: int, data: bytes) -> bytes:
    out = GrowingBuffer(1)
    length = compression.compress(codec, memoryview(data), out, 0)
    return bytes(out.view[:length])


def _unpack(codec: int, stream: bytes, limit_bytes: int = LIMIT_BYTES, magic: int = 2) -> bytes:
    out = GrowingBuffer(1)
    length = compression.decompress(codec, magic, memoryview(stream), out, 0, limit_bytes)
    return bytes(out.view[:length])


def _xerial(*blocks: bytes, version: int = 1) -> bytes:
    """Frame raw snappy blocks as snappy-java does."""
    chunks = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", version, 1) + chunks


def _snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _text(size: int) -> bytes:
    generator = random.Random(7)
    words = [generator.randbytes(generator.randrange(2, 9)) for _ in range(200)]
    text = b" ".join(generator.choices(words, k=size // 5 + 1))
    return (text * 2)[:size]


def _sparse_gzip(zeros: int) -> bytes:
    """Make a gzip stream of `zeros` zero bytes without packing them all: a flushed deflate block can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + block * (zeros >> 20) + packer.flush() + bytes(8)


def _sparse_zstd(zeros: int, declared: int | None = None) -> bytes:
    """Make a zstd frame of `zeros` zero bytes from run-length blocks of 128 KiB."""
    header = b"\x00\x58" if declared is None else b"\xc0\x58" + struct.pack("<Q", declared)
    block = 128 << 10
    run = (block << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (block << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return b"\x28\xb5\x2f\xfd" + header + run * (zeros // block - 1) + last


def _sparse_lz4(zeros: int) -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(1 << 22), store_size=False))
    frame = b"\x04\x22\x4d\x18\x60\x70\x73"
    return frame + (struct.pack("<I", len(block)) + block) * (zeros >> 22) + bytes(4)


def _sparse_snappy(zeros: int) -> bytes:
    return _xerial(*[_snappy_block(bytes(1 << 20))] * (zeros >> 20))


BOMBS = {GZIP: _sparse_gzip, SNAPPY: _sparse_snappy, LZ4: _sparse_lz4, ZSTD: _sparse_zstd}


@pytest.mark.parametrize("codec", CODECS)
def test_stream_written_by_kafka_unpacks_to_its_records(codec: int) -> None:
    """Streams of a real broker are read (R-250..R-253)."""
    records = _unpack(codec, bytes.fromhex(WRITTEN_BY_KAFKA[codec]))
    length = {GZIP: 76, SNAPPY: 63, LZ4: 66, ZSTD: 111}[codec]
    assert (len(records), records.count(b"key-"), records.endswith(b'"}\x00')) == (length, 1, True)


@pytest.mark.parametrize("codec", CODECS[1:])  # a Python may bring a zlib that packs differently
def test_stream_packed_again_has_the_bytes_kafka_wrote(codec: int) -> None:
    """With the locked libraries a rebuilt batch has Kafka's bytes, though only its content is promised (R-254)."""
    stream = bytes.fromhex(WRITTEN_BY_KAFKA[codec])
    assert stream == _pack(codec, _unpack(codec, stream))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 100, 32768, 32769, 65536, 65537, 300_000])
@pytest.mark.parametrize("kind", ["text", "noise", "zeros"])
def test_bytes_packed_and_unpacked_are_the_same(codec: int, size: int, kind: str) -> None:
    """Blocks of every size, packed or stored, survive."""
    data = {"text": _text(size), "noise": random.Random(3).randbytes(size), "zeros": bytes(size)}[kind]
    assert data == _unpack(codec, _pack(codec, data))


@settings(deadline=None)
@given(st.integers(0, 4), st.binary(max_size=3000), st.integers(0, 100), st.integers(0, 100))
def test_codec_keeps_the_bytes_before_its_output(codec: int, data: bytes, packed_at: int, unpacked_at: int) -> None:
    """Output follows the bytes already there, in both directions, however the buffer grows."""
    packed, unpacked = GrowingBuffer(packed_at), GrowingBuffer(unpacked_at)
    packed.view[:packed_at] = b"p" * packed_at
    unpacked.view[:unpacked_at] = b"u" * unpacked_at
    length = compression.compress(codec, memoryview(data), packed, packed_at)
    source = packed.view[packed_at : packed_at + length]
    got = compression.decompress(codec, 2, source, unpacked, unpacked_at, LIMIT_BYTES)
    assert bytes(packed.view[:packed_at]) == b"p" * packed_at
    assert bytes(unpacked.view[: unpacked_at + got]) == b"u" * unpacked_at + data


def _pseudo_log(size: int) -> bytes:
    """Make text, runs and noise from a seed, the same on every machine."""
    out = bytearray()
    state = 1
    while len(out) < size:
        state = (state * 1103515245 + 12345) % 2**31
        out += b"key-%d value-%d;" % (state >> 16 & 63, state >> 8 & 1023)
        if state >> 20 & 7 == 0:
            out += bytes(state >> 16 & 255)
        if state >> 20 & 15 == 3:
            out += hashlib.sha256(b"%d" % state).digest() * (state >> 24 & 3)
    return bytes(out[:size])


@pytest.mark.parametrize(
    ("codec", "size", "packed", "digest"),
    [
        pytest.param(SNAPPY, 20, 42, "b44a74376b13785a", id="snappy-20"),
        pytest.param(SNAPPY, 3000, 983, "98cc02dc2987937c", id="snappy-3000"),
        pytest.param(SNAPPY, 33000, 10153, "c1af724805acc4b3", id="snappy-33000"),
        pytest.param(SNAPPY, 100000, 30008, "547281656a3f2084", id="snappy-100000"),
        pytest.param(LZ4, 20, 35, "d9c5682bdaad30f7", id="lz4-20"),
        pytest.param(LZ4, 3000, 982, "7302dff99ac340ed", id="lz4-3000"),
        pytest.param(LZ4, 33000, 10791, "d9252c5f95878687", id="lz4-33000"),
        pytest.param(LZ4, 100000, 31646, "4eae5ba18c6d87f8", id="lz4-100000"),
        pytest.param(ZSTD, 20, 32, "fe6699dcdbaf1faf", id="zstd-20"),
        pytest.param(ZSTD, 3000, 731, "b7d09aeafa9a501b", id="zstd-3000"),
    ],
)
def test_stream_written_has_the_size_and_bytes_of_kafkas(codec: int, size: int, packed: int, digest: str) -> None:
    """
    Kafka 4.3.1's own output streams gave these digests for the same input.

    Equal sizes let a later round group segments as Kafka's would. If another version of a library changes this, the
    data is still right (R-254): take the digest out.
    """
    stream = _pack(codec, _pseudo_log(size))
    assert (packed, digest) == (len(stream), hashlib.sha256(stream).hexdigest()[:16])


def test_gzip_written_is_what_other_libraries_read_and_has_kafkas_header() -> None:
    """The header is the JDK's (R-250) and Python's own reader agrees with the content."""
    stream = _pack(GZIP, _text(5000))
    assert stream.startswith(bytes.fromhex("1f8b08000000000000ff"))
    assert gzip.decompress(stream) == _text(5000)


def test_zstd_written_is_what_other_libraries_read() -> None:
    """cramjam's one-call reader agrees with the content (R-253)."""
    assert bytes(cramjam.zstd.decompress(_pack(ZSTD, _text(5000)))) == _text(5000)


def test_snappy_written_is_a_xerial_stream_of_32_kib_chunks() -> None:
    """The framing is snappy-java's (R-251)."""
    data = _text(70_000)
    stream = _pack(SNAPPY, data)
    blocks, position = [], 16
    while position < len(stream):
        length = int.from_bytes(stream[position : position + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(stream[position + 4 : position + 4 + length])))
        position += 4 + length
    assert stream[:16] == bytes.fromhex("82534e41505059000000000100000001")
    assert [len(block) for block in blocks] == [32768, 32768, 70_000 - 65536]
    assert b"".join(blocks) == data


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(_snappy_block(b"hello hello"), b"hello hello", id="bare-block-of-librdkafka"),
        pytest.param(_xerial(_snappy_block(b"one"), _snappy_block(b"two")), b"onetwo", id="several-chunks"),
        pytest.param(_xerial(), b"", id="no-chunk"),
        pytest.param(_xerial(_snappy_block(b"a")) + _xerial(_snappy_block(b"b")), b"ab", id="joined-streams"),
        pytest.param(_xerial(_snappy_block(b"a"), version=-5), b"a", id="first-header-of-odd-version"),
        pytest.param(_xerial(_snappy_block(b"a")) + b"\x00\x00\x00", b"a", id="too-short-for-another-chunk"),
    ],
)
def test_snappy_stream_kafka_reads_is_read(stream: bytes, expected: bytes) -> None:
    """What snappy-java takes, bare or framed, is taken (R-251)."""
    assert expected == _unpack(SNAPPY, stream)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(gzip.compress(b"one") + gzip.compress(b"two"), b"onetwo", id="two-members"),
        pytest.param(gzip.compress(b"one") + b"garbage behind it that is no member", b"one", id="garbage"),
        pytest.param(gzip.compress(b"one") * 2 + bytes(30), b"oneone", id="two-members-and-zeros"),
        pytest.param(gzip.compress(b"one") + b"\x1f\x8b\x08", b"one", id="too-short-for-another-member"),
        pytest.param(gzip.compress(b"") * 500, b"", id="many-empty-members"),
    ],
)
def test_gzip_stream_with_more_behind_its_member_reads_as_the_jdk_does(stream: bytes, expected: bytes) -> None:
    """Another member continues the stream; anything else ends it."""
    assert expected == _unpack(GZIP, stream)


def test_zstd_stream_of_several_frames_is_read_whole() -> None:
    """Frames with and without a content size follow each other."""
    sized = bytes(cramjam.zstd.compress(b"one", level=3))
    assert _unpack(ZSTD, sized + _pack(ZSTD, b"two") + sized) == b"onetwoone"


@pytest.mark.parametrize(
    ("codec", "stream"),
    [
        pytest.param(GZIP, b"", id="gzip-empty"),
        pytest.param(GZIP, _pack(GZIP, b"data" * 50)[:-1], id="gzip-trailer-cut"),
        pytest.param(GZIP, _pack(GZIP, b"data" * 50)[:-8], id="gzip-no-trailer"),
        pytest.param(GZIP, _pack(GZIP, b"data")[:-8] + bytes(4) + struct.pack("<I", 4), id="gzip-wrong-crc"),
        pytest.param(GZIP, _pack(GZIP, b"data")[:-4] + bytes(4), id="gzip-wrong-length"),
        pytest.param(GZIP, zlib.compress(b"data"), id="gzip-but-zlib"),
        pytest.param(GZIP, gzip.compress(b"one") + gzip.compress(b"two")[:-4], id="gzip-second-member-cut"),
        pytest.param(SNAPPY, b"", id="snappy-empty"),
        pytest.param(SNAPPY, _snappy_block(b"data" * 9) + b"x", id="snappy-garbage-behind-bare-block"),
        pytest.param(SNAPPY, _xerial(_snappy_block(b"data" * 9))[:-1], id="snappy-chunk-cut"),
        pytest.param(SNAPPY, _xerial(b""), id="snappy-chunk-of-nothing"),
        pytest.param(SNAPPY, _xerial() + struct.pack(">i", -1), id="snappy-negative-chunk"),
        pytest.param(SNAPPY, _xerial() + struct.pack(">i", 2**31 - 1) + b"x", id="snappy-huge-chunk"),
        pytest.param(SNAPPY, _xerial() + _xerial(version=0), id="snappy-inner-header-of-version-0"),
        pytest.param(SNAPPY, _xerial() + _xerial()[:9], id="snappy-inner-header-cut"),
        pytest.param(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20, id="snappy-length-lie"),
        pytest.param(ZSTD, _pack(ZSTD, b"data" * 50)[:-1], id="zstd-cut"),
        pytest.param(ZSTD, _pack(ZSTD, b"data") + b"garbage", id="zstd-garbage"),
        pytest.param(ZSTD, _pack(ZSTD, b"data") + b"\x00", id="zstd-zero-behind"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd", id="zstd-magic-only"),
        pytest.param(5, b"data", id="unknown-codec-5"),
        pytest.param(7, b"data", id="unknown-codec-7"),
    ],
)
def test_stream_damaged_is_refused(codec: int, stream: bytes) -> None:
    """Streams that are cut, garbled or of another codec (R-212)."""
    with pytest.raises(DecompressionError):
        _unpack(codec, stream)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_in_a_legacy_batch_is_refused(magic: int) -> None:
    """zstd came after magic 1 (R-241)."""
    with pytest.raises(DecompressionError, match="zstd"):
        _unpack(ZSTD, _pack(ZSTD, b"data"), magic=magic)


def test_compress_with_unknown_codec_is_refused() -> None:
    """There are five codec ids."""
    with pytest.raises(ValueError, match="codec 5"):
        compression.compress(5, memoryview(b"data"), GrowingBuffer(), 0)


@pytest.mark.parametrize("codec", [pytest.param(NONE, id="none"), *CODECS])
@pytest.mark.parametrize("size", [1, 1000, 70_000])
def test_stream_at_its_limit_passes_and_one_byte_over_is_refused(codec: int, size: int) -> None:
    """The limit counts unpacked bytes exactly."""
    stream = _pack(codec, _text(size))
    assert _unpack(codec, stream, limit_bytes=size) == _text(size)
    with pytest.raises(DecompressedTooLargeError, match=f"more than {size - 1} bytes"):
        _unpack(codec, stream, limit_bytes=size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_is_refused_and_the_buffer_stays_within_the_limit(codec: int) -> None:
    """Whatever a stream unpacks to, no more than the limit is allocated for it."""
    out = GrowingBuffer(1000)
    with pytest.raises(DecompressedTooLargeError):
        compression.decompress(codec, 2, memoryview(BOMBS[codec](64 << 20)), out, 10, 3_000_000)
    assert out.capacity <= 3_000_010


def test_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    """A frame that declares 2**60 bytes and holds 128 KiB neither costs memory nor passes."""
    out = GrowingBuffer(1000)
    with pytest.raises(DecompressionError):
        compression.decompress(ZSTD, 2, memoryview(_sparse_zstd(128 << 10, declared=1 << 60)), out, 0, LIMIT_BYTES)
    assert out.capacity <= LIMIT_BYTES


_BOMB_PROGRAM = """
import resource, sys
from pathlib import Path
from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError

out = GrowingBuffer()
compression.decompress(3, 2, memoryview(bytes.fromhex("04224d186040820000000000")[:11]), out, 0, 100)
used_kib = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() >> 10
resource.setrlimit(resource.RLIMIT_AS, ((used_kib + 48 * 1024) << 10, -1))
for codec, length in zip((1, 2, 3, 4), map(int, sys.argv[1:]), strict=True):
    stream = memoryview(sys.stdin.buffer.read(length))
    try:
        compression.decompress(codec, 2, stream, out, 0, 16 << 20)
    except DecompressedTooLargeError:
        print("refused", codec)
"""


def test_bombs_of_a_gibibyte_are_refused_by_a_process_with_48_mib_to_spare() -> None:
    """With a limit of 16 MiB no codec asks for more than a buffer of that size, its predecessor and a window."""
    bombs = [BOMBS[GZIP](1 << 30), BOMBS[SNAPPY](1 << 27), BOMBS[LZ4](1 << 30), BOMBS[ZSTD](1 << 30)]
    done = subprocess.run(
        [sys.executable, "-c", _BOMB_PROGRAM, *(str(len(bomb)) for bomb in bombs)],
        input=b"".join(bombs),
        capture_output=True,
        check=False,
    )
    assert (done.stdout.decode().split("\n")[:4], done.stderr) == ([f"refused {codec}" for codec in (1, 2, 3, 4)], b"")


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 7), st.integers(0, 2), st.binary(max_size=400))
def test_random_bytes_either_unpack_or_are_refused(codec: int, magic: int, stream: bytes) -> None:
    """No bytes make a codec fail in another way or write beyond its limit."""
    out = GrowingBuffer(16)
    try:
        length = compression.decompress(codec, magic, memoryview(stream), out, 5, 5000)
    except DecompressionError:
        length = 0
    assert length <= 5000
    assert out.capacity <= 5005


_MUTATIONS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)


@settings(deadline=None, max_examples=400)
@given(st.integers(1, 4), st.integers(0, 2), st.sampled_from([0, 1, 40, 4000]), _MUTATIONS, st.integers(0, 50))
def test_stream_mutated_either_unpacks_or_is_refused(
    codec: int, magic: int, size: int, mutations: list[tuple[int, int]], cut: int
) -> None:
    """Sound streams with bytes changed or cut off fail in no other way and stay within the limit."""
    stream = bytearray(_pack(codec, _text(size)))
    for position, byte in mutations:
        stream[position % len(stream)] = byte
    out = GrowingBuffer(16)
    try:
        length = compression.decompress(codec, magic, memoryview(stream)[: len(stream) - cut], out, 0, 10_000)
    except DecompressionError:
        length = 0
    assert length <= 10_000
    assert out.capacity <= 10_000


def test_threads_side_by_side_get_their_own_bytes() -> None:
    """Codecs share nothing: four threads, all codecs, every result right."""
    wrong: list[tuple[int, int]] = []

    def work(number: int) -> None:
        data = _text(20_000 + number)
        packed, unpacked = GrowingBuffer(), GrowingBuffer()
        for turn in range(40):
            codec = (turn + number) % 5
            length = compression.compress(codec, memoryview(data), packed, 0)
            got = compression.decompress(codec, 2, packed.view[:length], unpacked, 0, LIMIT_BYTES)
            if bytes(unpacked.view[:got]) != data:
                wrong.append((number, codec))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
