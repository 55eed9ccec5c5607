"""zstd frames from kernels: those that `format/zstd_frame.py` packs and unpacks, with the same bytes (R-253)."""

from __future__ import annotations

import random
import threading
import weakref

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.base.concurrency import Thread
from cleaner.format import zstd_frame
from cleaner.format.buffers import GrowingBuffer
from cleaner.kernels import zstd
from tests.support.codecs import some_text
from tests.unit.kernels.arrays import guarded

pytestmark = pytest.mark.kernels

SIZES = (1, 100, 16_000, 65_535, 131_071, 131_072, 131_073, 262_144, 700_000)


def slowly_packed(data: bytes) -> bytes:
    """Pack from Python."""
    out = GrowingBuffer(1)
    size = zstd_frame.compress(memoryview(data), out, 0)
    return bytes(out.view[:size])


def slowly_unpacked(frame: bytes, room: int) -> bytes | None:
    """Unpack from Python; None where it refuses."""
    if not zstd_frame.is_one_frame(memoryview(frame)):
        return None
    out = memoryview(bytearray(room + 1))  # it needs a spare byte
    length = zstd_frame.decompress_frame(memoryview(frame), out)
    return None if length is None else bytes(out[:length])


def pack(data: bytes, room: int | None = None) -> bytes | None:
    """Pack from the middle of an array into the middle of another; None where the kernel refuses."""
    room = int(zstd.max_packed_bytes(len(data))) if room is None else room
    with guarded() as guards:
        source, out = guards.bytes(b"#" * 3 + data), guards.room(5 + room)
        end = int(zstd.pack_frame(source, 3, 3 + len(data), out, 5, 5 + room, zstd_frame.kernel_cells()))
        assert bytes(out[:5]) == bytes(5)
    assert end == zstd.NO_FRAME or 5 < end <= 5 + room
    return None if end == zstd.NO_FRAME else bytes(out[5:end])


def unpack(frame: bytes, room: int) -> bytes | None:
    """Unpack in the middle of arrays; None where the kernel refuses."""
    with guarded() as guards:
        source, out = guards.bytes(b"#" * 3 + frame), guards.room(5 + room)
        length = int(zstd.unpack_frame(source, 3, 3 + len(frame), out, 5, 5 + room, zstd_frame.kernel_cells()))
        assert bytes(out[:5]) == bytes(5)
    assert zstd.NO_FRAME <= length <= room
    return None if length == zstd.NO_FRAME else bytes(out[5 : 5 + length])


def test_the_installed_package_has_a_library_that_can_be_called() -> None:
    """If a release of `zstandard` drops it, rounds are a third slower: this is how we learn of it."""
    assert zstd_frame.kernel_cells()[[zstd.DECOMPRESS, zstd.DECOMPRESSOR, zstd.COMPRESS, zstd.COMPRESSOR]].all()


@pytest.mark.parametrize("size", SIZES)
def test_frame_is_that_of_the_stream_whatever_was_packed_before(size: int) -> None:
    """Byte for byte; the next frame does not depend on the last one."""
    for before in (some_text(200_000), some_text(size, 1)):
        pack(before)
        assert pack(some_text(size)) == slowly_packed(some_text(size))


@pytest.mark.parametrize("size", SIZES)
def test_bytes_that_do_not_get_smaller_fit_the_promised_room(size: int) -> None:
    """Noise becomes larger; a byte less than the promised room is refused, whatever the data."""
    noise = random.Random(size).randbytes(size)
    assert pack(noise) == slowly_packed(noise)
    assert pack(bytes(size), int(zstd.max_packed_bytes(size)) - 1) is None


@pytest.mark.parametrize("size", SIZES)
def test_frame_is_unpacked_into_just_enough_room(size: int) -> None:
    """Of any number of blocks, with the content size and without; a byte less is refused."""
    data = some_text(size)
    for frame in (slowly_packed(data), bytes(cramjam.zstd.compress(data, level=3))):
        assert unpack(frame, size) == data
        assert unpack(frame, size - 1) is None


def test_nothing_is_not_packed() -> None:
    """Left to the caller, as what is outside of the arrays is."""
    cells, data, out = zstd_frame.kernel_cells(), np.zeros(10, np.uint8), np.zeros(1000, np.uint8)
    assert pack(b"") is None
    assert zstd.pack_frame(data, 0, 11, out, 0, 1000, cells) == zstd.NO_FRAME
    assert zstd.pack_frame(data, 0, 10, out, 0, 1001, cells) == zstd.NO_FRAME
    frame = np.frombuffer(slowly_packed(b"text") + bytes(8), np.uint8).copy()
    size = len(frame) - 8
    assert zstd.unpack_frame(frame, 0, size, out, 0, 1000, cells) == 4
    assert zstd.unpack_frame(frame, 0, size, out, 0, 1001, cells) == zstd.NO_FRAME
    assert zstd.unpack_frame(frame, 8, size + 9, out, 0, 1000, cells) == zstd.NO_FRAME


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x28\xb5\x2f\xfd\x01\x58\x07" + b"\x01\x00\x00", id="dictionary"),
        pytest.param(b"\x28\xb5\x2f\xfd\x08\x58" + b"\x01\x00\x00", id="reserved-bit"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x58" + b"\x07\x00\x00", id="reserved-block"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x58" + b"\x00\x00\x00" * 5000 + b"\x01\x00\x00", id="blocks-without-end"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x88" + b"\x2b\x00\x00a", id="large-window"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00\x69" + b"\x2b\x00\x00a", id="a-little-above-8-MiB"),
    ],
)
def test_frame_of_another_kind_is_refused(frame: bytes) -> None:
    """As by the other way, which leaves them to its library."""
    assert unpack(frame, 1000) is None
    assert slowly_unpacked(frame, 1000) is None


@pytest.mark.parametrize("window", range(256))
def test_windows_up_to_8_mib_are_taken(window: int) -> None:
    """One block of five equal bytes: the same windows as by the other way."""
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x2b\x00\x00a"
    assert unpack(frame, 1000) == slowly_unpacked(frame, 1000)
    assert (unpack(frame, 1000) == b"aaaaa") is (window <= 13 << 3)


REPEATED_BLOCK = b"\x28\xb5\x2f\xfd\x00\x58" + (2000 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        pytest.param(REPEATED_BLOCK, b"a" * 2000, id="repeated"),
        pytest.param(slowly_packed(some_text(2000)), some_text(2000), id="block"),
        pytest.param(slowly_packed(some_text(140_000)), some_text(140_000), id="matches"),
    ],
)
def test_blocks_and_matches_beyond_the_window_are_refused(frame: bytes, data: bytes) -> None:
    """As by a stream, and so by Kafka; in one piece the library would take them (R-253)."""
    found = []
    for window in range((13 << 3) + 1):
        changed = frame[:5] + bytes([window]) + frame[6:]
        found.append(unpack(changed, 200_000))
        assert found[-1] == slowly_unpacked(changed, 200_000)
    assert found[0] is None
    assert found[-1] == data


@settings(deadline=None, max_examples=500)
@given(
    st.sampled_from((0, 1, 30, 5000)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.integers(-8, 8),
    st.sampled_from((0, 100, 6000)),
)
def test_damaged_frames_are_refused_or_unpacked_alike(
    size: int, changes: list[tuple[int, int]], cut: int, room: int
) -> None:
    """Whatever is changed, cut off or behind; and no frame has an effect on the next one."""
    sound = slowly_packed(some_text(size))
    damaged = bytearray(sound)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    frame = bytes(damaged[: len(damaged) + cut] if cut < 0 else damaged + bytes(cut))
    assert zstd.is_one_frame(np.frombuffer(frame + b"#", np.uint8).copy(), 0, len(frame)) <= zstd_frame.is_one_frame(
        memoryview(frame)
    )
    found = unpack(frame, room)
    assert found == slowly_unpacked(frame, room) if room else found in (None, b"")
    assert unpack(sound, 5000) == some_text(size)
    assert pack(some_text(5000)) == slowly_packed(some_text(5000))


def test_contexts_end_with_their_thread() -> None:
    """Each thread has its own; six megabytes must not stay for each thread there ever was."""
    kept: list[tuple[int, weakref.ref[object]]] = []

    def work() -> None:
        assert pack(some_text(5000)) == slowly_packed(some_text(5000))
        contexts = zstd_frame._contexts.for_kernels
        kept.append((int(contexts.cells[zstd.COMPRESSOR]), weakref.ref(contexts)))
        both.wait()

    both = threading.Barrier(2)
    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({address for address, _ in kept} | {int(zstd_frame.kernel_cells()[zstd.COMPRESSOR])}) == 3
    assert [reference() for _, reference in kept] == [None, None]
