"""Where the map of a round ends, after every chunk and when it is full (R-511 to R-513)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleaner.cleaning.map import digests as digests_module
from cleaner.cleaning.map.build_map import BuiltMap, MapBuilder, MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.errors import CorruptBatchError, RecordAboveLimitError
from cleaner.format import records as records_module
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.policy.cleanable import cleanable
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer, Record, data_batch, legacy_batch
from tests.support.log_builder import LogBuilder
from tests.unit.cleaning.logs import NOW_MS, context, load

pytestmark = pytest.mark.kernels

# No two batches fit, and the buffer grows for a larger one: every chunk is one batch.
BATCH_BY_BATCH = 64
ALL_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Found:
    """The end of a built map, and the last offset that it covered after each whole chunk."""

    built: BuiltMap
    offset_map: OffsetMap
    ends: list[int]


def build(
    directory: Path,
    *,
    first_dirty: int = 0,
    limit: int = 1000,
    chunk_bytes: int = BATCH_BY_BATCH,
    lanes: int = 2,
    record_limit_bytes: int = LARGEST_RECORD_BYTES,
) -> Found:
    """Build the map of a log from an offset on."""
    offset_map, ends = OffsetMap(limit, limit), []
    around = context(progress=lambda *_: ends.append(offset_map.latest_offset))
    log = load(around.fs, directory)
    found = cleanable(log, first_dirty, log.topic, NOW_MS)
    assert found.first_dirty_offset == first_dirty
    memory = [LaneMemory(WindowBuffer(chunk_bytes), Unpacker(1 << 20)) for _ in range(lanes)]
    built = MapBuilder(log, found, offset_map, memory, around, record_limit_bytes=record_limit_bytes).build()
    return Found(built, offset_map, ends)


def batch(base_offset: int, *keys: bytes | None, last_offset: int | None = None) -> bytes:
    """Build a batch with these keys."""
    return data_batch([Record(key, b"v") for key in keys], base_offset, last_offset=last_offset)


def write(log_dir: Path, *segments: Sequence[bytes], base_offset: int = 0) -> Path:
    """Write a log of these batches, without index entries that would save reading; the active segment is empty."""
    log = LogBuilder(base_offset=base_offset, index_interval_bytes=1 << 20)
    for batches in segments:
        log.append_raw(b"".join(batches))
        log.roll()
    return log.write(log_dir)


def test_map_covers_the_last_record_of_each_batch(tmp_path: Path) -> None:
    """After each chunk, whether the last record's key was in the map or not (R-513)."""
    found = build(write(tmp_path, [batch(0, b"a", b"b", b"a"), batch(3, b"c", b"b")]))
    assert found.ends == [2, 4]


def test_map_covers_records_without_a_key_and_offsets_at_a_batchs_end(tmp_path: Path) -> None:
    """The last offset is the batch's, as its header says (R-513)."""
    found = build(write(tmp_path, [batch(0, None, b"", None), batch(3, b"a", last_offset=9), batch(10, None)]))
    assert found.ends == [2, 9, 10]


def test_batch_wholly_in_the_clean_section_does_not_move_the_maps_end(tmp_path: Path) -> None:
    """It is read only because the dirty section begins in the middle of the next (R-511, R-513)."""
    found = build(write(tmp_path, [batch(0, b"a", b"b"), batch(2, b"a", b"b"), batch(4, b"c")]), first_dirty=3)
    assert found.ends == [-1, 3, 4]
    assert (found.offset_map.get(b"a"), found.offset_map.get(b"b")) == (-1, 3)


def test_map_covers_aborted_data_and_markers(tmp_path: Path) -> None:
    """Their keys do not count, but they are covered (R-511, R-513)."""
    log = LogBuilder(index_interval_bytes=1 << 20)
    log.append(("a", "v"))
    log.append(("b", "v"), ("c", "v"), producer=Producer(1, 0, 0, True))
    log.end_transaction(1, 0, commit=False)
    log.roll()
    found = build(log.write(tmp_path))
    assert found.ends == [0, 2, 3]
    assert found.offset_map.entries == 1


@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_full_map_ends_at_a_key_it_already_knows(tmp_path: Path, chunk_bytes: int, lanes: int) -> None:
    """Fullness is checked before the key is looked up (R-511)."""
    directory = write(tmp_path, [batch(0, b"a"), batch(1, b"b", b"a"), batch(3, b"c")])
    found = build(directory, limit=2, chunk_bytes=chunk_bytes, lanes=lanes)
    assert (found.built.end_offset, found.built.ended_by) == (2, MapEnd.FULL)
    assert found.built.messages_read == 2


@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
def test_full_map_goes_on_over_batches_without_a_key(tmp_path: Path, chunk_bytes: int) -> None:
    """They need no room, and each is complete: only the next keyed record ends the map (R-511, R-513)."""
    batches = [batch(0, b"a", b"b", None), batch(3, None, last_offset=7), batch(8, None, b"c")]
    directory = write(tmp_path, batches)
    found = build(directory, limit=2, chunk_bytes=chunk_bytes)
    assert (found.built.end_offset, found.built.ended_by) == (8, MapEnd.FULL)
    assert found.built.messages_read == 5
    assert found.ends == ([2, 7] if chunk_bytes == BATCH_BY_BATCH else [])


@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
def test_map_exactly_filled_reaches_the_end(tmp_path: Path, chunk_bytes: int) -> None:
    """It counts as full only when another record comes."""
    found = build(write(tmp_path, [batch(0, b"a", b"b")], [batch(2, None)]), limit=2, chunk_bytes=chunk_bytes)
    assert (found.built.end_offset, found.built.ended_by, found.offset_map.entries) == (3, None, 2)


@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
def test_map_of_one_key_covers_one_record(tmp_path: Path, chunk_bytes: int) -> None:
    """The smallest map that makes progress (R-523)."""
    directory = write(tmp_path, [batch(5, b"a", b"b")], base_offset=5)
    found = build(directory, first_dirty=5, limit=1, chunk_bytes=chunk_bytes)
    assert (found.built.end_offset, found.built.ended_by) == (6, MapEnd.FULL)


def test_map_full_at_the_first_record_of_a_segment_covers_the_gap_before_it(tmp_path: Path) -> None:
    """Everything before the segment is covered, also unused offsets (R-513)."""
    log = LogBuilder(index_interval_bytes=1 << 20)
    log.append(("a", "v"))
    log.skip(9)
    log.roll()
    log.append((None, "v"), ("b", "v"))
    log.roll()
    directory = log.write(tmp_path)
    for chunk_bytes in (BATCH_BY_BATCH, ALL_AT_ONCE):
        found = build(directory, limit=1, chunk_bytes=chunk_bytes)
        assert (found.built.end_offset, found.built.ended_by) == (10, MapEnd.FULL)
        assert found.built.messages_by_segment == {0: 1}


def test_map_of_many_keys_covers_all(tmp_path: Path) -> None:
    """It grows during the pass; a chunk has as many digests as records."""
    count, step = 60_000, 2000
    batches = [batch(base, *[b"key-%d" % i for i in range(base, base + step)]) for base in range(0, count, step)]
    found = build(write(tmp_path, batches), limit=100_000, chunk_bytes=ALL_AT_ONCE)
    assert (found.built.end_offset, found.built.ended_by, found.offset_map.entries) == (count, None, count)
    assert all(found.offset_map.get(b"key-%d" % i) == i for i in range(0, count, 77))


LARGE = Record(b"large", bytes(100))


def packed(base_offset: int, *keys: bytes | None, large_at: int | None = None) -> bytes:
    """Build a compressed batch with these keys, and before one of them a large record."""
    records = [Record(key, b"v") for key in keys]
    if large_at is not None:
        records.insert(large_at, LARGE)
    return data_batch(records, base_offset, codec="snappy")


@pytest.mark.parametrize("enough_bytes", [8 << 20, 1])
@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    ("keys", "covered"),
    [
        pytest.param(1, 1, id="full-in-an-earlier-batch"),
        pytest.param(2, 2, id="full-before-it-in-its-batch"),
        pytest.param(3, None, id="room-for-all-before-it"),
        pytest.param(4, None, id="room-for-it"),
    ],
)
def test_record_above_the_limit_counts_only_if_the_map_reaches_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: int,
    covered: int | None,
    lanes: int,
    chunk_bytes: int,
    enough_bytes: int,
) -> None:
    """Kafka puts record by record, and looks no further once the map is full (R-511)."""
    monkeypatch.setattr(digests_module, "ENOUGH_BYTES", enough_bytes)
    batches = [packed(0, b"a"), packed(1, b"b", b"c", b"d", large_at=2), packed(5, b"e")]
    directory = write(tmp_path, batches, [batch(6, b"f")])

    def run() -> BuiltMap:
        return build(
            directory, limit=keys, lanes=lanes, chunk_bytes=chunk_bytes, record_limit_bytes=50
        ).built  # fmt: skip

    if covered is not None:
        assert (run().end_offset, run().ended_by) == (covered, MapEnd.FULL)
        return
    with pytest.raises(RecordAboveLimitError) as caught:
        run()
    assert caught.value.position == len(batches[0])
    assert caught.value.path.name == f"{0:020d}.log"


@pytest.mark.parametrize("chunk_bytes", [BATCH_BY_BATCH, ALL_AT_ONCE])
def test_legacy_wrapper_with_a_record_above_the_limit_counts_as_a_whole(tmp_path: Path, chunk_bytes: int) -> None:
    """If an earlier record fills the map, Kafka 4.4 does not read the large one; in a wrapper it does (R-241)."""
    wrapper = legacy_batch([Record(b"b", b"v"), Record(b"c", b"v"), LARGE], 1, 1, codec="gzip")
    directory = write(tmp_path, [packed(0, b"a"), wrapper])
    with pytest.raises(RecordAboveLimitError):
        build(directory, limit=1, chunk_bytes=chunk_bytes, record_limit_bytes=100)
    directory = write(
        tmp_path / "before", [packed(0, b"a"), packed(1, b"b"), wrapper.replace(wrapper[:8], (9).to_bytes(8, "big"), 1)]
    )
    found = build(directory, limit=1, chunk_bytes=chunk_bytes, record_limit_bytes=100)
    assert (found.built.end_offset, found.built.ended_by) == (1, MapEnd.FULL)


def test_records_above_the_limit_in_aborted_and_plain_batches_do_not_stop_the_map(tmp_path: Path) -> None:
    """They are not unpacked; batches of the clean section that are read with the first dirty one count (R-511)."""
    log = LogBuilder(index_interval_bytes=1 << 20)
    log.append(LARGE)
    log.append(LARGE, codec="zstd", producer=Producer(1, 0, 0, True))
    log.end_transaction(1, 0, commit=False)
    log.append(LARGE, codec="lz4")
    log.append(("a", "v"), codec="lz4")
    log.roll()
    directory = log.write(tmp_path)
    with pytest.raises(RecordAboveLimitError, match="at byte"):
        build(directory, first_dirty=4, record_limit_bytes=50)
    log = LogBuilder(index_interval_bytes=1 << 20)
    log.append(LARGE)
    log.append(LARGE, codec="zstd", producer=Producer(1, 0, 0, True))
    log.end_transaction(1, 0, commit=False)
    log.roll()
    assert build(log.write(tmp_path / "sound"), record_limit_bytes=50).built.ended_by is None


@pytest.mark.parametrize(("chunk_bytes", "is_refused"), [(BATCH_BY_BATCH, False), (ALL_AT_ONCE, True)])
def test_map_that_a_callers_limit_ends_has_to_read_all_of_its_last_chunk(
    tmp_path: Path, chunk_bytes: int, is_refused: bool
) -> None:
    """Such a map ends between chunks, so a record above the limit stops it only before that."""
    log = load(context().fs, write(tmp_path, [packed(0, b"a", b"b"), packed(2, b"c", large_at=1)]))
    memory = [LaneMemory(WindowBuffer(chunk_bytes), Unpacker(1 << 20))]
    found = cleanable(log, 0, log.topic, NOW_MS)
    builder = MapBuilder(log, found, OffsetMap(9, 9), memory, context(max_dirty_bytes=1), record_limit_bytes=50)
    if is_refused:
        with pytest.raises(RecordAboveLimitError):
            builder.build()
    else:
        assert builder.build().end_offset == 2


def test_damage_behind_a_full_map_is_found_behind_a_record_above_the_limit(tmp_path: Path) -> None:
    """The rest of the segment is recopied, so its checksums count; the record does not (R-511)."""
    bad = bytearray(packed(9, b"z"))
    bad[-1] ^= 1
    directory = write(tmp_path, [packed(0, b"a", b"b"), packed(2, b"c", large_at=0), bytes(bad)])
    with pytest.raises(CorruptBatchError, match="CRC"):
        build(directory, limit=1, chunk_bytes=ALL_AT_ONCE, record_limit_bytes=50)


key_lists = st.lists(
    st.lists(st.one_of(st.none(), st.sampled_from([b"k%d" % i for i in range(12)])), min_size=1, max_size=8),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    key_batches=key_lists,
    limit=st.integers(1, 14),
    first_dirty=st.integers(0, 12),
    spread=st.sampled_from([1, 2, 5]),
    chunk_bytes=st.sampled_from([BATCH_BY_BATCH, 200, ALL_AT_ONCE]),
    lanes=st.sampled_from([1, 2, 4]),
    in_parts=st.booleans(),
)
def test_map_of_any_log_ends_where_kafkas_does(
    key_batches: list[list[bytes | None]],
    limit: int,
    first_dirty: int,
    spread: int,
    chunk_bytes: int,
    lanes: int,
    in_parts: bool,
) -> None:
    """
    Entries, end, fullness and messages are those of a plain dictionary filled by the rules (R-511 to R-513).

    Also if a chunk unpacks to so much that its digests are made in parts: here one batch at a time.
    """
    offset, batches = 0, []
    for keys in key_batches:
        batches.append([Record(key, b"v", offset + i * spread) for i, key in enumerate(keys)])
        offset += len(keys) * spread
    end = (batches[-1][-1].offset or 0) + 1
    first_dirty = min(first_dirty, end - 1)
    expected, messages = {}, 0
    latest, is_full = -1, False
    for records in batches:
        for record in records:
            assert record.offset is not None
            if record.key is not None and record.offset >= first_dirty:
                if len(expected) >= limit:
                    is_full = True
                    break
                expected[record.key] = latest = record.offset
            messages += 1
        if is_full:
            break
        if (records[-1].offset or 0) >= first_dirty:
            latest = records[-1].offset or 0

    codec = "zstd" if in_parts else "none"
    with scratch_directory() as log_dir, pytest.MonkeyPatch.context() as patch:
        if in_parts:
            patch.setattr(records_module, "_USUAL_BYTES", 1)
            patch.setattr(digests_module, "ENOUGH_BYTES", 1)
        directory = write(log_dir, [data_batch(each, each[0].offset or 0, codec=codec) for each in batches])
        found = build(directory, first_dirty=first_dirty, limit=limit, chunk_bytes=chunk_bytes, lanes=lanes)
    assert (found.built.end_offset, found.built.ended_by) == (latest + 1, MapEnd.FULL if is_full else None)
    assert found.built.messages_read == messages
    assert {key: found.offset_map.get(key) for key in expected} == expected
    assert found.offset_map.entries == len(expected)


def test_bad_record_after_a_full_map_is_found_in_any_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all digests of the chunk had been made at once."""
    good = [data_batch([Record(b"k%d" % n, b"v")], n, codec="zstd") for n in range(3)]
    bad = data_batch([Record(b"c", b"v")], 3, codec="zstd", payload=b"\xff" * 7)
    directory = write(tmp_path, [*good, bad])
    positions = []
    for enough in (1 << 20, 1):
        monkeypatch.setattr(records_module, "_USUAL_BYTES", 1)
        monkeypatch.setattr(digests_module, "ENOUGH_BYTES", enough)
        with pytest.raises(CorruptBatchError) as raised:
            build(directory, limit=2, chunk_bytes=ALL_AT_ONCE)
        positions.append(raised.value.position)
    assert positions == [len(b"".join(good))] * 2


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_bad_checksum_after_a_full_map_is_reported_before_a_bad_record(tmp_path: Path, lanes: int) -> None:
    """After the end, only checksums of its last segment are verified, not its records: it will be recopied (R-512)."""
    head = batch(0, b"a") + batch(1, b"b")
    bad_record = data_batch([Record(b"c", b"v")], 2, payload=b"\xff" * 7)
    bad_checksum = batch(3, b"d")[:-1] + b"\xff"
    assert len(bad_record + bad_checksum) <= len(head)
    directory = write(tmp_path, [head, bad_record, bad_checksum])
    with pytest.raises(CorruptBatchError) as raised:
        build(directory, limit=1, chunk_bytes=len(head), lanes=lanes)
    assert (raised.value.position, "CRC-32C" in raised.value.reason) == (len(head) + len(bad_record), True)
