"""Walking a `.log` chunk by chunk: all batches in order, with any buffer, and the position of the first bad one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import CorruptBatchError
from cleaner.format.batch import Chunk, ReadBuffer, SegmentReader
from cleaner.format.legacy_checksums import BAD_LEGACY_CHECKSUM
from tests.support.batch_builder import Record, data_batch, legacy_batch
from tests.support.batch_reader import MemoryFile

pytestmark = pytest.mark.kernels


def batches(*sizes: int, base: int = 0) -> bytes:
    """Build batches of one record with values of these sizes, at offsets 0, 1, 2..."""
    return b"".join(data_batch([Record(b"k", bytes(size))], base + i) for i, size in enumerate(sizes))


def read_all(log: bytes, chunk_bytes: int = 4096, **options: int) -> list[tuple[int, bytes]]:
    """Return (base offset, bytes) of every batch, checking each chunk on the way."""
    found = []
    reader = SegmentReader(MemoryFile(log), size=len(log), buffer=ReadBuffer(chunk_bytes), **options)
    for chunk in reader:
        check_chunk(chunk)
        for row in chunk.batches:
            start, size = int(row["start"]), int(row["size"])
            assert int(row["position"]) == chunk.position + start
            found.append((int(row["base_offset"]), chunk.data[start : start + size].tobytes()))
    return found


def check_chunk(chunk: Chunk) -> None:
    """A chunk's batches cover it completely."""
    sizes = chunk.batches["size"]
    assert chunk.batches["start"].tolist() == [0, *np.cumsum(sizes)[:-1].tolist()]
    assert chunk.length == int(sizes.sum()) > 0


@pytest.mark.parametrize("chunk_bytes", [100, 128, 1000, 4096, 1 << 20])
def test_reader_with_any_buffer_gives_every_batch(chunk_bytes: int) -> None:
    """Batches cut off by a chunk's end come in the next; one larger than the buffer makes it grow."""
    log = batches(*[13 * i % 400 for i in range(50)], 20_000, 5, 60_000, 1)
    found = read_all(log, chunk_bytes)
    assert b"".join(data for _, data in found) == log
    assert [offset for offset, _ in found] == list(range(54))


@given(st.lists(st.integers(0, 600), max_size=30), st.integers(62, 3000))
def test_reader_of_any_sizes_gives_every_batch(sizes: list[int], chunk_bytes: int) -> None:
    """Any sizes against any buffer."""
    log = batches(*sizes)
    assert b"".join(data for _, data in read_all(log, chunk_bytes)) == log


def test_reader_with_more_batches_than_its_table_gives_them_in_several_chunks() -> None:
    """A table holds 8192 rows; a chunk of smaller batches takes several."""
    one = data_batch([], 0)
    log = one * 20_000
    chunks = [
        (chunk.position, len(chunk.batches))
        for chunk in SegmentReader(MemoryFile(log), size=len(log), buffer=ReadBuffer(len(log)))
    ]
    assert sum(rows for _, rows in chunks) == 20_000
    assert len(chunks) == 3
    assert [position for position, _ in chunks] == [0, 8192 * 61, 2 * 8192 * 61]


def test_reader_begins_at_start_and_stops_at_size() -> None:
    """Bytes after `size` and before `start` are ignored."""
    log = batches(10, 20, 30)
    first = len(batches(10))
    end = len(batches(10, 20))
    reader = SegmentReader(MemoryFile(log + b"\xff" * 50), size=end, start=first)
    (chunk,) = reader
    assert (chunk.position, chunk.batches["base_offset"].tolist()) == (first, [1])


def test_reader_of_an_empty_file_gives_nothing() -> None:
    """An empty segment is sound."""
    assert list(SegmentReader(MemoryFile(b""), size=0)) == []


def test_reader_gives_the_buffer_back_at_its_usual_size() -> None:
    """A large batch does not take memory forever."""
    buffer = ReadBuffer(1000)
    log = batches(50_000, 10)
    assert sum(chunk.length for chunk in SegmentReader(MemoryFile(log), size=len(log), buffer=buffer)) == len(log)
    assert buffer.capacity == 1000


@pytest.mark.parametrize("chunk_bytes", [100, 400, 4096])
def test_reader_fills_the_buffers_it_is_given_in_turn(chunk_bytes: int) -> None:
    """A chunk stays as it is while the next is read into another buffer; a large batch grows only the one it meets."""
    log = batches(*[10, 90, 2000, 10, 10, 300, 10, 10])
    reader = SegmentReader(MemoryFile(log), size=len(log), check_order_from=0)
    buffers, chunks = [], []
    while True:
        buffers.append(ReadBuffer(chunk_bytes))
        chunk = reader.next_chunk(buffers[-1])
        if chunk is None:
            break
        chunks.append(chunk)
    for chunk, buffer in zip(chunks, buffers, strict=False):
        check_chunk(chunk)
        assert chunk.data is buffer.data
        assert buffer.capacity == max(chunk_bytes, chunk.length) or buffer.capacity == chunk_bytes
    assert b"".join(chunk.data[: chunk.length].tobytes() for chunk in chunks) == log
    assert reader.next_chunk(buffers[-1]) is None


def test_reader_at_damage_gives_the_good_batches_first_and_then_fails_every_time() -> None:
    """For every later call, with any buffer."""
    reader = SegmentReader(MemoryFile(GOOD + bytes(200)), size=len(GOOD) + 200, check_order_from=0)
    chunk = reader.next_chunk(ReadBuffer(4096))
    assert chunk is not None
    assert chunk.length == len(GOOD)
    for _ in range(3):
        with pytest.raises(CorruptBatchError) as raised:
            reader.next_chunk(ReadBuffer(4096))
        assert raised.value.position == len(GOOD)


def bad_position(log: bytes, chunk_bytes: int = 4096, **options: int) -> tuple[int, str, int]:
    """Return position and reason of the damage, and how many batches were given before it."""
    count = 0
    with pytest.raises(CorruptBatchError) as raised:
        for chunk in SegmentReader(MemoryFile(log), size=len(log), buffer=ReadBuffer(chunk_bytes), **options):
            count += len(chunk.batches)
    assert raised.value.path == Path("some.log")
    return raised.value.position, raised.value.reason, count


GOOD = batches(10, 500, 30)
NEXT = batches(40, base=3)

DAMAGES = [
    pytest.param(NEXT[:-1] + b"\xff", "CRC-32C", id="crc"),
    pytest.param(NEXT[:16] + b"\x09" + NEXT[17:], "unknown magic", id="magic"),
    pytest.param(NEXT[:8] + bytes(4) + NEXT[12:], "too small", id="length-zero"),
    pytest.param(NEXT[:8] + b"\x80\0\0\0" + NEXT[12:], "too small", id="length-negative"),
    pytest.param(NEXT[:8] + b"\x7f\xff\xff\xff" + NEXT[12:], "bytes are left", id="length-huge"),
    pytest.param(NEXT[:-1], "bytes are left", id="cut"),
    pytest.param(NEXT[:61], "bytes are left", id="cut-after-header"),
    pytest.param(NEXT[:17], "bytes are left", id="cut-after-magic"),
    pytest.param(NEXT[:11], "bytes are left", id="cut-in-framing"),
    pytest.param(b"\0", "bytes are left", id="one-byte-behind"),
    pytest.param(bytes(200), "too small", id="zeros"),
]


@pytest.mark.parametrize("chunk_bytes", [100, 4096])
@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_reader_at_damage_names_where_the_bad_batch_begins(damage: bytes, reason: str, chunk_bytes: int) -> None:
    """All good batches come first; the position says how many bytes are good, a torn tail included."""
    position, said, count = bad_position(GOOD + damage, chunk_bytes)
    assert (position, count) == (len(GOOD), 3)
    assert reason in said


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(batches(1, base=2), "not above the one before", id="offset-repeated"),
        pytest.param(data_batch([Record(b"k", b"v")], 3, overrides={"count": 2}), "more records", id="count"),
        pytest.param(data_batch([Record(b"k", b"v")], 3, overrides={"attributes": 6}), "compression", id="codec"),
    ],
)
def test_reader_that_checks_order_finds_false_headers(bad: bytes, reason: str) -> None:
    """Only with a first offset to check from; recovery skips this check."""
    position, said, count = bad_position(GOOD + bad, check_order_from=0)
    assert (position, count) == (len(GOOD), 3)
    assert reason in said
    assert len(read_all(GOOD + bad)) == 4


def test_reader_that_checks_order_refuses_offsets_below_the_segments_base() -> None:
    """The first offset may be the base offset, not one below it; order is checked across chunks too."""
    assert len(read_all(batches(1, 1, base=5), check_order_from=5)) == 2
    assert bad_position(batches(1, 1, base=5), check_order_from=6)[0] == 0
    log = batches(300, 300, base=5) + batches(300, base=6)
    assert bad_position(log, 400, check_order_from=5)[0] == len(batches(300, 300))


@pytest.mark.parametrize("magic", [0, 1])
def test_reader_returns_what_is_sound_before_a_damaged_legacy_entry(magic: int) -> None:
    """All of one chunk: the entries before come first, then the error, at each further call."""
    entries = [legacy_batch([Record(b"key", b"value", timestamp_ms=5)], offset, magic) for offset in range(3)]
    damaged = entries[1][:-1] + b"X"
    log = entries[0] + damaged + entries[2]
    reader, buffer = SegmentReader(MemoryFile(log), size=len(log), check_order_from=0), ReadBuffer()
    chunk = reader.next_chunk(buffer)
    assert chunk is not None
    assert (chunk.length, chunk.batches["last_offset"].tolist()) == (len(entries[0]), [0])
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as caught:
            reader.next_chunk(buffer)
        assert (caught.value.position, caught.value.reason) == (len(entries[0]), BAD_LEGACY_CHECKSUM)


@pytest.mark.parametrize("magic", [0, 1])
def test_reader_checks_the_older_checksum_of_legacy_entries(magic: int) -> None:
    """CRC-32 over bytes 16 to the end (R-240)."""
    entry = legacy_batch([Record(b"key", b"value", timestamp_ms=5)], 3, magic)
    assert len(read_all(GOOD + entry + batches(1, base=4))) == 5
    for at in (12, 17, len(entry) - 1):
        flipped = entry[:at] + bytes([entry[at] ^ 0x10]) + entry[at + 1 :]
        position, said, _ = bad_position(GOOD + flipped + batches(1, base=4))
        assert (position, "CRC-32 " in said) == (len(GOOD), True)


def test_reader_whose_file_becomes_shorter_reports_damage() -> None:
    """Another process cut it during the read: no crash, and no endless loop."""
    file = MemoryFile(GOOD, shrink_to=len(GOOD) - 5)
    with pytest.raises(CorruptBatchError, match="shorter while it was read"):
        list(SegmentReader(file, size=len(GOOD)))


def test_huge_length_is_refused_before_memory_is_taken() -> None:
    """A length of 2 GiB in a small file costs nothing."""
    buffer = ReadBuffer(1000)
    log = GOOD + NEXT[:8] + b"\x7f\xff\xff\xff" + NEXT[12:]
    with pytest.raises(CorruptBatchError):
        list(SegmentReader(MemoryFile(log), size=len(log), buffer=buffer))
    assert buffer.capacity == 1000
