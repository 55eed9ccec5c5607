"""
The schedule of retention: a pass over every log dir at intervals, and the removal of `.deleted` files when they are
due.

This loop has its own thread, so that workers never delay it (unlike R-712, where a busy cleaner thread deletes
nothing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.config.values import CleanerConfig
from cleaner.daemon.dir_locks import DirLocks
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.manager import CleanerManager
from cleaner.daemon.retention_pass import Lock, RetentionPass, RetentionReport
from cleaner.daemon.round_task import RoundTools
from cleaner.errors import CleanerError, CleaningAborted
from cleaner.policy.selection_context import DirCondition
from cleaner.storage.log_dir import LogDir

_NANOS_PER_MILLI = 1_000_000


@dataclass(frozen=True)
class RetentionTarget:
    """
    A log dir as retention sees it.

    Attributes:
        log_dir: the object workers use too.
        look: the last one; None: not looked at yet.
        lock: see `retention_pass.Lock`.
    """

    log_dir: LogDir
    look: DirLook | None
    lock: Lock


class RetentionLoop:
    """
    The loop, for one thread; `wake` may be called from any.

    Args:
        clock: its monotonic clock times passes and removals.
        retention: makes the passes.
        targets: called at every turn.
        config: returns the settings in force; called at every turn.
        failed: called with a log dir whose pass or removal failed, and why; both are tried again.
    """

    def __init__(
        self,
        clock: Clock,
        retention: RetentionPass,
        *,
        targets: Callable[[], Sequence[RetentionTarget]],
        config: Callable[[], CleanerConfig],
        failed: Callable[[LogDir, CleanerError], None],
    ) -> None:
        self._clock = clock
        self._retention = retention
        self._targets = targets
        self._config = config
        self._failed = failed
        self._wake = concurrency.Event()
        self._next_pass_ns = clock.monotonic_ns() + config().initial_task_delay_ms * _NANOS_PER_MILLI
        self._removals_not_before_ns = 0

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Loop until told to stop; a running pass ends at the next log."""
        while not is_stopping():
            try:
                seconds = self.turn()
            except CleaningAborted:
                continue
            self._wake.wait(seconds)
            self._wake.clear()

    def wake(self) -> None:
        """End a wait: to stop, or because settings have changed."""
        self._wake.set()

    def turn(self) -> float:
        """
        Do what is due; returns the seconds until something is due again.

        Raises:
            CleaningAborted: asked to stop.
        """
        config, targets = self._config(), self._targets()
        if self._clock.monotonic_ns() >= self._next_pass_ns:
            if config.retention_enable:
                self._make_passes(targets, config)
            self._next_pass_ns = self._clock.monotonic_ns() + config.retention_check_interval_ms * _NANOS_PER_MILLI
        if self._clock.monotonic_ns() >= self._removals_not_before_ns:
            self._remove(targets)
            if self._is_removal_due():
                # Its log dir is locked, offline, or no longer among the targets.
                self._removals_not_before_ns = self._clock.monotonic_ns() + config.backoff_ms * _NANOS_PER_MILLI
        now_ns, removal_ns = self._clock.monotonic_ns(), self._retention.next_removal_ns
        wakes = [self._next_pass_ns]
        if removal_ns is not None:
            wakes.append(max(removal_ns, self._removals_not_before_ns))
        return max(0, min(wakes) - now_ns) / 1e9

    def _is_removal_due(self) -> bool:
        removal_ns = self._retention.next_removal_ns
        return removal_ns is not None and removal_ns <= self._clock.monotonic_ns()

    def _make_passes(self, targets: Sequence[RetentionTarget], config: CleanerConfig) -> None:
        for target in targets:
            look = target.look
            if look is None or look.needs_recovery or look.facts.condition is not DirCondition.ONLINE:
                continue  # status shows its condition; a log dir that cannot be worked on has no retention either
            try:
                self._retention.run(
                    target.log_dir,
                    look.logs,
                    target.lock,
                    producer_id_expiration_ms=config.producer_id_expiration_ms,
                )
            except CleaningAborted:
                raise
            except CleanerError as error:
                self._failed(target.log_dir, error)

    def _remove(self, targets: Sequence[RetentionTarget]) -> None:
        """Remove the files that are due; files that cannot be removed now stay due."""
        for target in targets:
            try:
                self._retention.remove_due(target.log_dir, target.lock)
            except CleanerError as error:
                self._failed(target.log_dir, error)


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
        tools: the same that rounds use.
        manager: knows which logs are free.
        config: returns the settings in force.
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


@contextlib.contextmanager
def _locked(locks: DirLocks, path: Path) -> Iterator[Callable[[], None]]:
    with locks.using(path) as lock:
        yield lock.still_held
