"""The bitmap of latest offsets: it agrees with the table, and offsets without a bit are looked up in the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.cleaning import offset_map as offset_map_module
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.survivors import BlockRetention, MapSurvivors
from cleaner.format.records import Unpacker
from cleaner.kernels import offset_map as kernel
from tests.reference.record_filter import BatchRetention
from tests.support.batch_builder import Producer, Record, data_batch
from tests.unit.cleaning.retaining import NOW_MS, PATH, only_chunk
from tests.unit.kernels.digesting import index

pytestmark = pytest.mark.kernels

TRANSACTION = Producer(1, 0, 0, True)


def bits_of(offset_map: OffsetMap) -> set[int]:
    """Return the offsets with a set bit."""
    places = np.flatnonzero(np.unpackbits(offset_map.latest, bitorder="little"))
    return {offset_map.latest_base + int(place) for place in places}


def judge(log: bytes, offset_map: OffsetMap) -> list[int]:
    """Return the verdicts on all records of a log of one block, none of them discarded."""
    chunk = only_chunk(log)
    none = np.zeros(len(chunk.batches), np.uint8)
    retention = BlockRetention(np.full(len(none), BatchRetention.KEEP_IF_NOT_EMPTY, np.int8), none, none, none, True)
    (block,) = Unpacker(1 << 20).blocks(PATH, chunk, none != 0)
    verdicts = np.zeros(block.record_count(none), np.uint8)
    MapSurvivors(offset_map, NOW_MS).judge(PATH, block, retention, verdicts)
    return [int(verdict) for verdict in verdicts]


def filled(log: bytes, first_dirty: int, end: int, *, skipped: tuple[int, ...] = (), limit: int = 1000) -> OffsetMap:
    """Build the map of a log of which offsets [first_dirty, end) are dirty."""
    offset_map = OffsetMap(limit, limit)
    offset_map.clear(first_dirty, end)
    assert not index(offset_map, log, first_dirty=first_dirty, skipped=skipped)
    offset_map.latest_offset = end - 1
    return offset_map


def test_bits_are_those_of_the_offsets_in_the_table() -> None:
    """A later record of a key clears the bit of the earlier one."""
    log = data_batch([Record(key, b"v") for key in (b"a", b"b", b"a", None, b"c")], 10)
    log += data_batch([Record(b"b", b"v", 20), Record(b"d", None, 29)], 20)
    offset_map = filled(log, 10, 30)
    assert bits_of(offset_map) == {12, 14, 20, 29} == set(offset_map.offsets().tolist())


@pytest.mark.parametrize(
    ("first_dirty", "end", "most", "reach"),
    [(0, 0, 64, 0), (7, 7, 64, 0), (7, 8, 64, 8), (100, 116, 64, 16), (100, 117, 64, 24), (0, 2**40, 64, 64)],
)
def test_bitmap_reaches_to_the_end_of_the_dirty_section_or_its_limit(
    monkeypatch: pytest.MonkeyPatch, first_dirty: int, end: int, most: int, reach: int
) -> None:
    """In whole bytes; none if nothing is dirty."""
    monkeypatch.setattr(offset_map_module, "_MAX_BITS", most)
    offset_map = OffsetMap(10, 10)
    offset_map.clear(first_dirty, end)
    assert (offset_map.latest.size * 8, offset_map.latest_base) == (reach, first_dirty)
    assert not offset_map.latest.any()


def test_bitmap_of_a_huge_section_is_bounded() -> None:
    """16 MiB at most; later offsets are looked up."""
    offset_map = OffsetMap(10, 10)
    offset_map.clear(5, 2**62)
    assert offset_map.latest.nbytes == 16 << 20


def test_cleared_map_has_no_bits_of_the_last_round() -> None:
    """For any range of the next round."""
    offset_map = filled(data_batch([Record(b"a", b"v"), Record(b"b", b"v")], 0), 0, 2)
    assert bits_of(offset_map) == {0, 1}
    offset_map.clear(0, 2)
    assert bits_of(offset_map) == set()
    offset_map.clear(1, 100)
    assert (bits_of(offset_map), offset_map.latest_base) == (set(), 1)


keys = st.sampled_from([None, b"", *[b"k%d" % i for i in range(9)]])
log_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, st.sampled_from([b"v", None]), st.sampled_from([1, 1, 2, 9])), min_size=1, max_size=8),
        st.sampled_from([0, 0, 5, 40]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(log_batches, st.integers(0, 40), st.sampled_from([0, 1, 8, 15, 64, 10**6]), st.integers(0, 2**40))
def test_verdicts_do_not_depend_on_how_far_the_bitmap_reaches(
    content: list[tuple[list[tuple[bytes | None, bytes | None, int]], int, bool]],
    first_dirty: int,
    most: int,
    base: int,
) -> None:
    """Gaps inside of batches and between them, transactions, a clean section before: the same with no bit at all."""
    log, offset = b"", base
    for records, gap, is_transactional in content:
        placed = []
        for key, value, step in records:
            placed.append(Record(key, value, offset))
            offset += step
        log += data_batch(
            placed, placed[0].offset or 0, producer=TRANSACTION if is_transactional else Producer(2, 0, 0)
        )
        offset += gap
    first_dirty = min(base + first_dirty, offset - 1)
    found = []
    with pytest.MonkeyPatch.context() as patched:
        for reach in (0, most):
            patched.setattr(offset_map_module, "_MAX_BITS", reach)
            offset_map = filled(log, first_dirty, offset)
            in_reach = range(first_dirty, first_dirty + 8 * offset_map.latest.size)
            assert bits_of(offset_map) == {at for at in offset_map.offsets().tolist() if at in in_reach}
            found.append(judge(log, offset_map))
    assert found[0] == found[1]


def test_record_of_the_dirty_section_is_judged_by_its_bit_alone() -> None:
    """This is its purpose: no key is hashed again. A record that was never put has no bit and would be removed."""
    log = data_batch([Record(b"a", b"v"), Record(b"b", None)], 0)
    offset_map = OffsetMap(10, 10)
    offset_map.clear(0, 2)
    offset_map.latest_offset = 1
    assert judge(log, offset_map) == [kernel.SUPERSEDED] * 2
    offset_map.latest[0] = 0b10
    assert judge(log, offset_map) == [kernel.SUPERSEDED, kernel.KEEP_TOMBSTONE]


def test_transactional_batch_that_was_not_put_is_judged_by_the_table() -> None:
    """
    Aborted in the first pass and not in the second, as may happen in Kafka too: its records have no bits.

    Records whose key has no higher offset in the map stay (R-550); an adjacent plain batch is judged by its bits.
    """
    aborted = data_batch([Record(b"a", b"v"), Record(b"b", b"v"), Record(b"c", None)], 0, producer=TRANSACTION)
    plain = data_batch([Record(b"b", b"w"), Record(b"b", b"x")], 3)
    offset_map = filled(aborted + plain, 0, 5, skipped=(0,))
    assert bits_of(offset_map) == {4}
    expected = [kernel.KEEP, kernel.SUPERSEDED, kernel.KEEP_TOMBSTONE, kernel.SUPERSEDED, kernel.KEEP]
    assert judge(aborted + plain, offset_map) == expected


@pytest.mark.parametrize("own", range(20))
def test_transactional_batch_with_a_bit_was_put_and_is_judged_by_its_bits(own: int) -> None:
    """One bit in its range is enough, wherever that begins and ends; bits of its neighbours do not count."""
    for base in (0, 3, 8):
        batch = data_batch([Record(b"%d" % i, b"v", base + i) for i in range(20)], base, producer=TRANSACTION)
        offset_map = OffsetMap(100, 100)
        offset_map.clear(0, 64)
        offset_map.latest_offset = 63
        for place in [*range(base), *range(base + 20, 64)]:
            offset_map.latest[place >> 3] |= 1 << (place & 7)
        assert judge(batch, offset_map) == [kernel.KEEP] * 20
        place = base + own
        offset_map.latest[place >> 3] |= 1 << (place & 7)
        expected = [kernel.SUPERSEDED] * 20
        expected[own] = kernel.KEEP
        assert judge(batch, offset_map) == expected


def test_records_above_the_maps_end_stay_whatever_their_bits() -> None:
    """A full map's bitmap covers more than the map (R-550)."""
    log = data_batch([Record(key, b"v") for key in (b"a", b"a", b"b", b"b", b"a")], 0)
    offset_map = OffsetMap(1, 1)
    offset_map.clear(0, 5)
    assert index(offset_map, log)
    offset_map.latest_offset = 0
    assert bits_of(offset_map) == {0}
    assert judge(log, offset_map) == [kernel.KEEP] * 5
