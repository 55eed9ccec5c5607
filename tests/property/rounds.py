"""Rounds of the engine and of the twin on one log dir, and what is read from the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import cleaner
from cleaner.app.reports import CleanReport
from cleaner.app.safe_tombstones import SafePoint, write_safe_tombstones
from cleaner.errors import UncleanableError
from cleaner.storage.fs.file_system import FileSystem
from tests.golden.comparison import contents, differences
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, build
from tests.reference.batches import Rec, read_batches, read_records
from tests.reference.log_state import LogState, Settings, load
from tests.reference.round import Result, clean_round
from tests.support.log_builder import HIGH_WATERMARKS, START_MS, LogBuilder, offset_checkpoint, write_log_dir


class Outcome(NamedTuple):
    """One round: the engine's report, or None if it gave up, and the twin's result."""

    report: CleanReport | None
    twin: Result
    found: list[str]


def twin_settings(settings: dict[str, str], same_keys: Mapping[bytes, bytes] | None = None) -> Settings:
    """Translate settings under Kafka's names for the twin."""
    return Settings(
        slots=int(settings["log.cleaner.dedupe.buffer.size"]) // 24,
        load_factor=float(settings["log.cleaner.io.buffer.load.factor"]),
        segment_bytes=int(settings["internal.segment.bytes"]),
        segment_index_bytes=int(settings["segment.index.bytes"]),
        index_interval_bytes=int(settings["index.interval.bytes"]),
        delete_retention_ms=int(settings["delete.retention.ms"]),
        min_compaction_lag_ms=int(settings["min.compaction.lag.ms"]),
        producer_id_expiration_ms=int(settings["producer.id.expiration.ms"]),
        max_decompressed_message_bytes=int(settings.get("max.decompressed.message.bytes", 2**31 - 9)),
        same_keys=same_keys or {},
        survivor=settings.get("cleaner.survivor", "offset"),
        record_ttl_ms=int(settings["cleaner.record.ttl.ms"]) if "cleaner.record.ttl.ms" in settings else None,
    )


def cleaner_checkpoint(log_dir: Path) -> int | None:
    """Return the partition's line of the cleaner's checkpoint."""
    words = (log_dir / "cleaner-offset-checkpoint").read_text().split()
    return int(words[-1]) if len(words) > 2 else None


def comparable(files: Mapping[str, bytes], log_start: int) -> dict[str, bytes]:
    """Leave out what a raised log start offset changes on load (R-123, R-126): the twin only knows segments."""
    first = min(int(name[:20]) for name in files if name.endswith(".log"))
    if log_start <= first:
        return dict(files)
    return {name: data for name, data in files.items() if not name.endswith((".snapshot", "-checkpoint"))}


def partition_files(log_dir: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the partition's files and the times of its `.log` files in milliseconds."""
    directory = log_dir / str(PARTITION)
    times = {path.name: path.stat().st_mtime_ns // 1_000_000 for path in directory.glob("*.log")}
    return contents(directory), times


def offset_at(log: LogBuilder, percent: int) -> int:
    """Return the offset that far into a log."""
    first = log.base_offsets[0]
    return first + (log.next_offset - first) * percent // 100


def replicated_at(case: Case, log: LogBuilder, percent: int) -> int:
    """Return a round's high watermark: that far into the log, or the base offset at or below it."""
    offset = offset_at(log, percent)
    return max(base for base in log.base_offsets if base <= offset) if case.replicated_on_bases else offset


def write_case(case: Case, log_dir: Path) -> LogBuilder:
    """Write a case's log dir as it is before the first round."""
    log = build(case.operations, case.settings, case.base_offset)
    start, checkpoint = case.start_percent, case.checkpoint_percent
    write_log_dir(
        log_dir,
        log,
        log_start_offsets={} if start is None else {PARTITION: offset_at(log, start)},
        cleaner_offsets={} if checkpoint is None else {PARTITION: offset_at(log, checkpoint)},
    )
    return log


def run_rounds(
    case: Case,
    log_dir: Path,
    *,
    keep_tombstones: bool = False,
    held_percent: int | None = None,
    same_keys: Mapping[bytes, bytes] | None = None,
) -> Iterator[Outcome]:
    """
    Write the case's log, then clean it round by round, each time from what the engine left.

    Args:
        same_keys: keys that a view takes for another one.
        held_percent: from there on in the log, tombstones and markers are held by a file of safe offsets.
    """
    log = write_case(case, log_dir)
    now_ms = FIRST_ROUND_MS
    for percent, advance in zip(case.replicated_percent, case.advances_ms, strict=True):
        now_ms += advance
        high_watermark = replicated_at(case, log, percent)
        held_from = None if held_percent is None else offset_at(log, held_percent)
        outcome = run_round(
            case,
            log,
            log_dir,
            high_watermark,
            now_ms,
            keep_tombstones=keep_tombstones,
            held_from=held_from,
            same_keys=same_keys,
        )
        yield outcome
        if outcome.report is None:
            return


def run_round(
    case: Case,
    log: LogBuilder,
    log_dir: Path,
    high_watermark: int,
    now_ms: int,
    *,
    keep_tombstones: bool = False,
    held_from: int | None = None,
    same_keys: Mapping[bytes, bytes] | None = None,
) -> Outcome:
    """Clean one round with both and list what differs."""
    safe = None if held_from is None else log_dir / "safe.json"
    if safe is not None and held_from is not None:
        write_safe_tombstones(FileSystem(), safe, now_ms, [SafePoint(PARTITION, held_from, "", None, ())])
    settings = twin_settings(case.settings, same_keys)
    (log_dir / HIGH_WATERMARKS).write_bytes(offset_checkpoint({PARTITION: high_watermark}))
    files, times = partition_files(log_dir)
    log_start = offset_at(log, case.start_percent or 0)
    twin = clean_round(
        files,
        times,
        settings,
        now_ms=now_ms,
        checkpoint=cleaner_checkpoint(log_dir),
        log_start=log_start,
        high_watermark=high_watermark,
        keep_tombstones=keep_tombstones,
        held_from=2**63 - 1 if held_from is None else held_from,
        kafka=case.settings.get("cleaner.kafka.version", "4.3"),
    )
    try:
        report = cleaner.clean(
            log_dir,
            str(PARTITION),
            case.settings,
            now_ms=now_ms,
            keep_tombstones=keep_tombstones,
            safe_tombstones=safe,
        )
    except UncleanableError as error:
        left, _ = partition_files(log_dir)
        if not twin.failed:
            return Outcome(None, twin, [repr(error)])
        # The groups before the one Kafka stops in are swapped, or nothing is.
        return Outcome(None, twin, [] if left == files else _other_files(twin, log_dir, files, settings, log_start))
    if twin.failed:
        return Outcome(report, twin, [f"went on where Kafka stops: {twin.failed}"])
    return Outcome(
        report, twin, _other_files(twin, log_dir, files, settings, log_start) + _other_counters(report, twin)
    )


def _other_files(
    twin: Result, log_dir: Path, source: dict[str, bytes], settings: Settings, log_start: int
) -> list[str]:
    left, times = partition_files(log_dir)
    found = differences(
        comparable(twin.files, log_start),
        comparable(left, log_start),
        compressed=True,
        source_batches={b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)},
        index_interval_bytes=settings.index_interval_bytes,
    )
    wanted_times = {name: time for name, time in twin.mtimes_ms.items() if name.endswith(".log")}
    return found if times == wanted_times else [*found, f"times {times}, twin {wanted_times}"]


def _other_counters(report: CleanReport, twin: Result) -> list[str]:
    stats = twin.stats
    wanted = {
        "first_dirty_offset": twin.first_dirty,
        "end_offset": twin.end_offset,
        "bytes_read": stats.bytes_read,
        "messages_read": stats.messages_read,
        "messages_written": stats.messages_written,
        "map_messages_read": stats.map_messages_read,
        "invalid_messages": stats.invalid_messages,
        "expired_records": stats.expired,
    }
    found = [f"{k} {getattr(report, k)}, twin {v}" for k, v in wanted.items() if getattr(report, k) != v]
    removed = {
        "superseded": stats.superseded,
        "tombstones": stats.tombstones,
        "aborted": stats.aborted,
        "markers": stats.markers,
        "keyless": stats.invalid_messages,
    }
    found += [
        f"removed.{k} {getattr(report.removed, k)}, twin {v}"
        for k, v in removed.items()
        if getattr(report.removed, k) != v
    ]
    return found


def loaded(log_dir: Path, case: Case) -> LogState:
    """Load what lies in the log dir with the twin."""
    files, times = partition_files(log_dir)
    return load(files, times, twin_settings(case.settings), START_MS, 0, None)


def data_records(state: LogState) -> list[Rec]:
    """Return all records but markers, in order."""
    return [r for s in state.segments for b in s.batches if not b.control for r in read_records(b)]
