"""Verdicts on records: the map's answers by the rules (R-550, R-551), and damage found on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.survivors import BlockRetention, MapSurvivors
from cleaner.errors import CorruptBatchError
from cleaner.format.records import Unpacker
from cleaner.kernels import offset_map as kernel
from tests.reference.record_filter import BatchRetention, retains_deletes, retains_record
from tests.support.batch_builder import Record, data_batch, encode_record, legacy_batch, marker_batch
from tests.unit.cleaning.retaining import NOW_MS, PATH, only_chunk, records_of
from tests.unit.kernels.digesting import digest, index

pytestmark = pytest.mark.kernels

KEYS = (None, b"", b"a", b"b", b"c")


def map_of(offsets: dict[bytes, int], latest_offset: int) -> OffsetMap:
    """Fill a map with these keys."""
    offset_map = OffsetMap(100, 100)
    for key, offset in offsets.items():
        batch = data_batch([Record(key, b"v")], offset)
        assert not index(offset_map, batch)
    offset_map.latest_offset = latest_offset
    return offset_map


def judge(
    log: bytes,
    offset_map: OffsetMap,
    *,
    discarded: list[int] | None = None,
    unread: list[int] | None = None,
    legacy_deletes_stay: bool = True,
    now_ms: int = NOW_MS,
) -> list[int]:
    """Return the verdicts on all records of a log of one block."""
    chunk = only_chunk(log)
    count = len(chunk.batches)
    skip = np.array(unread or [0] * count, np.uint8)
    retention = BlockRetention(
        np.full(count, BatchRetention.KEEP_IF_NOT_EMPTY, np.int8),
        np.array(discarded or [0] * count, np.uint8),
        skip,
        np.zeros(count, np.uint8),
        legacy_deletes_stay,
    )
    (block,) = Unpacker(1 << 20).blocks(PATH, chunk, skip != 0)
    verdicts = np.zeros(block.record_count(skip), np.uint8)
    MapSurvivors(offset_map, now_ms).judge(PATH, block, retention, verdicts)
    return [int(verdict) for verdict in verdicts]


entries = st.dictionaries(st.sampled_from([b"", b"a", b"b"]), st.integers(0, 30))
records = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"", b"v"]), st.integers(1, 4)), min_size=1, max_size=8
)


@given(
    content=records,
    offsets=entries,
    latest=st.integers(-1, 32),
    magic=st.sampled_from([2, 2, 1, 0]),
    codec=st.sampled_from(["none", "gzip"]),
    horizon=st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
    discarded=st.booleans(),
    stay=st.booleans(),
)
def test_verdicts_are_those_of_the_plain_rules(
    content: list[tuple[bytes | None, bytes | None, int]],
    offsets: dict[bytes, int],
    latest: int,
    magic: int,
    codec: str,
    horizon: int | None,
    discarded: bool,
    stay: bool,
) -> None:
    """Record by record, the same as from `tests.reference.record_filter` (R-550, R-551)."""
    placed, offset = [], 0
    for key, value, step in content:
        placed.append(Record(key, value, offset, 1000))
        offset += step
    if magic < 2:
        horizon = None
        batch = legacy_batch(placed, 0, magic, codec="gzip")
    else:
        batch = data_batch(placed, 0, codec=codec, delete_horizon_ms=horizon)
    verdicts = judge(batch, map_of(offsets, latest), discarded=[int(discarded)], legacy_deletes_stay=stay)
    deletes_stay = retains_deletes(
        magic=magic, delete_horizon_ms=horizon, now_ms=NOW_MS, segment_mtime_ms=int(stay), legacy_horizon_ms=0
    )
    for record, verdict in zip(records_of(batch), verdicts, strict=True):
        stays = retains_record(
            discards_records=discarded,
            is_control=False,
            offset=record.offset,
            latest_offset=latest,
            has_key=record.key is not None,
            has_value=record.value is not None,
            newest_offset=offsets.get(record.key, -1) if record.key is not None else -1,
            retains_deletes=deletes_stay,
        )
        assert bool(verdict & kernel.KEEP) == stays
        if stays:
            assert verdict == (kernel.KEEP if record.value is not None else kernel.KEEP_TOMBSTONE)
        elif discarded:
            assert verdict == kernel.DISCARDED
        elif record.key is None:
            assert verdict == kernel.KEYLESS
        elif offsets.get(record.key, -1) > record.offset:
            assert verdict == kernel.SUPERSEDED
        else:
            assert verdict == kernel.EXPIRED_TOMBSTONE


def test_markers_stay_whatever_the_map_says() -> None:
    """The map ignores a marker's key; only a discarded marker is removed (R-550)."""
    marker = marker_batch(5, 1, 0, commit=True)
    offset_map = map_of({records_of(marker)[0].key or b"": 50}, 100)
    assert judge(marker, offset_map) == [kernel.KEEP]
    assert judge(marker, offset_map, discarded=[1]) == [kernel.DISCARDED]


def test_many_keys_are_judged_across_the_hashing_blocks() -> None:
    """More keys than are hashed at a time, some known at later offsets, some not."""
    keys = [b"key-%d" % i for i in range(300)]
    offset_map = OffsetMap(1000, 1000)
    log = data_batch([Record(key, b"v") for key in keys], 0)
    again = data_batch([Record(key, b"v") for key in keys[::3]], 300)
    assert not index(offset_map, log + again)
    offset_map.latest_offset = 399
    expected = [kernel.SUPERSEDED if i % 3 == 0 else kernel.KEEP for i in range(300)] + [kernel.KEEP] * 100
    assert judge(log + again, offset_map) == expected


def test_unread_batch_takes_no_verdicts() -> None:
    """Its count is not trusted: the verdicts of the next batch follow at once."""
    liar = data_batch([], 0, codec="gzip", payload=b"x", overrides={"count": 900, "last_offset_delta": 999})
    assert judge(liar + data_batch([Record(b"a", b"v")], 1000), map_of({}, 2000), unread=[1, 0]) == [kernel.KEEP]


def raw_batch(body: bytes, count: int, last_delta: int) -> bytes:
    """Frame any records."""
    return data_batch([], 10, payload=body, overrides={"count": count, "last_offset_delta": last_delta})


def spread(*deltas: int) -> bytes:
    """Encode one record for each offset delta."""
    return b"".join(encode_record(Record(b"k", b"v"), delta, 0) for delta in deltas)


ONE = len(spread(0))
DAMAGED = [
    pytest.param(raw_batch(spread(0, 1) + b"\x00", 2, 9), 2 * ONE, "left after", id="left-over"),
    pytest.param(raw_batch(spread(0, 1), 3, 9), 2 * ONE, "last record", id="missing"),
    pytest.param(raw_batch(spread(0, 0), 2, 9), ONE, "does not ascend", id="offset-repeated"),
    pytest.param(raw_batch(spread(1, 0), 2, 9), ONE, "does not ascend", id="offset-back"),
    pytest.param(raw_batch(spread(-1), 1, 9), 0, "does not ascend", id="offset-below-base"),
    pytest.param(raw_batch(spread(0, 10), 2, 9), ONE, "beyond its batch", id="offset-beyond-last"),
    pytest.param(raw_batch(spread(0) + b"\xff" * 14, 2, 9), ONE, "varint", id="varint"),
    pytest.param(raw_batch(spread(0) + b"\x7e" + b"\x00" * 13, 2, 9), ONE, "length", id="length"),
]


@pytest.mark.parametrize(("batch", "position", "reason"), DAMAGED)
def test_damaged_record_is_refused_naming_its_place(batch: bytes, position: int, reason: str) -> None:
    """Batch position in the file, record position in the batch, and what is wrong."""
    good = data_batch([Record(b"a", b"v")], 0)
    with pytest.raises(CorruptBatchError) as raised:
        judge(good + batch, map_of({}, 100))
    assert raised.value.position == len(good)
    assert f"record {position} bytes into its records" in raised.value.reason
    assert reason in raised.value.reason


@pytest.mark.parametrize(("batch", "position", "reason"), DAMAGED)
def test_damaged_record_is_found_while_the_map_is_built(batch: bytes, position: int, reason: str) -> None:
    """The first pass finds the same, before anything is changed."""
    good = data_batch([Record(b"a", b"v")], 0)
    found = digest(good + batch, OffsetMap(100, 100).keys)
    assert found.status == kernel.DIGEST_BAD_RECORD, reason
    assert found.state[kernel.STATE_BATCH] == 1
    assert found.state[kernel.STATE_RECORD_POSITION] == position


def test_batch_that_counts_no_records_may_hold_bytes() -> None:
    """Left-over bytes are not checked if the count is 0, as in Kafka (R-212)."""
    assert judge(raw_batch(b"junk", 0, 0), map_of({}, 100)) == []
