"""A `.log` read window by window, filled by any thread and arranged in order: the same as by a single reader."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleaner.errors import CorruptBatchError
from cleaner.format.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk, ReadBuffer, SegmentReader
from cleaner.format.chunks import ANY_KIND, TABLE_ROWS
from cleaner.format.parallel_reader import ParallelSegmentReader, Window, WindowBuffer, verify_checksums
from cleaner.kernels.scan_status import KIND_LEGACY, KIND_PRODUCER
from tests.support.batch_builder import Producer, Record, data_batch, empty_batch, legacy_batch, marker_batch
from tests.support.batch_reader import MemoryFile
from tests.unit.format.test_batch import batches, check_chunk

pytestmark = pytest.mark.kernels

PATH = Path("some.log")
Label = tuple[int, str]


@dataclass
class Found:
    """Bytes of all good batches, borders of chunks, their kinds, and the damage after them."""

    log: bytes = b""
    cuts: list[tuple[int, int]] = field(default_factory=list)
    kinds: int = 0
    failure: Label | None = None

    def add(self, chunk: Chunk) -> None:
        """Add a chunk, which must be in one piece."""
        if chunk.length:
            check_chunk(chunk)
            assert chunk.batches["position"].tolist() == (chunk.position + chunk.batches["start"]).tolist()
            self.cuts.append((chunk.position, chunk.position + chunk.length))
        assert chunk.kinds != ANY_KIND
        self.log += chunk.data[: chunk.length].tobytes()
        self.kinds |= chunk.kinds


def in_one_go(log: bytes, *, start: int = 0, check_order_from: int = 0) -> Found:
    """Read as a single reader does, all in one chunk."""
    found = Found()
    reader = SegmentReader(
        MemoryFile(log), size=len(log), start=start, buffer=ReadBuffer(len(log) + 17), check_order_from=check_order_from
    )
    try:
        for chunk in reader:
            found.add(chunk)
    except CorruptBatchError as error:
        found.failure = (error.position, error.reason)
    return found


def read_in_parallel(
    log: bytes,
    window_bytes: int,
    *,
    lanes: int = 1,
    seed: int = 0,
    start: int = 0,
    check_order_from: int = 0,
    shrink_to: int | None = None,
) -> Found:
    """
    Read as so many lanes do, one step at a time, in an order drawn by lot.

    Checksums are verified as late as possible, when the buffer is to be filled again: chunks must last until then.
    """
    rng, found = random.Random(seed), Found()
    reader = ParallelSegmentReader(
        MemoryFile(log, shrink_to),
        size=len(log),
        start=start,
        window_bytes=window_bytes,
        check_order_from=check_order_from,
    )
    buffers = deque(WindowBuffer(window_bytes) for _ in range(lanes))
    claimed: list[tuple[Window, WindowBuffer]] = []
    filled: list[Window] = []
    arranged: deque[tuple[Chunk, WindowBuffer]] = deque()

    def verify() -> None:
        chunk, buffer = arranged.popleft()
        if found.failure is None:
            chunk = verify_checksums(PATH, chunk)
            found.add(chunk)
            found.failure = None if chunk.failure is None else (chunk.failure.position, chunk.failure.reason)
        buffers.append(buffer)

    for _ in range(1_000_000):
        if buffers and rng.random() < 0.6 and (window := reader.claim()) is not None:
            buffers[0].shrink()
            claimed.append((window, buffers.popleft()))
        left = [pair for pair in claimed if pair[0] not in filled]
        if left and rng.random() < 0.7:
            window, buffer = rng.choice(left)
            reader.fill(window, buffer)
            filled.append(window)
        if claimed and claimed[0][0] in filled and rng.random() < 0.6:
            window, buffer = claimed.pop(0)
            arranged.append((reader.arrange(window, buffer), buffer))
        if arranged and (not buffers or rng.random() < 0.1):
            verify()
        if not claimed and reader.is_arranged:
            break
    else:
        raise AssertionError("reading does not end")
    while arranged:
        verify()
    assert reader.claim() is None
    return found


def assert_agreement(log: bytes, window_bytes: int, lanes: int = 3, seed: int = 0, check_order_from: int = 0) -> Found:
    """The same good batches and the same error as a single reader's, whichever thread is faster."""
    expected = in_one_go(log, check_order_from=check_order_from)
    found = read_in_parallel(log, window_bytes, lanes=lanes, seed=seed, check_order_from=check_order_from)
    assert found.failure == expected.failure
    if expected.failure is None or "CRC-32 " not in expected.failure[1]:
        assert found.log == expected.log
    else:  # the single reader gives nothing of a chunk with a bad entry of magic 0 or 1
        assert found.log == log[: expected.failure[0]]
    return found


def of_all_kinds(count: int = 24, seed: int = 1) -> bytes:
    """Build batches of every magic, with producers, markers and empty ones among them."""
    rng, log, offset = random.Random(seed), b"", 0
    for i in range(count):
        records = [Record(b"k%d" % j, rng.randbytes(rng.choice([0, 5, 90]))) for j in range(rng.randint(1, 3))]
        kind = i % 8
        if kind < 2:
            log += legacy_batch(records, offset, kind, codec=rng.choice(["none", "gzip"]))
        elif kind == 2:
            log += marker_batch(offset, 7, 0, commit=bool(i % 3))
        elif kind == 3:
            log += empty_batch(offset, offset + 2, producer=Producer(8, 0, 3))
        else:
            producer = Producer(7, 0, i, True) if kind == 4 else Producer()
            log += data_batch(records, offset, producer=producer, codec=rng.choice(["none", "lz4", "zstd"]))
        offset += 3
    return log


@pytest.mark.parametrize("window_bytes", [17, 62, 100, 128, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_windows_of_any_size_give_every_batch(window_bytes: int, lanes: int) -> None:
    """Batches cut in two come whole; so do those larger than several windows."""
    log = batches(*[13 * i % 400 for i in range(50)], 20_000, 5, 60_000, 1) + batches(10, 5000, 10, base=60)
    found = assert_agreement(log, window_bytes, lanes)
    assert (found.log, found.failure) == (log, None)


@given(st.lists(st.integers(0, 600), max_size=20), st.integers(17, 2000), st.integers(1, 6), st.integers(0, 2**32))
@example([500, 500], 71, 6, 0)
def test_windows_of_any_log_give_every_batch(sizes: list[int], window_bytes: int, lanes: int, seed: int) -> None:
    """Any sizes, any windows, any number of lanes, filled and arranged in random order."""
    log = batches(*sizes)
    assert assert_agreement(log, window_bytes, lanes, seed).log == log


@given(st.lists(st.integers(0, 900), min_size=1, max_size=20), st.integers(17, 400), st.integers(0, 2**32))
def test_chunks_are_cut_the_same_in_any_order_of_threads(sizes: list[int], window_bytes: int, seed: int) -> None:
    """Windows claimed before a large batch is read, and after it, give the same chunks."""
    log = batches(*sizes)
    alone = read_in_parallel(log, window_bytes).cuts
    for lanes in (2, 4, 7):
        assert read_in_parallel(log, window_bytes, lanes=lanes, seed=seed).cuts == alone


def test_windows_within_a_large_batch_are_mostly_skipped() -> None:
    """Its first reader has read it whole; a window after its middle is claimed only where the batch ends."""
    file = MemoryFile(batches(10_000, 10, 10))
    size = len(batches(10_000, 10, 10))
    reader = ParallelSegmentReader(file, size=size, start=0, window_bytes=100, check_order_from=0)
    while (window := reader.claim()) is not None:
        buffer = WindowBuffer(100)
        reader.fill(window, buffer)
        reader.arrange(window, buffer)
    assert sum(length for _, length in file.reads) < size + 2 * 100
    assert len(file.reads) < 8


def test_reader_begins_at_start_and_stops_at_size() -> None:
    """Whatever lies behind `size` is not looked at, and nothing before `start`."""
    log, first, end = batches(10, 20, 30), len(batches(10)), len(batches(10, 20))
    file = MemoryFile(log + b"\xff" * 50)
    reader = ParallelSegmentReader(file, size=end, start=first, window_bytes=4096, check_order_from=0)
    window, buffer = reader.claim(), WindowBuffer(4096)
    assert window == Window(first, end - first)
    reader.fill(window, buffer)
    chunk = reader.arrange(window, buffer)
    assert (chunk.position, chunk.length, chunk.batches["base_offset"].tolist()) == (first, end - first, [1])
    assert reader.is_arranged
    assert reader.claim() is None


@pytest.mark.parametrize("window_bytes", [17, 100, 4096])
def test_start_in_the_middle_gives_the_rest(window_bytes: int) -> None:
    """Windows are counted from there."""
    log, first = batches(10, 20, 30, 500, 10), len(batches(10, 20))
    found = read_in_parallel(log, window_bytes, lanes=3, start=first)
    assert (found.log, found.cuts[0][0], found.failure) == (log[first:], first, None)


def test_empty_file_has_no_window() -> None:
    """An empty segment is sound."""
    reader = ParallelSegmentReader(MemoryFile(b""), size=0, start=0, window_bytes=100, check_order_from=0)
    assert reader.claim() is None
    assert reader.is_arranged


def test_more_batches_than_the_table_are_listed_in_one_chunk() -> None:
    """The table grows for a window of very many batches, and shrinks before the next."""
    count = 12 * TABLE_ROWS
    log = b"".join(data_batch([], offset) for offset in range(count))
    assert assert_agreement(log, len(log)).cuts == [(0, len(log))]
    found = assert_agreement(log, len(log) // 2 + 30)
    assert [(end - begin) // 61 for begin, end in found.cuts] == [
        (len(log) // 2 + 30) // 61,
        (len(log) // 2 - 30) // 61 + 1,
    ]
    buffer = WindowBuffer(100)
    rows = len(buffer.table)
    buffer.grow_table()
    assert len(buffer.table) > rows
    buffer.shrink()
    assert len(buffer.table) == rows


def test_kinds_are_those_of_the_single_reader() -> None:
    """Joined over all batches; a chunk has only the kinds of its own batches."""
    log = of_all_kinds()
    for window_bytes in (100, 1000, 1 << 16):
        found = assert_agreement(log, window_bytes)
        assert found.kinds == in_one_go(log).kinds
        assert found.kinds & KIND_LEGACY
        assert found.kinds & KIND_PRODUCER
        assert found.kinds & TRANSACTIONAL_FLAG
        assert found.kinds & CONTROL_FLAG
    plain = read_in_parallel(batches(1, 2, 3), 100)
    assert plain.kinds == 0


GOOD = batches(10, 500, 30)
NEXT = batches(40, base=3)
BEHIND = batches(10, 2000, 10, base=4)


def with_size(batch: bytes, size: int) -> bytes:
    """Lie in the length field."""
    return batch[:8] + struct.pack(">i", size) + batch[12:]


def altered(**fields: int) -> bytes:
    """One record at offset 3 under a false header with a right checksum."""
    return data_batch([Record(b"k", b"v")], 3, overrides=fields)


MARKER = marker_batch(3, 5, 0, commit=True)
LEGACY = legacy_batch([Record(b"k", bytes(60))], 3, 1)
DAMAGES = [
    pytest.param(NEXT[:-1] + b"\xff", id="crc"),
    pytest.param(NEXT[:17] + b"\0\0\0\0" + NEXT[21:], id="crc-field"),
    pytest.param(NEXT[:16] + b"\x09" + NEXT[17:], id="magic"),
    pytest.param(with_size(NEXT, 0), id="length-zero"),
    pytest.param(with_size(NEXT, -(2**31)), id="length-negative"),
    pytest.param(with_size(NEXT, 40), id="length-below-header"),
    pytest.param(with_size(NEXT, 70), id="length-too-small"),
    pytest.param(with_size(NEXT, 700), id="length-too-large"),
    pytest.param(with_size(NEXT, 2**31 - 1), id="length-huge"),
    pytest.param(with_size(NEXT[:16] + b"\x09" + NEXT[17:], 2**31 - 1), id="length-huge-and-magic"),
    pytest.param(altered(count=2), id="count-above-offsets"),
    pytest.param(altered(count=-1), id="count-negative"),
    pytest.param(altered(count=9, last_offset_delta=9), id="count-above-bytes"),
    pytest.param(altered(attributes=6), id="codec"),
    pytest.param(altered(last_offset_delta=-1), id="last-offset"),
    pytest.param(altered(last_offset_delta=-1, crc=0), id="last-offset-and-crc"),
    pytest.param(altered(last_offset_delta=900, crc=0), id="last-offset-above-all-and-crc"),
    pytest.param(batches(1, base=2), id="offset-repeated"),
    pytest.param(batches(1, base=2)[:-1] + b"x", id="offset-repeated-and-crc"),
    pytest.param(MARKER[:-1] + b"x", id="marker-crc"),
    pytest.param(MARKER[:22] + bytes([MARKER[22] & ~CONTROL_FLAG]) + MARKER[23:], id="marker-made-data"),
    pytest.param(NEXT[:22] + bytes([CONTROL_FLAG]) + NEXT[23:], id="data-made-marker"),
    pytest.param(LEGACY[:-1] + b"x", id="legacy-crc"),
    pytest.param(LEGACY[:17] + b"\x07" + LEGACY[18:], id="legacy-codec"),
    pytest.param(bytes(200), id="zeros"),
]
ENDS = [
    pytest.param(NEXT[:-1], id="cut"),
    pytest.param(NEXT[:61], id="cut-after-header"),
    pytest.param(NEXT[:17], id="cut-after-magic"),
    pytest.param(NEXT[:16], id="cut-before-magic"),
    pytest.param(NEXT[:12], id="cut-after-length"),
    pytest.param(NEXT[:11], id="cut-in-length"),
    pytest.param(with_size(NEXT, 3)[:12], id="cut-after-false-length"),
    pytest.param(b"\0", id="one-byte-behind"),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("behind", [b"", BEHIND], ids=["last", "more-behind"])
def test_damage_in_any_place_of_a_window_is_the_error_of_the_single_reader(damage: bytes, behind: bytes) -> None:
    """Position, reason and the good batches before it, with the border of two windows at every byte of the damage."""
    log = GOOD + damage + behind
    expected = in_one_go(log).failure
    assert expected is not None
    assert expected[0] in (len(GOOD), len(GOOD) + 82)  # behind a false length what follows is no batch
    borders = [*range(len(GOOD), len(GOOD) + 64), len(GOOD) + len(damage) - 1, len(log)]
    for seed, border in enumerate([*borders, 17, 50, 100]):
        assert_agreement(log, border, lanes=1 + seed % 3, seed=seed)


@pytest.mark.parametrize("end", ENDS)
def test_batch_cut_off_by_the_end_of_the_file_is_the_error_of_the_single_reader(end: bytes) -> None:
    """The position says how many bytes are good."""
    log = GOOD + end
    expected = in_one_go(log).failure
    assert expected is not None
    assert expected[0] == len(GOOD)
    for seed, window_bytes in enumerate([*range(17, 120), *range(len(GOOD) - 3, len(log) + 2)]):
        assert_agreement(log, window_bytes, lanes=1 + seed % 3, seed=seed)


changes = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 4, 0x20, 0x7F, 0x80, 0xFF])), min_size=1, max_size=4
)


@given(
    changed=changes,
    cut=st.one_of(st.none(), st.integers(0, 10_000)),
    window_bytes=st.integers(17, 700),
    lanes=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_any_damage_is_the_error_of_the_single_reader(
    changed: Sequence[tuple[int, int]], cut: int | None, window_bytes: int, lanes: int, seed: int
) -> None:
    """Bytes changed anywhere, in batches of every kind, and an end anywhere."""
    log = bytearray(of_all_kinds(12, seed % 5))
    for position, value in changed:
        log[position % len(log)] ^= value
    assert_agreement(bytes(log if cut is None else log[: cut % len(log)]), window_bytes, lanes, seed)


@given(st.lists(st.integers(-1, 8), min_size=1, max_size=12), st.integers(-1, 4), st.integers(17, 300))
def test_offsets_in_any_order_are_the_error_of_the_single_reader(
    offsets: list[int], check_order_from: int, window_bytes: int
) -> None:
    """Compared with the last batch of the window before; the first with the segment's base offset."""
    log = b"".join(data_batch([Record(b"k", b"v")], offset) for offset in offsets)
    assert_agreement(log, window_bytes, check_order_from=check_order_from)


def test_bad_checksum_of_a_marker_is_found_while_arranging() -> None:
    """A marker is needed in order, before other checksums are verified; those of data come later."""
    for damaged, is_found in ((MARKER, True), (NEXT, False)):
        log = GOOD + damaged[:-1] + b"x"
        reader = ParallelSegmentReader(MemoryFile(log), size=len(log), start=0, window_bytes=4096, check_order_from=0)
        window, buffer = reader.claim(), WindowBuffer(4096)
        assert window is not None
        reader.fill(window, buffer)
        chunk = reader.arrange(window, buffer)
        assert len(chunk.batches) == (3 if is_found else 4)
        assert (chunk.failure is not None) == is_found
        assert (verify_checksums(PATH, chunk).failure or chunk).position == len(GOOD)


def test_earlier_one_of_a_bad_checksum_and_a_bad_header_is_reported() -> None:
    """A chunk whose headers are damaged at its end, and a checksum before that."""
    bad_data = batches(20, base=4)[:-1] + b"x"
    bad_legacy = legacy_batch([Record(b"k", b"v")], 5, 0)[:-1] + b"x"
    tail = bytes(100)
    for log, position in (
        (GOOD + NEXT + bad_data + bad_legacy + tail, len(GOOD + NEXT)),
        (GOOD + NEXT + bad_legacy + batches(20, base=6)[:-1] + b"x" + tail, len(GOOD + NEXT)),
        (GOOD + NEXT + tail, len(GOOD + NEXT)),
    ):
        found = read_in_parallel(log, 4096)
        assert found.failure is not None
        assert (found.failure[0], found.log) == (position, GOOD + NEXT)


@pytest.mark.parametrize("lanes", [1, 3])
def test_nothing_is_arranged_behind_damage(lanes: int) -> None:
    """Windows claimed before are empty, and no more are claimed."""
    log = bytes(17) + batches(*[50] * 40, base=1)
    reader = ParallelSegmentReader(MemoryFile(log), size=len(log), start=0, window_bytes=64, check_order_from=0)
    claimed = [(window, WindowBuffer(64)) for window in (reader.claim() for _ in range(lanes)) if window is not None]
    for window, buffer in claimed:
        reader.fill(window, buffer)
    chunks = [reader.arrange(window, buffer) for window, buffer in claimed]
    assert [chunk.failure is not None for chunk in chunks] == [True] + [False] * (lanes - 1)
    assert [chunk.length for chunk in chunks] == [len(chunk.batches) for chunk in chunks] == [0] * lanes
    assert reader.is_arranged
    assert reader.claim() is None


def test_file_that_becomes_shorter_fails_where_it_ends() -> None:
    """While a window is filled; the thread abandons it, and no later window is arranged."""
    log = batches(10, 10, 10, 10)
    reader = ParallelSegmentReader(MemoryFile(log, 150), size=len(log), start=0, window_bytes=100, check_order_from=0)
    first, second, third = reader.claim(), reader.claim(), reader.claim()
    assert first is not None
    assert second is not None
    assert third is not None
    buffers = [WindowBuffer(100) for _ in range(3)]
    reader.fill(first, buffers[0])
    with pytest.raises(CorruptBatchError, match="shorter while it was read") as raised:
        reader.fill(second, buffers[1])
    assert raised.value.position == 150
    assert reader.arrange(first, buffers[0]).length == len(batches(10))
    reader.abandon()
    assert reader.arrange(third, buffers[2]).length == 0
    assert reader.claim() is None


def test_file_that_becomes_shorter_within_a_large_batch_fails_where_it_ends() -> None:
    """Found while arranging, it is the chunk's failure like other damage: whether it matters is known later."""
    log = batches(10, 2000, 10)
    found = read_in_parallel(log, 100, shrink_to=900)
    assert found.log == batches(10)
    assert found.failure == (900, "the file became shorter while it was read")


def test_chunk_stays_as_it_is_while_others_are_filled_and_arranged() -> None:
    """Carried-over bytes are a copy, and each window has its own memory."""
    log = batches(*[70] * 30, 900, *[70] * 30)
    reader = ParallelSegmentReader(MemoryFile(log), size=len(log), start=0, window_bytes=200, check_order_from=0)
    kept = []
    while (window := reader.claim()) is not None:
        buffer = WindowBuffer(200)
        reader.fill(window, buffer)
        chunk = reader.arrange(window, buffer)
        kept.append((chunk, chunk.data[: chunk.length].tobytes(), chunk.batches.copy()))
    assert b"".join(data for _, data, _ in kept) == log
    for chunk, data, rows in kept:
        assert chunk.data[: chunk.length].tobytes() == data
        assert np.array_equal(chunk.batches, rows)


def test_huge_length_is_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length of 2 GiB in a small file costs nothing."""
    taken: list[int] = []
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda shape, *args: (taken.append(int(shape)), zeros(shape, *args))[1])
    assert_agreement(GOOD + with_size(NEXT, 2**31 - 1), 64)
    assert max(taken) < 100_000
