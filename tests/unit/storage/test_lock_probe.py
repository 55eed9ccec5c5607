"""The probe finds the holder of a log dir's lock, and disturbs no process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.lock_probe import LockHolder, LockReport, probe
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock, acquire_for_cleaning, acquire_for_writing
from cleaner.storage.lock.partition_lock import partition_lock
from tests.support.manual_clock import ManualClock

FS = FileSystem()
EXCLUSIVE, SHARED = LockMode.EXCLUSIVE, LockMode.SHARED
CLEANER, WRITER = LockRole.CLEANER, LockRole.WRITER

HOLD = """
import sys
from pathlib import Path
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
lock = LogDirLock(FileSystem(), Path(sys.argv[1]), LockMode(sys.argv[2]), LockRole[sys.argv[3]])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Callable[[LockMode, LockRole], None]]:
    """Start other processes that hold the lock until the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def hold(mode: LockMode, role: LockRole) -> None:
        command = [sys.executable, "-c", HOLD, str(tmp_path), mode.value, role.name]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

    yield hold
    for process in started:
        process.communicate()


def test_probe_of_a_log_dir_without_lock_file_leaves_none(tmp_path: Path) -> None:
    """A probe leaves no trace."""
    assert probe(FS, tmp_path) == LockReport()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        pytest.param([(SHARED, WRITER)], LockReport(has_writer=True), id="writer"),
        pytest.param([(SHARED, CLEANER)], LockReport(LockHolder.CLEANER), id="cleaner"),
        pytest.param([(SHARED, CLEANER), (SHARED, WRITER)], LockReport(LockHolder.CLEANER, has_writer=True), id="both"),
        pytest.param([(EXCLUSIVE, CLEANER)], LockReport(LockHolder.ALONE), id="exclusive"),
    ],
)
def test_probe_tells_which_of_our_roles_holds_it(
    tmp_path: Path,
    others: Callable[[LockMode, LockRole], None],
    holders: list[tuple[LockMode, LockRole]],
    expected: LockReport,
) -> None:
    """Cleaners are obstacles, a writer is not; each is recognized by its own byte."""
    for mode, role in holders:
        others(mode, role)
    assert probe(FS, tmp_path) == expected


@pytest.mark.parametrize("mode", list(LockMode), ids=lambda mode: mode.value)
def test_probe_does_not_count_a_lock_of_this_process(tmp_path: Path, mode: LockMode) -> None:
    """A worker's own lock does not keep the daemon out, and the probe does not drop it."""
    with LogDirLock(FS, tmp_path, mode) as lock:
        assert probe(FS, tmp_path) == LockReport()
        lock.still_held()
        with pytest.raises(LogDirLockedError):
            LogDirLock(FS, tmp_path, mode)
    assert probe(FS, tmp_path) == LockReport()


def test_probe_sees_a_writer_alongside_a_lock_of_this_process(
    tmp_path: Path, others: Callable[[LockMode, LockRole], None]
) -> None:
    """While a round runs, a writer that came later is seen too."""
    with LogDirLock(FS, tmp_path, SHARED, CLEANER):
        others(SHARED, WRITER)
        assert probe(FS, tmp_path) == LockReport(has_writer=True)


def test_probe_reports_a_writer_that_loads_its_logs(tmp_path: Path) -> None:
    """Until it has loaded them, a writer keeps a cleaner out; then it does not."""
    with acquire_for_writing(FS, tmp_path, ManualClock(), patience_ms=0) as writer:
        assert probe(FS, tmp_path) == LockReport(LockHolder.LOADING, has_writer=True)
        writer.logs.admit_cleaner()
        assert probe(FS, tmp_path) == LockReport(has_writer=True)


def test_probe_is_not_misled_by_a_round(tmp_path: Path) -> None:
    """A cleaner of this process that has the logs alone, and a partition's lock, is no obstacle."""
    with (
        acquire_for_cleaning(FS, tmp_path),
        partition_lock(FS, tmp_path, TopicPartition("orders", 0), ManualClock()),
    ):
        assert probe(FS, tmp_path) == LockReport()


def test_probe_after_a_refused_attempt_tells_the_truth(
    tmp_path: Path, others: Callable[[LockMode, LockRole], None]
) -> None:
    """A lock that was requested and refused is not ours."""
    others(SHARED, CLEANER)
    with pytest.raises(LogDirLockedError):
        LogDirLock(FS, tmp_path, SHARED, CLEANER)
    assert probe(FS, tmp_path).holder is LockHolder.CLEANER
