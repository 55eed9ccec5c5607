"""The tables of the documentation, each cleaned for real: log compaction in a few records one can check by hand."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import cleaner
from cleaner.base.clock import StillClock
from cleaner.base.model import TopicPartition
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.round.round import clean_log
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.policy.cleanable import cleanable
from cleaner.storage.fs.file_system import FileSystem
from tests.reference.batches import Rec, read_batches, read_records
from tests.reference.log_state import Segment, Settings, load
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.cleaning.logs import load as load_stopped

PARTITION = TopicPartition("topic", 0)
SETTINGS = {"cleanup.policy": "compact"}
NOW_MS = START_MS + 60_000


def append_keys(log: LogBuilder, *pairs: tuple[str, str]) -> LogBuilder:
    """Append one record a batch."""
    for pair in pairs:
        log.append(pair)
    return log


def segments_of(log_dir: Path) -> list[Segment]:
    """Load the partition's segments with the twin."""
    files = {path.name: path.read_bytes() for path in (log_dir / str(PARTITION)).iterdir()}
    return load(files, dict.fromkeys(files, 0), Settings(1), NOW_MS, 0, None).segments


def records_of(log_dir: Path) -> list[Rec]:
    """Return every record of the partition, in order."""
    return [r for segment in segments_of(log_dir) for batch in segment.batches for r in read_records(batch)]


def read_at(log_dir: Path, offset: int) -> Rec | None:
    """Read as a broker does: the segment, the index entry, the first batch that reaches the offset, the record."""
    segments = segments_of(log_dir)
    first = max((s for s in segments if s.base_offset <= offset), key=lambda s: s.base_offset, default=segments[0])
    for segment in segments[segments.index(first) :]:
        start = segment.position_of(offset)
        for batch in read_batches(segment.log[start:]):
            for record in read_records(batch) if batch.last_offset >= offset else []:
                if record.offset >= offset:
                    return record
    return None


def test_last_value_of_every_key_stays_at_its_offset(tmp_path: Path) -> None:
    """K1=13 K2=11 K3=22 K3=7 K1=8 K4=14 at offsets 1 to 6 leave 2, 4, 5 and 6."""
    log = LogBuilder(PARTITION, base_offset=1)
    append_keys(log, ("K1", "13"), ("K2", "11"), ("K3", "22"), ("K3", "7"), ("K1", "8"), ("K4", "14")).roll()
    write_log_dir(tmp_path, log)
    report = cleaner.clean(tmp_path, "topic-0", SETTINGS, now_ms=NOW_MS)

    assert [(r.offset, r.key, r.value) for r in records_of(tmp_path)] == [
        (2, b"K2", b"11"),
        (4, b"K3", b"7"),
        (5, b"K1", b"8"),
        (6, b"K4", b"14"),
    ]
    assert report.end_offset == 7
    assert report.removed.superseded == 2


def test_segments_become_one_and_the_active_segment_stays(tmp_path: Path) -> None:
    """Segments 01 (K1 K2 K3), 04 (K3 K1 K1), active 07 (K4) leave offsets 2, 4, 6 and 7 in segments 01 and 07."""
    log = LogBuilder(PARTITION, base_offset=1)
    append_keys(log, ("K1", "a"), ("K2", "b"), ("K3", "c")).roll()
    append_keys(log, ("K3", "d"), ("K1", "e"), ("K1", "f")).roll()
    append_keys(log, ("K4", "g"))
    write_log_dir(tmp_path, log)
    cleaner.clean(tmp_path, "topic-0", SETTINGS, now_ms=NOW_MS)

    assert [(s.base_offset, [r.offset for b in s.batches for r in read_records(b)]) for s in segments_of(tmp_path)] == [
        (1, [2, 4, 6]),
        (7, [7]),
    ]


def test_active_segment_supersedes_nothing(tmp_path: Path) -> None:
    """A later value in the active segment removes no earlier one: it is not yet in the map."""
    log = LogBuilder(PARTITION)
    append_keys(log, ("K1", "old")).roll()
    append_keys(log, ("K1", "new"))
    write_log_dir(tmp_path, log)
    report = cleaner.clean(tmp_path, "topic-0", SETTINGS, now_ms=NOW_MS)

    assert [r.value for r in records_of(tmp_path)] == [b"old", b"new"]
    assert report.removed.total == 0


def clean_with_map(log_dir: Path, checkpoint: int | None) -> tuple[OffsetMap, int]:
    """Run one round through the engine with a map of our own; returns it and the new checkpoint."""
    topic = TopicConfig.from_mapping(SETTINGS)
    log = load_stopped(FileSystem(), log_dir / str(PARTITION), SETTINGS)
    offset_map = OffsetMap(100, 200)
    context = RoundContext(FileSystem(), StillClock(NOW_MS), NOW_MS, offset_map=offset_map)
    found = cleanable(log, checkpoint, topic, NOW_MS)
    result = clean_log(log, found, topic, CleanerConfig.from_mapping({}), context)
    log.close(FileSystem(), nullcontext)
    return offset_map, result.end_offset


def test_offset_map_of_the_price_log_holds_the_dirty_section_only(tmp_path: Path) -> None:
    """After p3 p5 p3 p6 were cleaned and p6, p5, p5 appended, the map is p6->5, p5->7, and p3 stays as it was."""
    log = LogBuilder(PARTITION, base_offset=1)
    append_keys(log, ("p3", "10"), ("p5", "7"), ("p3", "11"), ("p6", "25")).roll()
    append_keys(log, ("p6", "12"), ("p5", "14"), ("p5", "17")).roll()
    write_log_dir(tmp_path, log)
    offset_map, end_offset = clean_with_map(tmp_path, checkpoint=5)

    assert offset_map.entries == 2
    assert {key: offset_map.get(key) for key in (b"p6", b"p5", b"p3")} == {b"p6": 5, b"p5": 7, b"p3": -1}
    assert end_offset == 8
    # p3 at 1 is still there: only a key that comes again in the dirty section is looked at.
    assert [(r.offset, r.key) for r in records_of(tmp_path)] == [(1, b"p3"), (3, b"p3"), (5, b"p6"), (7, b"p5")]


@pytest.mark.parametrize("offset", [36, 37, 38])
@pytest.mark.parametrize("index_interval_bytes", [0, 4096], ids=["dense-index", "sparse-index"])
def test_reading_at_a_removed_offset_gives_the_next_record(
    offset: int, index_interval_bytes: int, tmp_path: Path
) -> None:
    """Reading at 36, 37 or 38 gives 38 when 36 and 37 are gone."""
    log = LogBuilder(PARTITION, index_interval_bytes=index_interval_bytes)
    append_keys(log, *((f"k{i}", "x") for i in range(36)), ("late", "1"), ("late", "2"), ("late", "3"))
    append_keys(log, *((f"m{i}", "x") for i in range(20))).roll()
    write_log_dir(tmp_path, log)
    settings = SETTINGS | {"index.interval.bytes": str(index_interval_bytes)}
    cleaner.clean(tmp_path, "topic-0", settings, now_ms=NOW_MS)
    record = read_at(tmp_path, offset)

    assert {36, 37}.isdisjoint(r.offset for r in records_of(tmp_path))
    assert record is not None
    assert (record.offset, record.value) == (38, b"3")


def test_dedupe_buffer_of_8_gib_cleans_366_gb_of_dirty_log() -> None:
    """Kafka's rule of thumb, 24 bytes an entry at 1 KiB a message, and what the load factor leaves of it."""
    config = CleanerConfig.from_mapping({"log.cleaner.dedupe.buffer.size": str(8 << 30)})
    gigabytes_of_slots = config.slots * 1024 / 1e9
    gigabytes_in_one_round = config.key_limit * 1024 / 1e9

    assert int(gigabytes_of_slots) == 366
    assert int(gigabytes_in_one_round) == 329
