"""The offset map: full exactly where Kafka's is, growing without loss, safe from keys made to collide."""

from __future__ import annotations

from random import Random

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.config.values import MAP_ENTRY_BYTES, CleanerConfig
from cleaner.format.key_digests import NUMBER
from cleaner.format.record_numbers import RecordNumbers
from cleaner.kernels import offset_map as kernel
from cleaner.policy.survivor_rule import SurvivorRule
from tests.support.batch_builder import Record, data_batch
from tests.unit.kernels.collisions import colliding_keys
from tests.unit.kernels.digesting import digest, index

pytestmark = pytest.mark.kernels

KIB = 1024


def batch(base_offset: int, *keys: bytes | None) -> bytes:
    """Build a batch with these keys."""
    return data_batch([Record(key, b"v") for key in keys], base_offset)


def test_map_keeps_the_last_offset_of_each_key() -> None:
    """A later record of a key replaces an earlier one (R-522)."""
    offset_map = OffsetMap(10, 10)
    index(offset_map, batch(0, b"a", b"b", b"a") + batch(3, b"c", b"b"))
    assert [offset_map.get(key) for key in (b"a", b"b", b"c", b"d")] == [2, 4, 3, -1]
    assert offset_map.entries == 3


def test_map_tells_the_empty_key_from_no_key() -> None:
    """A zero-length key is a key; a record without a key is skipped (R-224, R-511)."""
    offset_map = OffsetMap(10, 10)
    index(offset_map, batch(0, None, b"", None))
    assert (offset_map.entries, offset_map.get(b"")) == (1, 1)


def test_map_passes_over_records_below_the_first_dirty_offset() -> None:
    """A batch may begin in the clean section, or be inside it (R-511)."""
    offset_map = OffsetMap(10, 10)
    index(offset_map, batch(0, b"a", b"b"), first_dirty=3)
    assert offset_map.entries == 0
    index(offset_map, batch(2, b"a", b"b"), first_dirty=3)
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (-1, 3)


def test_map_passes_over_the_keys_of_skipped_batches() -> None:
    """Aborted data and markers count as read; their keys do not count (R-511, R-718)."""
    offset_map = OffsetMap(10, 10)
    log = batch(0, b"a") + batch(1, b"b", b"c")
    index(offset_map, log, skipped=[1])
    assert (offset_map.entries, offset_map.get(b"a")) == (1, 0)
    assert digest(log, offset_map.keys, skipped=[1]).state[kernel.STATE_MESSAGES] == 3


def test_full_map_stops_at_a_key_it_already_knows() -> None:
    """Fullness is checked before the key is looked up (R-511)."""
    offset_map = OffsetMap(2, 2)
    assert index(offset_map, batch(0, b"a", b"b", b"a"))
    assert (offset_map.entries, offset_map.get(b"a"), offset_map.get(b"b")) == (2, 0, 1)


def test_full_map_goes_on_over_records_without_a_key() -> None:
    """Only a keyed dirty record needs room (R-511)."""
    offset_map = OffsetMap(2, 2)
    assert not index(offset_map, batch(0, b"a", b"b", None, None))
    assert offset_map.entries == 2


def test_map_exactly_filled_by_a_batch_is_not_full_yet() -> None:
    """The next keyed record finds it full (R-511)."""
    offset_map = OffsetMap(2, 2)
    assert not index(offset_map, batch(0, b"a", b"b"))
    assert index(offset_map, batch(2, b"c"))
    assert (offset_map.entries, offset_map.get(b"c")) == (2, -1)


def test_map_of_one_key_takes_one() -> None:
    """The smallest map Kafka can use (R-523); an absent key is still found absent, as one slot always stays empty."""
    offset_map = OffsetMap(1, 1)
    assert index(offset_map, batch(5, b"a", b"b"), first_dirty=5)
    assert offset_map.entries == 1
    assert [offset_map.get(b"a"), offset_map.get(b"b")] == [5, -1]


def test_full_map_finds_every_absent_key_absent() -> None:
    """A search ends even at load factor 1."""
    offset_map = OffsetMap(50, 50)
    assert not index(offset_map, batch(0, *[b"k%d" % i for i in range(50)]))
    assert [offset_map.get(b"k%d" % i) for i in range(50)] == list(range(50))
    assert {offset_map.get(b"absent%d" % i) for i in range(200)} == {-1}


def test_map_without_room_for_a_key_is_refused() -> None:
    """With no room Kafka's checkpoint could even move back (R-523)."""
    with pytest.raises(ValueError, match="at least one key"):
        OffsetMap(0, 10)


key_lists = st.lists(
    st.lists(st.one_of(st.none(), st.sampled_from([b"k%d" % i for i in range(12)])), min_size=1, max_size=8),
    min_size=1,
    max_size=8,
)


@given(key_lists, st.integers(1, 14), st.integers(0, 12), st.sampled_from([1, 2, 5]))
def test_map_on_any_log_is_full_where_kafkas_is(
    key_batches: list[list[bytes | None]], limit: int, first_dirty: int, spread: int
) -> None:
    """Entries and fullness are those of a plain dictionary filled by the rules (R-511, R-512)."""
    log, offset, batches = b"", 0, []
    for keys in key_batches:
        records = [Record(key, b"v", offset + i * spread) for i, key in enumerate(keys)]
        batches.append(records)
        log += data_batch(records, offset)
        offset += len(keys) * spread
    expected: dict[bytes, int] = {}
    is_full = False
    for records in batches:
        for record in records:
            assert record.offset is not None
            if record.key is None or record.offset < first_dirty:
                continue
            if len(expected) >= limit:
                is_full = True
                break
            expected[record.key] = record.offset
        if is_full:
            break

    offset_map = OffsetMap(limit, limit)
    assert index(offset_map, log, first_dirty=first_dirty) == is_full
    found = {key: at for i in range(12) if (at := offset_map.get(key := b"k%d" % i)) >= 0}
    assert found == expected
    assert offset_map.entries == len(expected)
    assert sorted(offset_map.offsets().tolist()) == sorted(expected.values())


def test_map_that_grows_keeps_every_entry() -> None:
    """The table starts small and grows, moving its entries; none is lost, also not those wrapped around its end."""
    count, step = 180_000, 1000
    offset_map = OffsetMap(200_000, 222_222)
    sizes = {offset_map.slots}
    for base in range(0, count, step):
        assert not index(offset_map, batch(base, *[b"key-%d" % i for i in range(base, base + step)]))
        sizes.add(offset_map.slots)
    assert len(sizes) > 2
    assert max(sizes) == 222_222
    assert offset_map.entries == count
    assert all(offset_map.get(b"key-%d" % i) == i for i in range(count))
    assert sorted(offset_map.offsets().tolist()) == list(range(count))


def test_map_that_grows_overwrites_what_it_moved() -> None:
    """Moved entries are found again by their keys."""
    offset_map = OffsetMap(100_000, 100_000)
    for base in (0, 30_000, 60_000):
        index(offset_map, batch(base, *[b"key-%d" % i for i in range(30_000)]))
    index(offset_map, batch(90_000, *[b"other-%d" % i for i in range(40_000)]))
    assert offset_map.entries == 70_000
    assert [offset_map.get(b"key-%d" % i) for i in (0, 1, 29_999)] == [60_000, 60_001, 89_999]


def test_map_that_grows_keeps_every_number() -> None:
    """By numbers: the entries that stay, what they are compared with, and the last ones that lose, as in dicts."""
    offset_map, rng = OffsetMap(100_000, 100_000, SurvivorRule(kernel.GREATEST_NUMBER, RecordNumbers())), Random(1)
    greatest: dict[int, tuple[int, int]] = {}
    latest: dict[int, int] = {}
    for base in range(0, 120_000, 30_000):
        rows = np.zeros((30_000, NUMBER + 1), np.uint64)
        for place in range(30_000):
            key, number, offset = rng.randrange(70_000), rng.randrange(50), base + place
            rows[place] = (key * 0x9E3779B97F4A7C15 % 2**64, key, offset + 1, 0, number)
            greatest[key] = max((number, offset), greatest.get(key, (0, -1)))
            latest[key] = offset
        assert offset_map.put(rows) == len(rows)
    assert offset_map.slots > 65_536
    assert sorted(offset_map.offsets().tolist()) == sorted(offset for _, offset in greatest.values())
    assert offset_map.outranked == sum(latest[key] != offset for key, (_, offset) in greatest.items())


def test_cleared_map_is_small_empty_and_has_a_new_key() -> None:
    """Nothing of one round is left for the next."""
    offset_map = OffsetMap(100_000, 100_000)
    index(offset_map, batch(0, *[b"key-%d" % i for i in range(40_000)]))
    offset_map.latest_offset = 39_999
    grown, keys = offset_map.slots, offset_map.keys.tobytes()
    offset_map.clear()
    assert offset_map.slots < grown
    assert (offset_map.entries, offset_map.latest_offset, offset_map.get(b"key-1")) == (0, -1, -1)
    assert offset_map.keys.tobytes() != keys


def test_map_does_not_touch_more_memory_than_its_keys_need() -> None:
    """The dedupe buffer sets the number of keys, not the memory: 8 GiB of it cost less than 1 MiB for a few keys."""
    config = CleanerConfig(dedupe_buffer_size=8 << 30)
    offset_map = OffsetMap(config.key_limit, config.slots)
    index(offset_map, batch(0, b"a", b"b"))
    assert offset_map.slots * MAP_ENTRY_BYTES < 1 << 20


def test_dedupe_buffer_of_8_gib_covers_the_documented_log_head() -> None:
    """
    The documentation's figure: 8 GiB of entries at 1 KiB a message clean about 366 GB of head.

    That is every slot used. With the default load factor of 0.9 a round covers 330 GB.
    """
    config = CleanerConfig(dedupe_buffer_size=8 << 30)
    assert config.io_buffer_load_factor == 0.9
    assert config.slots * KIB // 10**9 == 366
    assert round(config.key_limit * KIB / 10**9) == 330
    assert CleanerConfig(dedupe_buffer_size=8 << 30, io_buffer_load_factor=1.0).key_limit == config.slots


def test_keys_made_to_collide_do_so_in_murmur_hash() -> None:
    """The attack is real: one hash under every seed."""
    keys = colliding_keys(12)
    assert len(set(keys)) == 4096
    for seed in (0, 1, 99, 2**32 - 1):
        assert len({mmh3.hash128(key, seed) for key in keys}) == 1


def test_keys_made_to_collide_have_separate_entries() -> None:
    """Half of the digest uses a secret key."""
    keys = colliding_keys(12)
    offset_map = OffsetMap(5000, 5000)
    index(offset_map, b"".join(batch(base, *keys[base : base + 256]) for base in range(0, 4096, 256)))
    assert offset_map.entries == 4096
    assert [offset_map.get(key) for key in keys] == list(range(4096))
