"""The first pass of a round: what the map covers, and what is counted (R-510 to R-513, R-718)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import BuiltMap, MapBuilder, MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.config.values import CleanerConfig
from cleaner.errors import CorruptIndexError
from cleaner.format.batch import DEFAULT_CHUNK_BYTES
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker
from cleaner.policy.cleanable import cleanable
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder
from tests.unit.cleaning.logs import NOW_MS, context, keyed_log, load

pytestmark = pytest.mark.kernels


def build(
    directory: Path,
    checkpoint: int | None = None,
    limit: int = 1000,
    around: RoundContext | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> tuple[BuiltMap, OffsetMap]:
    """Build the map of a log's dirty section, on two lanes."""
    around = around or context()
    log = load(around.fs, directory)
    offset_map = OffsetMap(limit, limit)
    found = cleanable(log, checkpoint, log.topic, NOW_MS)
    lanes = [LaneMemory(WindowBuffer(chunk_bytes), Unpacker(1 << 20)) for _ in range(2)]
    return MapBuilder(log, found, offset_map, lanes, around).build(), offset_map


def test_map_covers_offsets_missing_before_the_next_segment(tmp_path: Path) -> None:
    """After a whole segment the end is where the next begins, whatever its last batch was (R-513)."""
    log = LogBuilder()
    log.append(("a", "v"), ("b", "v"))
    log.skip(10)
    log.roll()
    log.append(("a", "w"))
    log.skip(100)
    log.roll()
    directory = log.write(tmp_path)
    built, offset_map = build(directory)
    assert (built.end_offset, built.ended_by) == (113, None)
    assert [offset_map.get(key) for key in (b"a", b"b")] == [12, 1]


def test_map_that_ends_in_a_segment_covers_no_gap(tmp_path: Path) -> None:
    """The end then is the last record put, or the last whole batch (R-513)."""
    log = LogBuilder()
    log.append(("a", "v"), ("b", "v"), last_offset=5)
    log.append(("c", "v"))
    log.roll()
    built, _ = build(log.write(tmp_path), limit=2)
    assert (built.end_offset, built.ended_by) == (6, MapEnd.FULL)


def test_map_begins_inside_a_segment_at_the_checkpoint(tmp_path: Path) -> None:
    """Records below it are not indexed, and the index gives the position to begin at (R-511)."""
    directory = keyed_log(segments=2, batches=20, keys=60).write(tmp_path)
    built, offset_map = build(directory, checkpoint=31)
    assert offset_map.get(b"k30") == 90
    assert offset_map.get(b"k31") == 91
    whole = sum(path.stat().st_size for path in list(directory.glob("*.log"))[:2])
    assert built.bytes_read < whole
    assert built.end_offset == 120
    assert set(built.messages_by_segment) == {60}
    assert built.messages_by_segment[60] == 60


def test_aborted_data_and_markers_are_counted_but_not_indexed(tmp_path: Path) -> None:
    """An aborted batch counts its records, a marker one (R-511, R-718)."""
    log = LogBuilder()
    log.append(("a", "committed"), ("b", "committed"), producer=Producer(1, 0, 0, True))
    log.append(("a", "aborted"), ("c", "aborted"), ("d", "aborted"), producer=Producer(2, 0, 0, True))
    log.end_transaction(2, 0, commit=False)
    log.end_transaction(1, 0, commit=True)
    log.append((None, "keyless"))
    log.roll()
    built, offset_map = build(log.write(tmp_path))
    assert [offset_map.get(key) for key in (b"a", b"b", b"c", b"d")] == [0, 1, -1, -1]
    assert built.messages_read == 2 + 3 + 1 + 1 + 1
    assert built.keyless_messages == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_packed_and_old_batches_are_indexed_like_others(tmp_path: Path, magic: int, codec: str) -> None:
    """Absolute offsets, whatever the format (R-242)."""
    if magic < 2 and codec == "zstd":
        codec = "none"  # magic 0 and 1 have no zstd
    log = LogBuilder()
    log.append(("x", "v"))
    log.append(*[(f"k{i}", "v") for i in range(50)], codec=codec, magic=magic)
    log.roll()
    built, offset_map = build(log.write(tmp_path))
    assert [offset_map.get(b"k%d" % i) for i in range(50)] == list(range(1, 51))
    assert built.messages_read == 51


def test_wrong_offset_index_is_found(tmp_path: Path) -> None:
    """The first pass compares each index with its log (R-333)."""
    directory = keyed_log(segments=2, batches=20).write(tmp_path)
    path = directory / f"{0:020d}.index"
    data = bytearray(path.read_bytes())
    data[7] += 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptIndexError, match="middle of a batch"):
        build(directory)


def test_range_within_one_chunk_may_still_end_by_the_limits(tmp_path: Path) -> None:
    """The limit is checked after a chunk; the rest of its segment is only verified."""
    directory = keyed_log(segments=1, batches=10).write(tmp_path)
    built, _ = build(directory, around=context(max_dirty_bytes=1), chunk_bytes=300)
    assert built.ended_by is MapEnd.DIRTY_BYTES
    assert 0 < built.end_offset < 30
    whole, _ = build(directory, around=context(max_dirty_bytes=1))
    assert (whole.end_offset, whole.ended_by) == (30, None)


def test_default_map_takes_kafkas_number_of_keys() -> None:
    """128 MiB in entries of 24 bytes at 0.9 (R-520, R-523)."""
    config = CleanerConfig()
    assert (config.slots, config.key_limit) == (5_592_405, 5_033_164)
