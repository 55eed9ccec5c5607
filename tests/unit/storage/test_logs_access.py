"""Who has the logs of a log dir: a cleaner without a writer, a writer that loads them, or both together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import (
    LockMode,
    LockRole,
    LogDirLock,
    acquire_for_cleaning,
    acquire_for_writing,
)
from tests.support.manual_clock import ManualClock

FS = FileSystem()


@pytest.fixture
def held() -> Iterator[Callable[[LogDirLock], LogDirLock]]:
    """Release the locks that a test leaves."""
    with ExitStack() as stack:
        yield stack.enter_context


def begin_writing(log_dir: Path, patience_ms: int = 0) -> LogDirLock:
    """Lock for a writer that has not loaded its logs yet."""
    return acquire_for_writing(FS, log_dir, ManualClock(), patience_ms=patience_ms)


def test_cleaner_without_writer_has_the_logs_alone(tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]) -> None:
    """A round in a log dir without a writer is not alongside one, and no writer gets the logs during it."""
    lock = held(acquire_for_cleaning(FS, tmp_path))
    assert not lock.is_beside_writer
    with pytest.raises(LogDirLockedError, match="a cleaner did not release the logs within 5 ms") as refused:
        begin_writing(tmp_path, patience_ms=5)
    assert not lock.logs.is_writer_waiting()
    lock.release()
    begin_writing(tmp_path).release()
    assert refused.tb is not None  # which still has the lock object: it was released, and not only forgotten


def test_cleaner_alongside_a_loading_writer_is_refused_until_admitted(
    tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]
) -> None:
    """While a writer recovers its logs no round begins; later rounds run alongside it."""
    writer = held(begin_writing(tmp_path))
    with pytest.raises(LogDirLockedError, match="a writer is loading the logs"):
        acquire_for_cleaning(FS, tmp_path)
    writer.logs.admit_cleaner()
    assert held(acquire_for_cleaning(FS, tmp_path)).is_beside_writer


def test_refused_round_leaves_the_log_dir_unlocked(tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]) -> None:
    """A cleaner that did not get the logs does not keep the cleaner's byte locked."""
    writer = held(begin_writing(tmp_path))
    with pytest.raises(LogDirLockedError):
        acquire_for_cleaning(FS, tmp_path)
    held(LogDirLock(FS, tmp_path, LockMode.SHARED, LockRole.CLEANER)).release()
    writer.release()
    LogDirLock(FS, tmp_path).release()


def test_rounds_see_a_waiting_writer_which_gets_the_logs_when_they_end(tmp_path: Path) -> None:
    """The writer does not wait for the end of a round: the round sees the writer wait, and gives way."""
    cleaner = acquire_for_cleaning(FS, tmp_path)

    class GivesWayAsleep(ManualClock):
        """The cleaner notices it while the writer sleeps."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 3:
                assert cleaner.logs.is_writer_waiting()
                with pytest.raises(LogDirLockedError, match="a writer is about to load"):
                    cleaner.logs.enter()
                cleaner.logs.leave()

    clock = GivesWayAsleep()
    with acquire_for_writing(FS, tmp_path, clock, patience_ms=60_000) as writer:
        assert len(clock.slept) == 3
        assert not cleaner.logs.is_writer_waiting()
        with pytest.raises(LogDirLockedError, match="a writer is loading"):
            cleaner.logs.enter()
        writer.logs.admit_cleaner()
        assert cleaner.logs.enter() is True
    cleaner.release()


def test_lock_kept_between_rounds_lets_a_writer_in(tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]) -> None:
    """A cleaner that keeps the log dir without a running round does not block a writer, and decides again each time."""
    cleaner = held(acquire_for_cleaning(FS, tmp_path))
    cleaner.logs.leave()
    writer = begin_writing(tmp_path)
    writer.logs.admit_cleaner()
    assert cleaner.logs.enter() is True
    cleaner.logs.leave()
    writer.release()
    assert cleaner.logs.enter() is False


def test_rounds_at_the_same_time_share_the_side_of_the_first(
    tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]
) -> None:
    """The last round releases the logs; a round that joins does not change the mode of the others."""
    cleaner = held(acquire_for_cleaning(FS, tmp_path))
    assert cleaner.logs.enter() is False
    cleaner.logs.leave()
    with pytest.raises(LogDirLockedError):
        begin_writing(tmp_path)
    cleaner.logs.leave()
    begin_writing(tmp_path).release()
    with pytest.raises(ValueError, match="no round"):
        cleaner.logs.leave()


def test_writer_that_died_leaves_its_successor_to_wait_for_rounds(tmp_path: Path) -> None:
    """A round alongside a writer outlives it; the next writer waits until the round gives way, as for any other."""
    first = begin_writing(tmp_path)
    first.logs.admit_cleaner()
    cleaner = acquire_for_cleaning(FS, tmp_path)
    first.release()
    assert cleaner.is_beside_writer
    with pytest.raises(LogDirLockedError):
        begin_writing(tmp_path)
    cleaner.release()
    begin_writing(tmp_path).release()


def test_second_writer_is_refused_before_it_waits(tmp_path: Path, held: Callable[[LogDirLock], LogDirLock]) -> None:
    """A second writer is refused at once, not after its patience."""
    held(begin_writing(tmp_path))
    clock = ManualClock()
    with pytest.raises(LogDirLockedError, match="locked by another writer"):
        acquire_for_writing(FS, tmp_path, clock, patience_ms=60_000)
    assert clock.slept == []


def test_exclusive_lock_has_the_logs_without_more(tmp_path: Path) -> None:
    """An exclusive holder of the log dir neither waits nor blocks others."""
    with LogDirLock(FS, tmp_path) as lock:
        assert lock.logs.enter() is False
        assert not lock.logs.is_writer_waiting()
        lock.logs.wait_to_load(ManualClock(), 0)
        lock.logs.admit_cleaner()
        lock.logs.leave()


def test_rounds_of_many_threads_are_counted_right(tmp_path: Path) -> None:
    """In whatever order workers begin and end, the logs are free afterwards."""
    with acquire_for_cleaning(FS, tmp_path) as cleaner:

        def work() -> None:
            for _ in range(200):
                assert cleaner.logs.enter() is False
                cleaner.logs.leave()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cleaner.logs.leave()
        begin_writing(tmp_path).release()
