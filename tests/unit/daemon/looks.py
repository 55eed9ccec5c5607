"""Logs as a look would show them, for tests of who works on what."""

from __future__ import annotations

from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.selection_context import DirCondition, LogDirFacts, LogFacts

LOG_DIR = "/logs"


def log_status(
    name: str, dirty: int = 60, *, log_dir: str = LOG_DIR, compacted: bool = True, expired: bool = False
) -> LogStatus:
    """Return a log with `dirty` of 100 bytes dirty; due from 51 on."""
    partition = TopicPartition.parse(name)
    facts = LogFacts(
        partition,
        log_dir,
        Cleanable(0, 10, 100 - dirty, dirty, 5, False, "active segment"),
        earliest_dirty_timestamp_ms=None,
        min_cleanable_dirty_ratio=0.5,
        max_compaction_lag_ms=LONG_MAX,
        has_segments_to_delete=expired,
    )
    return LogStatus(
        partition=partition,
        log_dir=log_dir,
        directory=Path(log_dir) / name,
        policy="compact" if compacted else "delete",
        policy_origin="test",
        segments=3,
        sections=None,
        facts=facts if compacted else None,
        why="" if compacted else "cleanup.policy is delete",
        error="",
        has_segments_to_delete=expired,
    )


def look(
    *logs: LogStatus, condition: DirCondition = DirCondition.ONLINE, detail: str = "", begun_ns: int = 0
) -> DirLook:
    """Return the look of a log dir."""
    return DirLook(
        facts=LogDirFacts(condition, detail),
        beside_writer=False,
        free_bytes=1000,
        total_bytes=2000,
        looked_at_ms=0,
        begun_ns=begun_ns,
        logs=logs,
    )
