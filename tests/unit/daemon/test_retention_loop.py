"""When passes are made and files removed: at intervals, next to workers, and again after failures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.retention_loop import RetentionLoop, RetentionTarget
from cleaner.daemon.retention_pass import Lock, RetentionPass
from cleaner.errors import CleanerError, CleaningAborted, LogDirLockedError
from cleaner.policy.selection_context import DirCondition, LogDirFacts
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir
from tests.support.manual_clock import ManualClock

CONFIG = CleanerConfig(
    retention_enable=True, initial_task_delay_ms=30_000, retention_check_interval_ms=300_000, backoff_ms=15_000
)


class FakePass(RetentionPass):
    """Notes the passes asked for; files wait until `due_s`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.passes: list[tuple[float, str]] = []
        self.removals: list[float] = []
        self.due_s: float | None = None
        self.errors: list[Exception] = []

    @property
    def next_removal_ns(self) -> int | None:
        """Return when files may go."""
        return None if self.due_s is None else round(self.due_s * 1e9)

    def run(self, log_dir: LogDir, logs: Sequence[LogStatus], lock: Lock, *, producer_id_expiration_ms: int = 0) -> int:
        """Note, and fail if told to."""
        self.passes.append((self.clock.monotonic_ns() / 1e9, log_dir.path.name))
        if self.errors:
            raise self.errors.pop(0)
        return 0

    def remove_due(self, log_dir: LogDir, lock: Lock) -> int:
        """Note, and fail if told to."""
        if self.due_s is None or self.due_s > self.clock.monotonic_ns() / 1e9:
            return 0
        self.removals.append(self.clock.monotonic_ns() / 1e9)
        if self.errors:
            raise self.errors.pop(0)
        self.due_s = None
        return 1


class Turned:
    """A loop over log dirs, turned by hand."""

    def __init__(self, tmp_path: Path, **conditions: DirCondition) -> None:
        self.clock = ManualClock()
        self.retention = FakePass(self.clock)
        self.config = CONFIG
        self.failures: list[str] = []
        self.targets = [
            RetentionTarget(LogDir(FileSystem(), tmp_path / name), DirLook(LogDirFacts(condition)), None)  # type: ignore[arg-type]
            for name, condition in (conditions or {"one": DirCondition.ONLINE}).items()
        ]
        self.loop = RetentionLoop(
            self.clock,
            self.retention,
            targets=lambda: self.targets,
            config=lambda: self.config,
            failed=lambda log_dir, error: self.failures.append(f"{log_dir.path.name}: {error}"),
        )

    def turn_until(self, seconds: float) -> list[float]:
        """Turn, waiting as long as the loop says; returns the waits."""
        waits = []
        while self.clock.monotonic_ns() < seconds * 1e9:
            waits.append(self.loop.turn())
            self.clock.move_on(waits[-1])
        return waits


def test_passes_come_after_the_first_delay_and_then_at_intervals(tmp_path: Path) -> None:
    """`log.initial.task.delay.ms`, then every `log.retention.check.interval.ms`; in between it sleeps."""
    turned = Turned(tmp_path)
    waits = turned.turn_until(900)
    assert [when for when, _ in turned.retention.passes] == [30, 330, 630]
    assert waits == [30, 300, 300, 300]


def test_pass_leaves_out_log_dirs_that_cannot_be_worked_on(tmp_path: Path) -> None:
    """Only online ones; none before the first look, or if a round must recover first."""
    turned = Turned(tmp_path, **{condition.name: condition for condition in DirCondition})
    waiting = DirLook(needs_recovery=True)
    turned.targets += [
        RetentionTarget(LogDir(FileSystem(), tmp_path / "torn"), waiting, None),  # type: ignore[arg-type]
        RetentionTarget(LogDir(FileSystem(), tmp_path / "new"), None, None),  # type: ignore[arg-type]
    ]
    turned.turn_until(31)
    assert turned.retention.passes == [(30, "ONLINE")]


def test_no_pass_while_retention_is_not_enabled(tmp_path: Path) -> None:
    """Off by default; switched on while running it begins at the next interval."""
    turned = Turned(tmp_path)
    turned.config = CleanerConfig(initial_task_delay_ms=30_000, retention_check_interval_ms=300_000)
    turned.turn_until(600)
    assert turned.retention.passes == []
    turned.config = CONFIG
    turned.turn_until(700)
    assert turned.retention.passes == [(630, "one")]


def test_failure_of_one_log_dir_does_not_keep_the_next_from_its_pass(tmp_path: Path) -> None:
    """It is reported, and tried again at the next interval."""
    turned = Turned(tmp_path, one=DirCondition.ONLINE, two=DirCondition.ONLINE)
    turned.retention.errors = [LogDirLockedError("in use")]
    turned.turn_until(331)
    assert turned.retention.passes == [(30, "one"), (30, "two"), (330, "one"), (330, "two")]
    assert turned.failures == ["one: in use"]


def test_files_are_removed_when_their_time_has_come(tmp_path: Path) -> None:
    """Whatever the interval of passes."""
    turned = Turned(tmp_path)
    turned.retention.due_s = 77.5
    turned.turn_until(100)
    assert turned.retention.removals == [77.5]


def test_removal_that_has_to_wait_is_tried_again_after_a_while(tmp_path: Path) -> None:
    """A locked log dir is asked each backoff, not without a break; so is one that is not ours any more."""
    turned = Turned(tmp_path)
    turned.config = CleanerConfig(backoff_ms=15_000)
    turned.retention.due_s = 40
    turned.retention.errors = [LogDirLockedError("in use"), CleanerError("the disk")]
    turned.turn_until(100)
    assert turned.retention.removals == [40, 55, 70]
    assert turned.failures == ["one: in use", "one: the disk"]
    turned.retention.due_s = 110
    turned.targets = []
    waits = turned.turn_until(2_000)
    assert len(waits) < 2_000 / 15


def test_run_ends_when_told_to_stop(tmp_path: Path) -> None:
    """Within a wait, when it is woken; and out of a pass that gives up for it."""
    turned = Turned(tmp_path)
    turned.config = CleanerConfig(retention_enable=True, initial_task_delay_ms=0)
    turned.loop = RetentionLoop(
        turned.clock,
        turned.retention,
        targets=lambda: turned.targets,
        config=lambda: turned.config,
        failed=lambda _log_dir, _error: None,
    )
    turned.retention.errors = [CleaningAborted("asked to stop")]
    stop = threading.Event()
    thread = threading.Thread(target=turned.loop.run, args=(stop.is_set,))
    thread.start()
    stop.set()
    turned.loop.wake()
    thread.join(timeout=30)
    assert not thread.is_alive()
