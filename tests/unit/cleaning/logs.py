"""Logs on a disk for rounds of the engine, and readers of the results."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from cleaner.base.model import TopicPartition
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.round.round import RoundResult, clean_log
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.format.batch import DEFAULT_CHUNK_BYTES
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker
from cleaner.policy.cleanable import Cleanable, cleanable
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from tests.reference.batches import Rec, read_batches, read_records
from tests.support.log_builder import START_MS, LogBuilder
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import WatchedFileSystem

NOW_MS = START_MS + 100_000
SETTINGS = {"cleanup.policy": "compact", "index.interval.bytes": "60", "delete.retention.ms": "1000"}

Files = dict[str, tuple[bytes, int]]


def context(fs: FileSystem | None = None, **options: object) -> RoundContext:
    """Return a round's context: a manual clock, and a disk without real fsyncs."""
    values: dict[str, object] = {"fs": fs or WatchedFileSystem(), "clock": ManualClock(), "now_ms": NOW_MS}
    return RoundContext(**(values | options))  # type: ignore[arg-type]


def keyed_log(segments: int = 4, batches: int = 6, keys: int = 5, **options: object) -> LogBuilder:
    """Build a log of some segments, whose few keys repeat often, and an active one."""
    log = LogBuilder(index_interval_bytes=60, **options)  # type: ignore[arg-type]
    for _ in range(segments):
        for _ in range(batches):
            offset = log.next_offset
            log.append(*[(f"k{(offset + i) % keys}", f"value of {offset + i}") for i in range(3)])
        log.roll()
    log.append(("last", "value"))
    return log


def load(
    fs: FileSystem, directory: Path, settings: Mapping[str, str] = SETTINGS, high_watermark: int = 2**62
) -> LoadedLog:
    """Load a log that was stopped cleanly; the high watermark is its end unless given."""
    topic = TopicConfig.from_mapping(settings)
    return load_log(
        fs,
        directory,
        TopicPartition("topic", 0),
        topic=topic,
        log_start_offset=0,
        recovery_point=0,
        high_watermark=high_watermark,
        clean_shutdown=True,
        producer_id_expiration_ms=86_400_000,
        now_ms=NOW_MS,
    )


def clean(
    directory: Path,
    around: RoundContext | None = None,
    *,
    checkpoint: int | None = None,
    settings: Mapping[str, str] = SETTINGS,
    config: CleanerConfig | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    high_watermark: int = 2**62,
) -> RoundResult:
    """Load a log and clean it once, in chunks of the given size."""
    around = around or context()
    log = load(around.fs, directory, settings, high_watermark)
    found: Cleanable = cleanable(log, checkpoint, log.topic, NOW_MS)

    def lanes(count: int, limit_bytes: int, *, max_kept: int) -> nullcontext[list[LaneMemory]]:
        return nullcontext([LaneMemory(WindowBuffer(chunk_bytes), Unpacker(limit_bytes)) for _ in range(count)])

    with patch("cleaner.cleaning.round.round.borrowed_lanes", lanes):
        return clean_log(log, found, log.topic, config or CleanerConfig(dedupe_buffer_size=24_000), around)


def files_of(directory: Path) -> Files:
    """Return content and time of every file."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(directory.iterdir())}


def segment_files(files: Files) -> Files:
    """Return the segments' files among them, with any suffix."""
    return {name: content for name, content in files.items() if name[:20].isdigit() and ".snapshot" not in name}


def records_in(directory: Path) -> list[Rec]:
    """Return all data records of a log, in order."""
    return [
        record
        for path in sorted(directory.glob("*.log"))
        for batch in read_batches(path.read_bytes())
        if not batch.control
        for record in read_records(batch)
    ]


def newest(records: list[Rec]) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Return offset and value of each key's last record."""
    return {record.key: (record.offset, record.value) for record in records}


def base_offsets(directory: Path) -> list[int]:
    """Return the segments' base offsets."""
    return sorted(int(path.name[:20]) for path in directory.glob("*.log"))
