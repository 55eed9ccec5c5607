"""The lock of one partition: it excludes threads and processes, waits with bounds, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CleaningAborted, LogChangedError, LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.lock_bytes import SLOTS, slot_of
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from cleaner.storage.lock.partition_lock import checkpoint_lock, partition_lock
from tests.support.manual_clock import ManualClock

FS = FileSystem()
ORDERS, PRICES = TopicPartition("orders", 0), TopicPartition("prices", 3)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir that was locked once."""
    LogDirLock(FS, tmp_path).release()
    return tmp_path


def is_free(log_dir: Path, topic_partition: TopicPartition, *, shared: bool = False) -> bool:
    """Try it in another thread: this one may hold another partition's lock."""
    found: list[bool] = []

    def ask() -> None:
        try:
            with partition_lock(FS, log_dir, topic_partition, ManualClock(), shared=shared, patience_ms=0):
                found.append(True)
        except LogChangedError:
            found.append(False)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


def test_partition_lock_keeps_other_threads_out_of_this_partition_only(log_dir: Path) -> None:
    """Two threads of one process exclude each other; other partitions are not affected."""
    assert slot_of(ORDERS) != slot_of(PRICES)
    with partition_lock(FS, log_dir, ORDERS, ManualClock()):
        assert not is_free(log_dir, ORDERS)
        assert not is_free(log_dir, ORDERS, shared=True)
        assert is_free(log_dir, PRICES)
    assert is_free(log_dir, ORDERS)


def test_shared_partition_lock_excludes_only_processes_that_change_files(log_dir: Path) -> None:
    """Readers list concurrently; a swap waits for them."""
    with partition_lock(FS, log_dir, ORDERS, ManualClock(), shared=True):
        assert is_free(log_dir, ORDERS, shared=True)
        assert not is_free(log_dir, ORDERS)


@pytest.mark.parametrize("mode", list(LockMode), ids=lambda mode: mode.value)
def test_partition_lock_does_not_conflict_with_the_lock_of_the_log_dir(log_dir: Path, mode: LockMode) -> None:
    """A holder of the log dir, exclusive or not, can lock its partitions too."""
    with LogDirLock(FS, log_dir, mode, LockRole.CLEANER):
        assert is_free(log_dir, ORDERS)


def test_partition_lock_of_a_killed_process_is_free(log_dir: Path) -> None:
    """A process killed while it holds the lock leaves nothing: no byte locked, no byte in the file."""
    program = (
        "import sys, time; from pathlib import Path; from cleaner.base.clock import SystemClock\n"
        "from cleaner.base.model import TopicPartition; from cleaner.storage.fs.file_system import FileSystem\n"
        "from cleaner.storage.lock.partition_lock import partition_lock\n"
        "with partition_lock(FileSystem(), Path(sys.argv[1]), TopicPartition('orders', 0), SystemClock()):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert not is_free(log_dir, ORDERS)
    holder.kill()
    holder.communicate()
    assert is_free(log_dir, ORDERS)
    assert (log_dir / ".lock").stat().st_size == 0
    assert [path.name for path in log_dir.iterdir()] == [".lock"]


def wait_in_a_thread(log_dir: Path, clock: ManualClock, check_done: Callable[[], None]) -> BaseException:
    """Wait for a lock that another thread holds; returns the resulting error."""
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            with partition_lock(FS, log_dir, ORDERS, clock, check_done=check_done, patience_ms=1000):
                raise AssertionError("locked by two")
        except BaseException as error:  # noqa: BLE001  the test checks it, whatever it is
            ended.append(error)

    with partition_lock(FS, log_dir, ORDERS, ManualClock()):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    return ended[0]


def test_partition_lock_waits_with_bounds_and_through_the_clock(log_dir: Path) -> None:
    """A lock that is never released is waited for up to the limit, in growing pauses."""
    clock = ManualClock()
    assert isinstance(wait_in_a_thread(log_dir, clock, lambda: None), LogChangedError)
    assert clock.slept[:3] == [0.0005, 0.001, 0.002]
    assert max(clock.slept) == 0.02
    assert 1.0 <= sum(clock.slept) < 1.05


def test_partition_lock_waiting_can_be_stopped(log_dir: Path) -> None:
    """A waiting thread can be stopped between two attempts."""

    def stop() -> None:
        raise CleaningAborted("stop")

    assert str(wait_in_a_thread(log_dir, ManualClock(), stop)) == "stop"


def test_partition_lock_is_one_to_a_thread(log_dir: Path) -> None:
    """A second one in the same thread is refused: it might wait for itself. A failure inside releases the lock."""
    with (
        pytest.raises(LogChangedError, match="holds the lock of orders-0 and asks for that of prices-3"),
        partition_lock(FS, log_dir, ORDERS, ManualClock()),
        partition_lock(FS, log_dir, PRICES, ManualClock()),
    ):
        pass
    with partition_lock(FS, log_dir, PRICES, ManualClock()):
        assert is_free(log_dir, ORDERS)


def test_partition_lock_without_lock_file_is_refused(tmp_path: Path) -> None:
    """A vanished lock file means that a broker stopped: nothing may be changed any more."""
    with pytest.raises(LogDirLockedError, match="deleted"), partition_lock(FS, tmp_path, ORDERS, ManualClock()):
        pass


def test_checkpoint_lock_excludes_itself_and_nothing_else(log_dir: Path) -> None:
    """It may be taken together with a partition's, by one holder at a time."""
    with partition_lock(FS, log_dir, ORDERS, ManualClock()), checkpoint_lock(FS, log_dir, ManualClock()):
        assert is_free(log_dir, PRICES)
        with pytest.raises(LogChangedError), checkpoint_lock(FS, log_dir, ManualClock()):
            pass


def test_slots_never_change() -> None:
    """Other processes, of other versions, use the same bytes."""
    assert (slot_of(ORDERS), slot_of(PRICES), SLOTS) == (52560, 13877, 65536)


@pytest.mark.parametrize("mode", list(LockMode), ids=lambda mode: mode.name.lower())
def test_holder_of_the_log_dir_can_take_all_others(tmp_path: Path, mode: LockMode) -> None:
    """An exclusive lock of the log dir does not block its holder's own swaps and checkpoints."""
    with (
        LogDirLock(FS, tmp_path, mode),
        partition_lock(FS, tmp_path, ORDERS, ManualClock(), patience_ms=0),
        checkpoint_lock(FS, tmp_path, ManualClock()),
    ):
        assert not is_free(tmp_path, ORDERS)
