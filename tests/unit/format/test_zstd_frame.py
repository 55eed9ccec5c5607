"""zstd frames: bytes of a stream of unknown size, and contexts that can be reused after any error (R-253)."""

from __future__ import annotations

import struct
import threading

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.format import zstd_frame
from cleaner.format.buffers import GrowingBuffer
from tests.support.codecs import some_text

SIZES = (0, 1, 100, 16_000, 65_535, 131_071, 131_072, 131_073, 262_144, 700_000, 3_000_000)


def pack(data: bytes) -> bytes:
    """Pack to a buffer that must grow."""
    out = GrowingBuffer(1)
    length = zstd_frame.compress(memoryview(data), out, 0)
    return bytes(out.view[:length])


def unpack(frame: bytes, room: int) -> bytes | None:
    """Unpack to `room` bytes."""
    out = memoryview(bytearray(room))
    length = zstd_frame.decompress_frame(memoryview(frame), out)
    return None if length is None else bytes(out[:length])


def as_a_stream(data: bytes) -> bytes:
    """Pack with a new context as Kafka's stream does: all of it, a flush, the end."""
    stream = cramjam.zstd.Compressor(3)
    stream.compress(data)
    return bytes(stream.flush()) + bytes(stream.finish())


@pytest.mark.parametrize("size", SIZES)
def test_frame_is_that_of_a_fresh_stream_whatever_was_packed_before(size: int) -> None:
    """A context's next frame does not depend on the last one."""
    data = some_text(size)
    for before in (b"", some_text(200_000), data):
        pack(before)
        assert pack(data) == as_a_stream(data)


@pytest.mark.parametrize("size", SIZES)
def test_packed_frame_is_unpacked(size: int) -> None:
    """Any number of blocks, with one spare byte; without it, the end of the data cannot be known."""
    frame = pack(some_text(size))
    assert zstd_frame.is_one_frame(memoryview(frame))
    assert unpack(frame, size + 1) == some_text(size)
    assert unpack(frame, size) is None


def test_frame_cut_anywhere_or_followed_by_anything_is_not_one_frame() -> None:
    """Every truncation, another frame behind, a byte behind."""
    frame = pack(some_text(3000))
    assert [end for end in range(len(frame)) if zstd_frame.is_one_frame(memoryview(frame[:end]))] == []
    assert not zstd_frame.is_one_frame(memoryview(frame + b"\0"))
    assert not zstd_frame.is_one_frame(memoryview(frame + frame))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(bytes(cramjam.zstd.compress(some_text(70_000), level=3)), id="content-size"),
        pytest.param(bytes(cramjam.zstd.compress(some_text(100), level=3)), id="no-window"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x58" + (5 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a", id="one-byte"),
    ],
)
def test_frame_of_any_usual_header_is_one_frame(frame: bytes) -> None:
    """As other producers write them."""
    assert zstd_frame.is_one_frame(memoryview(frame))
    assert unpack(frame, 1 << 20) == bytes(cramjam.zstd.decompress(frame))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x28\xb5\x2f\xfd\x01\x58\x07" + b"\x01\x00\x00", id="dictionary"),
        pytest.param(b"\x28\xb5\x2f\xfd\x08\x58" + b"\x01\x00\x00", id="reserved-bit"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x58" + b"\x07\x00\x00", id="reserved-block"),
        pytest.param(b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip", id="skippable"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x58" + b"\x00\x00\x00" * 5000 + b"\x01\x00\x00", id="blocks-without-end"),
    ],
)
def test_frame_of_another_kind_is_left_to_the_library(frame: bytes) -> None:
    """Frames that no producer writes are not parsed any further."""
    assert not zstd_frame.is_one_frame(memoryview(frame))


def test_frame_of_a_large_window_is_left_to_the_library() -> None:
    """A kept context must not keep a window of 128 MiB."""
    frame = b"\x28\xb5\x2f\xfd\x00\x88" + (5 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"
    assert zstd_frame.is_one_frame(memoryview(frame))
    assert unpack(frame, 1 << 20) is None
    assert bytes(cramjam.zstd.decompress(frame)) == b"aaaaa"


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_contexts_serve_the_next_frame_whatever_the_last_one_was(changes: list[tuple[int, int]]) -> None:
    """Damage is refused or unpacked as by a new context, and has no effect on the next frame."""
    sound = pack(some_text(5000))
    damaged = bytearray(sound)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    if zstd_frame.is_one_frame(memoryview(damaged)):
        found = unpack(bytes(damaged), 20_000)
        assert found is None or found == bytes(cramjam.zstd.decompress(bytes(damaged)))
    assert unpack(sound, 20_000) == some_text(5000)
    assert pack(some_text(5000)) == sound


def test_packing_given_up_leaves_the_context_usable() -> None:
    """An output that cannot grow ends one call, not the next one."""

    class Full(GrowingBuffer):
        def ensure(self, size: int, keep: int = 0, at_most: int | None = None) -> None:
            raise MemoryError

    expected = pack(some_text(300_000))
    with pytest.raises(MemoryError):
        zstd_frame.compress(memoryview(some_text(400_000)), Full(1), 0)
    assert pack(some_text(300_000)) == expected


def test_threads_have_their_own_contexts() -> None:
    """Each gets its own bytes."""
    expected = {size: as_a_stream(some_text(size)) for size in (20_000, 20_001, 20_002, 20_003)}
    wrong: list[int] = []

    def work(size: int) -> None:
        for _ in range(30):
            frame = pack(some_text(size))
            if frame != expected[size] or unpack(frame, size + 1) != some_text(size):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
