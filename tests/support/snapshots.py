"""
Builds snapshots of a daemon: every part has consistent defaults for all fields.

A test gives only the fields it is about: `snapshot(logs=(log("orders", 3, dirty_bytes=GB),))`. Fields that follow
from the logs (the queue, the ratios, overdue logs, the counts of a log dir) are computed unless given. Whole
scenes are in `sample_daemons.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import (
    ConfigView,
    Counts,
    Histogram,
    JobView,
    LogDirView,
    LogView,
    RoundView,
    ServiceSnapshot,
    ThrottleView,
    TopicTotals,
    WorkerView,
)
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.sections import Sections
from cleaner.policy.selection_context import DirCondition
from cleaner.state.quarantine import QuarantinedLog
from tests.support.manual_clock import START_MS

MB, GB = 1 << 20, 1 << 30
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW_MS = START_MS
LOG_DIR = "/var/lib/kafka/data"
BYTES_AN_OFFSET = 100
SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)

_DUENESS_OF = {
    Reason.OVERDUE: Reason.OVERDUE,
    Reason.NOTHING_TO_CLEAN: Reason.NOTHING_TO_CLEAN,
    Reason.CHECKPOINT_RESET: Reason.NOTHING_TO_CLEAN,
    Reason.UNFINISHED_SWAP: Reason.NOTHING_TO_CLEAN,
    Reason.UNDER_RATIO: Reason.UNDER_RATIO,
}


def partition(topic: str = "orders", number: int = 0) -> TopicPartition:
    """Return a partition; the topic may be any text, even one that Kafka refuses."""
    return TopicPartition(topic, number)


def sections(
    clean_bytes: int = 600 * MB,
    dirty_bytes: int = 200 * MB,
    uncleanable_bytes: int = 0,
    active_bytes: int = 64 * MB,
    log_start_offset: int = 0,
    retention_part: float = 0.6,
) -> Sections:
    """Return the sections of a log with one offset per 100 bytes; `retention_part` of the clean section is old."""
    first_dirty = log_start_offset + clean_bytes // BYTES_AN_OFFSET
    first_uncleanable = first_dirty + dirty_bytes // BYTES_AN_OFFSET
    active_base = first_uncleanable + uncleanable_bytes // BYTES_AN_OFFSET
    old_bytes = int(clean_bytes * retention_part)
    return Sections(
        log_start_offset=log_start_offset,
        log_end_offset=active_base + active_bytes // BYTES_AN_OFFSET,
        delete_retention_offset=log_start_offset + old_bytes // BYTES_AN_OFFSET if clean_bytes else None,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        active_base_offset=active_base,
        delete_retention_bytes=old_bytes,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        uncleanable_bytes=uncleanable_bytes,
        active_bytes=active_bytes,
    )


def verdict(
    of: TopicPartition, parts: Sections, reason: Reason | None = None, min_ratio: float = 0.5, **fields: Any
) -> CleaningStatus:
    """Return the status of a log with these sections; without a reason its ratio decides."""
    cleanable = Cleanable(
        first_dirty_offset=parts.first_dirty_offset,
        first_uncleanable_offset=parts.first_uncleanable_offset,
        clean_bytes=parts.clean_bytes,
        cleanable_bytes=parts.dirty_bytes,
        uncleanable_bytes=parts.uncleanable_bytes + parts.active_bytes,
        force_checkpoint=False,
        bounded_by="min.compaction.lag.ms" if parts.uncleanable_bytes else "active segment",
    )
    by_numbers = Reason.OVER_RATIO if cleanable.ratio > min_ratio else Reason.UNDER_RATIO
    if not parts.dirty_bytes:
        by_numbers = Reason.NOTHING_TO_CLEAN
    shown_reason = by_numbers if reason is None else reason
    dueness = _DUENESS_OF.get(shown_reason, _DUENESS_OF.get(by_numbers, Reason.OVER_RATIO))
    if shown_reason is Reason.OVERDUE:
        fields.setdefault("overdue_ms", 2 * HOUR_MS)
    return CleaningStatus(of, shown_reason, dueness, cleanable, min_ratio, **fields)


def log(
    topic: str = "orders",
    number: int = 0,
    *,
    log_dir: str = LOG_DIR,
    reason: Reason | None = None,
    clean_bytes: int = 600 * MB,
    dirty_bytes: int = 200 * MB,
    uncleanable_bytes: int = 0,
    active_bytes: int = 64 * MB,
    verdict_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> LogView:
    """
    Return a compacted log.

    Args:
        topic, number, log_dir: its partition and log dir.
        reason: of its status; None: decided by its ratio.
        clean_bytes, dirty_bytes, uncleanable_bytes, active_bytes: its sections.
        verdict_fields: further fields of its `CleaningStatus` (`count`, `detail`, `wait_ms`, ...).
        fields: further fields of `LogView`, also `sections=None` and `verdict=None`.
    """
    of = partition(topic, number)
    parts = sections(clean_bytes, dirty_bytes, uncleanable_bytes, active_bytes)
    status = verdict(of, parts, reason, **(verdict_fields or {}))
    defaults: dict[str, Any] = {
        "policy": "compact",
        "policy_origin": "cleaner.properties",
        "segments": max(1, parts.total_bytes // (128 * MB)),
        "sections": parts,
        "verdict": status,
        "why": status.words(),
    }
    return LogView(partition=of, log_dir=log_dir, **{**defaults, **fields})


def log_dir(path: str = LOG_DIR, **fields: Any) -> LogDirView:
    """Return a healthy log dir that is half full."""
    defaults: dict[str, Any] = {
        "condition": DirCondition.ONLINE,
        "detail": "",
        "since_ms": NOW_MS - 3 * DAY_MS,
        "partitions": 3,
        "free_bytes": 210 * GB,
        "total_bytes": 500 * GB,
        "workers": 0,
        "uncleanable_partitions": 0,
        "uncleanable_bytes": 0,
        "looked_at_ms": NOW_MS - 4_000,
    }
    return LogDirView(path=path, **{**defaults, **fields})


def worker(number: int = 0, of: TopicPartition | None = None, **fields: Any) -> WorkerView:
    """Return a waiting worker, or one that has copied a third."""
    defaults: dict[str, Any] = {
        "log_dir": LOG_DIR if of else None,
        "phase": "copy" if of else "",
        "done_bytes": 290 * MB if of else 0,
        "total_bytes": 800 * MB if of else 0,
        "since_ms": NOW_MS - 41_000,
        "remaining_seconds": 58.0 if of else None,
    }
    return WorkerView(name=f"cleaner-{number}", partition=of, **{**defaults, **fields})


def job(id: int = 1, of: TopicPartition | None = None, **fields: Any) -> JobView:
    """Return a job that waits for a worker."""
    defaults: dict[str, Any] = {
        "state": "queued",
        "asked_by": 1000,
        "asked_ms": NOW_MS - 9_000,
        "ended_ms": None,
        "progress": 0.0,
        "detail": "",
    }
    return JobView(id=id, partition=of or partition(), **{**defaults, **fields})


def round_of(of: TopicPartition | None = None, **fields: Any) -> RoundView:
    """Return a successful round that reduced 800 MB to 240 MB."""
    defaults: dict[str, Any] = {
        "log_dir": LOG_DIR,
        "worker": "cleaner-0",
        "result": "done",
        "detail": "",
        "ended_ms": NOW_MS - 12 * MINUTE_MS,
        "seconds": 6.4,
        "map_seconds": 1.1,
        "copy_seconds": 5.1,
        "map_utilization": 0.31,
        "first_dirty_offset": 1_000_000,
        "end_offset": 9_400_000,
        "bytes_read": 800 * MB,
        "bytes_written": 240 * MB,
        "messages_read": 8_388_608,
        "messages_written": 2_516_000,
        "map_messages_read": 2_097_152,
        "removed": {"superseded": 5_812_608, "tombstones": 60_000},
    }
    return RoundView(partition=of or partition(), **{**defaults, **fields})


def quarantined(of: TopicPartition | None = None, **fields: Any) -> QuarantinedLog:
    """Return a log quarantined for a batch with a wrong checksum."""
    named = of or partition("ledger", 2)
    defaults: dict[str, Any] = {
        "log_dir": LOG_DIR,
        "reason": "CRC-32C of the batch is 0x2f8a11c0, its header says 0x91e0b7d2",
        "kind": "CorruptLogError",
        "file": f"{LOG_DIR}/{named}/00000000000004194304.log",
        "position": 81_788_928,
        "since_ms": NOW_MS - 5 * HOUR_MS,
    }
    return QuarantinedLog(topic_partition=named, **{**defaults, **fields})


def retry(failures: int = 3, cause: str = "No space left on device: 1.2 GB are missing") -> Retry:
    """Return the retry of a log that failed a minute ago and waits another minute."""
    return Retry(failures, NOW_MS - MINUTE_MS, NOW_MS + MINUTE_MS, cause)


def topic_totals(**fields: Any) -> TopicTotals:
    """Return the totals of a topic that was cleaned four times."""
    defaults: dict[str, Any] = {
        "rounds": {"done": 4, "nothing": 1},
        "bytes_read": 3_200 * MB,
        "bytes_written": 960 * MB,
        "messages_read": 33_554_432,
        "messages_written": 10_064_000,
        "map_bytes_read": 800 * MB,
        "map_messages_read": 8_388_608,
        "removed": {"superseded": 23_250_432, "tombstones": 240_000},
        "last_success_ms": NOW_MS - 12 * MINUTE_MS,
    }
    return TopicTotals(**{**defaults, **fields})


def throttle(bytes_per_second: float | None = None, **fields: Any) -> ThrottleView:
    """Return a limit (None: no limit) under which 9 GB were read and written."""
    return ThrottleView(bytes_per_second, **{"bytes": 9 * GB, "waited_seconds": 0.0, **fields})


def config(**fields: Any) -> ConfigView:
    """Return settings read from a file an hour ago."""
    values = (
        ("log.cleaner.threads", "2", "cleaner.properties"),
        ("log.dirs", LOG_DIR, "cleaner.properties"),
        ("min.cleanable.dirty.ratio", "0.5", "default"),
    )
    return ConfigView(
        **{"file": "/etc/cleaner/cleaner.properties", "loaded_ms": NOW_MS - HOUR_MS, "values": values, **fields}
    )


def snapshot(logs: Sequence[LogView] | None = None, **fields: Any) -> ServiceSnapshot:
    """
    Return a healthy daemon that has run for three days.

    Args:
        logs: its logs; None: `orders-0` and `orders-1`, one of them due, and `clicks-0` with nothing to clean.
        fields: any field of `ServiceSnapshot`; the others follow from the logs.
    """
    views = tuple(_numbered(_some_logs() if logs is None else logs))
    judged = [view.verdict for view in views if view.verdict is not None]
    queue = sorted((status for status in judged if status.place is not None), key=lambda status: status.place or 0)
    defaults: dict[str, Any] = {
        "version": "0.1.0",
        "now_ms": NOW_MS,
        "started_ms": NOW_MS - 3 * DAY_MS,
        "state": "running",
        "is_ready": True,
        "turn_ended_ms": NOW_MS - 4_000,
        "turn_seconds": 0.012,
        "next_turn_ms": NOW_MS + 11_000,
        "is_progressing": True,
        "stuck": (),
        "config": config(),
        "throttle": throttle(),
        "log_dirs": _log_dirs_of(views),
        "workers": (worker(0), worker(1)),
        "worker_deaths": 0,
        "queue": tuple(status.partition for status in queue),
        "quarantine": (),
        "retries": {},
        "jobs": (),
        "rounds": (round_of(),),
        "pauses": (),
        "opens_at_ms": None,
        "counts": Counts.of(views),
        "topics": {view.partition.topic: topic_totals() for view in views},
        "round_seconds": Histogram(SECONDS, (1, 3, 2, 1, 0, 0, 0, 0), 64.5),
        "waiting_removals": 0,
        "open_files": 41,
        "ended_ms": NOW_MS - 12 * MINUTE_MS,
        "anonymous_bytes": 72 * MB,
        "needed_bytes": 440 * MB,
    }
    return ServiceSnapshot(logs=views, **{**defaults, **fields})


def _some_logs() -> tuple[LogView, ...]:
    return (
        log("clicks", 0, dirty_bytes=0),
        log("orders", 0, clean_bytes=180 * MB, dirty_bytes=620 * MB),
        log("orders", 1),
    )


def _numbered(logs: Sequence[LogView]) -> Iterator[LogView]:
    """Number the logs that only wait for a worker as in the queue, the dirtiest first."""
    free = [view.verdict for view in logs if view.verdict is not None and view.verdict.reason.is_due_and_free]
    free.sort(key=lambda status: (-status.overdue_ms, -status.cleanable.ratio))
    places = {id(status): place for place, status in enumerate(free, start=1)}
    for view in logs:
        status = view.verdict
        if status is not None and status.place is None and id(status) in places:
            status = replace(status, place=places[id(status)])
            yield replace(view, verdict=status, why=status.words())
        else:
            yield view


def _log_dirs_of(logs: Iterable[LogView]) -> tuple[LogDirView, ...]:
    counts = Counter(view.log_dir for view in logs) or Counter({LOG_DIR: 0})
    return tuple(log_dir(path, partitions=count) for path, count in sorted(counts.items()))
