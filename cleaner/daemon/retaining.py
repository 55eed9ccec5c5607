"""Retention as a part of the service: which logs it gets, which locks it takes, what it reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from cleaner.config.values import CleanerConfig
from cleaner.daemon.dir_locks import DirLocks
from cleaner.daemon.manager import CleanerManager
from cleaner.daemon.retention_loop import RetentionLoop, RetentionTarget
from cleaner.daemon.retention_pass import RetentionPass
from cleaner.daemon.retention_report import RetentionReport
from cleaner.daemon.round_task import RoundTools
from cleaner.errors import CleanerError
from cleaner.state.json_text import JsonValue
from cleaner.storage.log_dir import LogDir


def make_retention(
    tools: RoundTools,
    manager: CleanerManager,
    config: Callable[[], CleanerConfig],
    check_done: Callable[[], None],
    report: Callable[[RetentionReport], None],
) -> RetentionLoop:
    """
    Return the loop of a service's retention thread.

    Args:
        tools: what rounds use too.
        manager: says which logs nobody is at work on.
        config: the settings in force.
        check_done: raises CleaningAborted when the service is being stopped.
        report: called with each log.
    """

    def targets() -> Sequence[RetentionTarget]:
        known = manager.snapshot()
        return [
            RetentionTarget(tools.log_dir_of(Path(path)), look, partial(_locked, tools.locks, Path(path)))
            for path, look in known.looks.items()
        ]

    def failed(log_dir: LogDir, error: CleanerError) -> None:
        tools.warn(f"{log_dir.path}: retention: {error}")

    retention = RetentionPass(
        tools.fs,
        tools.clock,
        take=manager.take_for_retention,
        give_back=manager.give_back_from_retention,
        report=report,
        check_done=check_done,
    )
    return RetentionLoop(tools.clock, retention, targets=targets, config=config, failed=failed)


def retention_details(report: RetentionReport) -> dict[str, JsonValue]:
    """Return what is logged and entered in the journal of what retention did to one log."""
    return {
        "log_dir": report.log_dir,
        "segments": report.segments,
        "bytes": report.bytes,
        "reason": report.reason,
        "log_start_offset": report.log_start_offset,
    }


@contextlib.contextmanager
def _locked(locks: DirLocks, path: Path) -> Iterator[Callable[[], None]]:
    with locks.using(path) as lock:
        yield lock.still_held
