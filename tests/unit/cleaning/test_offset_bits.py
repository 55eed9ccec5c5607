"""Bits of offsets: stored, sent, and with the same verdicts as the map that they were made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.cleaning.recopy.survivors import BitmapSurvivors, BlockRetention, MapSurvivors, Survivors
from cleaner.errors import CorruptBatchError
from cleaner.format.records import Unpacker
from cleaner.kernels import offset_bits as bits_kernel
from cleaner.kernels import offset_map as kernel
from tests.support.batch_builder import Record, data_batch
from tests.unit.cleaning.retaining import NOW_MS, PATH, only_chunk
from tests.unit.kernels.digesting import index

pytestmark = pytest.mark.kernels

FAR = 2**31 - 1


def is_set(bits: OffsetBits, place: int) -> bool:
    """Tell whether a bit is set, the slow way."""
    block, bit = divmod(place, bits_kernel.BLOCK_BITS)
    if block >= len(bits.directory) or not bits.directory[block]:
        return False
    byte = bits.blocks[(int(bits.directory[block]) - 1) * bits_kernel.BLOCK_BYTES + bit // 8]
    return bool(byte >> (bit % 8) & 1)


@given(st.lists(st.sets(st.one_of(st.integers(0, 9000), st.integers(0, FAR)), max_size=20), max_size=5))
def test_bits_set_in_any_order_are_read_back_from_bytes(parts: list[set[int]]) -> None:
    """In any order and however far apart; blocks without a bit take no room."""
    bits = OffsetBits(77)
    for part in parts:
        bits.set(np.array(sorted(part, reverse=True), np.int64))
    wanted = set().union(*parts)
    again = OffsetBits.from_bytes(bits.to_bytes())
    assert again.base_offset == 77
    assert again.count == bits.count
    for found in (bits, again):
        assert all(is_set(found, place) for place in wanted)
        assert not any(is_set(found, place + 1) for place in wanted if place + 1 not in wanted)
    blocks = {place // bits_kernel.BLOCK_BITS for place in wanted}
    assert len(bits.to_bytes()) == 32 + len(blocks) * (8 + bits_kernel.BLOCK_BYTES)


@pytest.mark.parametrize("cut", [0, 31, 32, 100, -1])
def test_bits_that_were_cut_off_are_refused(cut: int) -> None:
    """Fewer bits would be fewer records."""
    bits = OffsetBits(0)
    bits.set(np.arange(0, 90_000, 7))
    with pytest.raises(ValueError, match=r"bits of offsets|do not hold"):
        OffsetBits.from_bytes(bits.to_bytes()[:cut])


def judge(survivors: Survivors, log: bytes, unmapped: list[int]) -> list[int]:
    """Return the verdicts on all records of a log of one block."""
    chunk = only_chunk(log)
    count = len(chunk.batches)
    none = np.zeros(count, np.uint8)
    retention = BlockRetention(np.zeros(count, np.int8), none, none, none, True, np.array(unmapped, np.uint8))
    (block,) = Unpacker(1 << 20).blocks(PATH, chunk)
    verdicts = np.zeros(block.record_count(none), np.uint8)
    survivors.judge(PATH, block, retention, verdicts)
    return [int(verdict) for verdict in verdicts]


keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"d"]))
batches = st.lists(st.tuples(keys, st.sampled_from([b"v", None])), min_size=1, max_size=4)


@given(st.lists(batches, min_size=1, max_size=8), st.integers(0, 30), st.integers(0, 40), st.data())
def test_verdicts_by_bits_are_those_of_the_map(
    parts: list[list[tuple[bytes | None, bytes | None]]], first_dirty: int, latest: int, data: st.DataObject
) -> None:
    """Clean and dirty records, batches the first pass left out, records above its end, tombstones and keyless ones."""
    log, placed, unmapped = b"", [], []
    offset = 10
    for part in parts:
        left_out = data.draw(st.booleans())
        log += data_batch([Record(key, value) for key, value in part], offset)
        unmapped.append(int(left_out))
        placed += [(offset + i, key, left_out) for i, (key, _) in enumerate(part)]
        offset += len(part)
    offset_map = OffsetMap(100, 100)
    offset_map.clear(first_dirty, first_dirty)
    mapped = [
        (at, key) for at, key, left_out in placed if key is not None and first_dirty <= at <= latest and not left_out
    ]
    for at, key in mapped:
        assert not index(offset_map, data_batch([Record(key, b"v")], at))
    offset_map.latest_offset = latest
    last = {key: at for at, key in mapped}
    bits = OffsetBits(10)
    stays = {at for at in last.values() if at is not None}
    goes = {at for at, key, left_out in placed if (left_out or at < first_dirty) and last.get(key, -1) > at}
    bits.set(np.array(sorted(stays | goes), np.int64) - 10)

    by_bits = judge(BitmapSurvivors(bits, first_dirty, latest, NOW_MS), log, unmapped)
    assert by_bits == judge(MapSurvivors(offset_map, NOW_MS), log, unmapped)


def test_damaged_record_is_refused_by_bits_too() -> None:
    """As the map's judge does, naming the batch."""
    batch = data_batch([], 10, payload=b"\x7e" + b"\x00" * 13, overrides={"count": 1, "last_offset_delta": 0})
    with pytest.raises(CorruptBatchError, match="length"):
        judge(BitmapSurvivors(OffsetBits(0), 0, 100, NOW_MS), batch, [0])
    assert judge(BitmapSurvivors(OffsetBits(0), 0, 9, NOW_MS), data_batch([Record(b"a", b"v")], 10), [0]) == [
        kernel.KEEP
    ]
