"""Where reading goes on after damage: by a length that leads to a batch, or by a search for a whole one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.next_batch import NextBatch, find_whole_batch, next_batch
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Record, data_batch, legacy_batch
from tests.support.batch_reader import MemoryFile
from tests.support.codecs import crc32c

pytestmark = pytest.mark.kernels
LOST = b"\x07" * 40


def batch(offset: int = 5, value: bytes = b"v", magic: int = 2) -> bytes:
    """Build a batch of one record."""
    return (
        data_batch([Record(b"k", value)], offset) if magic == 2 else legacy_batch([Record(b"k", value)], offset, magic)
    )


def found_in(data: bytes, base_offset: int | None = None) -> int | None:
    """Search behind some lost bytes."""
    return find_whole_batch(MemoryFile(LOST + data), 0, len(LOST + data), base_offset)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(
    ("make", "before"),
    [
        pytest.param(lambda batch: batch, 0, id="whole"),
        pytest.param(lambda batch: b"\2" * 1000 + batch + b"\0" * 9, 1000, id="among-garbage"),
        *(
            pytest.param(lambda batch, at=at: bytes(at) + batch, at, id=f"{(1 << 20) - at}-before-the-windows-end")
            for at in range((1 << 20) - 70, (1 << 20) + 9)
            if at % 11 == 0
        ),
        pytest.param(lambda batch: bytes(3 << 20) + batch, 3 << 20, id="behind-windows-of-zeros"),
        pytest.param(lambda batch: batch[:-1], None, id="cut-short"),
        pytest.param(lambda batch: batch[:-1] + b"!", None, id="wrong-checksum"),
        pytest.param(lambda batch: bytes(5000), None, id="zeros"),
        pytest.param(lambda batch: b"", None, id="nothing"),
    ],
)
def test_whole_batches_are_found_anywhere(make: Callable[[bytes], bytes], before: int | None, magic: int) -> None:
    """This distinguishes a torn tail from damage in the middle."""
    expected = None if before is None else len(LOST) + before
    data = LOST + make(batch(magic=magic))
    assert find_whole_batch(MemoryFile(data), 0, len(data)) == expected
    assert find_whole_batch(MemoryFile(data), 0, len(data), in_anything=True) == expected


def test_random_bytes_are_read_a_few_times_in_a_search_of_any_file() -> None:
    """Otherwise hundreds of places in each MiB could begin a batch that goes on to the end."""
    data = Random(0).randbytes(3 << 20)
    file = MemoryFile(data + batch())
    assert find_whole_batch(file, 0, len(data) + len(batch()), in_anything=True) == len(data)
    assert file.bytes_read < 5 << 20


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [(1 << 20) - 40, 2 << 20])
def test_old_batch_whose_lengths_are_out_of_sight_is_found_in_any_file(magic: int, size: int) -> None:
    """The length of its value is read on its own."""
    data = LOST + legacy_batch([Record(bytes(size), b"v")], 5, magic)
    assert find_whole_batch(MemoryFile(data), 0, len(data), in_anything=True) == len(LOST)


@pytest.mark.parametrize(
    "base_offset, expected", [(None, 40), (5, 40), (6, 40), (6 - (1 << 31), 40), (5 - (1 << 31), None)]
)
def test_batch_with_an_offset_too_far_above_its_segments_is_none(base_offset: int | None, expected: int | None) -> None:
    """They are no further apart than 2**31 - 1 (R-304); lower ones, as holes of zeros leave, are told of as such."""
    shift = 1 << 32
    assert found_in(batch(5 + shift), None if base_offset is None else base_offset + shift) == expected


def test_batch_without_an_offset_is_none() -> None:
    """A negative offset is not valid."""
    assert found_in(batch(-5)) is None


FLIPPED = batch()[:-1] + b"!"


@pytest.mark.parametrize(
    ("first", "rest", "expected"),
    [
        pytest.param(FLIPPED, b"", NextBatch(len(FLIPPED), True), id="at-the-end"),
        pytest.param(FLIPPED, batch(6), NextBatch(len(FLIPPED), True), id="before-a-batch"),
        pytest.param(FLIPPED, FLIPPED + batch(7), NextBatch(len(FLIPPED), True), id="before-a-damaged-one"),
        pytest.param(FLIPPED, batch(6, magic=0), NextBatch(len(FLIPPED), True), id="before-an-old-one"),
        pytest.param(FLIPPED, b"x" * 9, NextBatch(len(FLIPPED) + 9, False), id="before-rubbish"),
        pytest.param(
            FLIPPED, b"x" * 99 + batch(6), NextBatch(len(FLIPPED) + 99, False), id="before-rubbish-then-a-batch"
        ),
        pytest.param(FLIPPED[:16] + b"\7" + FLIPPED[17:], batch(6), NextBatch(len(FLIPPED), True), id="unknown-magic"),
        pytest.param(bytes(12) + FLIPPED[12:], batch(6), NextBatch(len(FLIPPED), False), id="length-0"),
        pytest.param(b"\xff" * 12 + FLIPPED[12:], batch(6), NextBatch(len(FLIPPED), False), id="negative-length"),
        pytest.param(FLIPPED[:30], b"", NextBatch(30, False), id="cut-short"),
        pytest.param(b"\0", b"", NextBatch(1, False), id="one-byte"),
    ],
)
def test_reading_goes_on_by_length_or_at_a_whole_batch(first: bytes, rest: bytes, expected: NextBatch) -> None:
    """A length is used if it leads to the end or to a possible batch; otherwise, the end is next."""
    data = first + rest
    assert next_batch(MemoryFile(data), 0, len(data), 0) == expected


@pytest.mark.parametrize("behind", [batch(), batch(offset=0), batch(magic=1), b""], ids=["whole", "0", "old", "none"])
def test_holes_are_not_read(tmp_path: Path, behind: bytes) -> None:
    """A sparse file may be longer than any disk: only its data is searched, also for a head that begins in a hole."""
    path, length = tmp_path / "some.log", 1 << 40
    zeros = len(behind) - len(behind.lstrip(b"\0"))
    data_at = length - (1 << 20)
    with path.open("wb") as file:
        file.write(LOST)
        file.truncate(length)
        if behind:
            file.seek(data_at)
            file.write(behind[zeros:])
    with FileSystem().open(path) as opened:
        assert find_whole_batch(opened, 0, length, 0) == (data_at - zeros if behind else None)


def test_crafted_heads_do_not_multiply_reads() -> None:
    """Even if the batches of many heads would overlap, a byte is read a few times; the whole one is found."""
    size = 1 << 19
    data = bytearray(size)
    for at in range(0, size - 100, 34):
        data[at : at + 17] = (5).to_bytes(8, "big") + (size - at - 12).to_bytes(4, "big") + bytes(4) + b"\2"
    whole = batch(7, bytes(300))
    data[size - 9000 : size - 9000 + len(whole)] = whole
    file = MemoryFile(bytes(data))
    assert find_whole_batch(file, 0, size, 0) == size - 9000
    assert file.bytes_read < 10 * size


@given(
    st.lists(st.tuples(st.sampled_from((0, 1, 2)), st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=8)
)
def test_first_whole_batch_is_that_of_a_search_byte_by_byte(parts: list[tuple[int, int, int, bool]]) -> None:
    """Batches within values of others, behind rubbish, damaged or not, of all magics."""
    data, inner = LOST, b""
    for magic, offset, rubbish, is_damaged in parts:
        found = batch(offset, inner, magic)
        inner = found
        data += bytes([rubbish]) * rubbish + (found[:-1] + b"!" if is_damaged else found)
    sound = [at for at in range(len(data)) if _is_whole(data[at:])]
    assert find_whole_batch(MemoryFile(data), 0, len(data)) == (sound[0] if sound else None)


def _is_whole(data: bytes) -> bool:
    size = int.from_bytes(data[8:12], "big") + 12
    if len(data) < 26 or not 26 <= size <= len(data) or data[16] > 2 or data[0] > 0x7F:
        return False
    if data[16] < 2:
        return size >= (26, 34)[data[16]] and zlib.crc32(data[16:size]) == int.from_bytes(data[12:16], "big")
    return size >= 61 and crc32c(data[21:size]) == int.from_bytes(data[17:21], "big")
