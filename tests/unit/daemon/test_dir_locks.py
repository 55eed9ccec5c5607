"""The locks of log dirs, shared by the workers of one process: R-111, D-01, C-4."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.daemon.dir_locks import DirLocks
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock, acquire_for_writing

FS = FileSystem()


def is_free(log_dir: Path) -> bool:
    """Tell whether another process could take the log dir."""
    try:
        LogDirLock(FS, log_dir).release()
    except LogDirLockedError:
        return False
    return True


def test_lock_is_held_until_the_last_worker_leaves(tmp_path: Path) -> None:
    """Two workers in one log dir share it."""
    locks = DirLocks(FS, holds=False)
    with locks.using(tmp_path) as first:
        with locks.using(tmp_path) as second:
            assert first is second
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_held_lock_stays_between_rounds(tmp_path: Path) -> None:
    """With cleaner.lock=hold, until the end."""
    locks = DirLocks(FS, holds=True)
    with locks.using(tmp_path):
        pass
    assert not is_free(tmp_path)
    locks.release_all()
    assert is_free(tmp_path)


def test_held_lock_that_was_lost_is_taken_again(tmp_path: Path) -> None:
    """A broker that stopped in between has deleted the file."""
    locks = DirLocks(FS, holds=True)
    with locks.using(tmp_path):
        pass
    (tmp_path / ".lock").unlink()
    with locks.using(tmp_path) as lock:
        lock.still_held()
        assert not is_free(tmp_path)


def test_lock_of_another_process_is_refused_each_time(tmp_path: Path) -> None:
    """And is free for us when they leave."""
    locks = DirLocks(FS, holds=False)
    with LogDirLock(FS, tmp_path), pytest.raises(LogDirLockedError), locks.using(tmp_path):
        raise AssertionError("two holders")
    with locks.using(tmp_path):
        assert not is_free(tmp_path)


def test_recovery_is_alone(tmp_path: Path) -> None:
    """Not while another worker of this process has it; afterwards the lock is released."""
    locks = DirLocks(FS, holds=False)
    with (
        locks.using(tmp_path),
        pytest.raises(LogDirLockedError, match="this process is at work"),
        locks.exclusive(tmp_path),
    ):
        raise AssertionError("not alone")
    with locks.exclusive(tmp_path):
        with pytest.raises(LogDirLockedError, match="being recovered"), locks.using(tmp_path):
            raise AssertionError("not alone")
        with pytest.raises(LogDirLockedError, match="this process is at work"), locks.exclusive(tmp_path):
            raise AssertionError("not alone")
    assert is_free(tmp_path)


@pytest.mark.parametrize("holds", [False, True], ids=["round", "hold"])
def test_writer_gets_the_logs_when_the_last_round_has_ended(tmp_path: Path, holds: bool) -> None:
    """While it asks no worker joins those at work, or there might always be one; a lock that is held is no obstacle."""
    locks = DirLocks(FS, holds=holds)
    with locks.using(tmp_path) as lock:
        writing = threading.Thread(target=lambda: writers.append(_writer(tmp_path)), daemon=True)
        writers: list[LogDirLock] = []
        writing.start()
        moment, until = threading.Event(), time.monotonic() + 20
        while not lock.logs.is_writer_waiting():
            assert time.monotonic() < until
            moment.wait(0.001)
        with pytest.raises(LogDirLockedError, match="writer is about to load"), locks.using(tmp_path):
            raise AssertionError("joined")
    writing.join(20)
    (writer,) = writers
    with pytest.raises(LogDirLockedError, match="writer is loading"), locks.using(tmp_path):
        raise AssertionError("in the middle of loading")
    writer.logs.admit_cleaner()
    with locks.using(tmp_path) as lock:
        assert lock.is_beside_writer
    writer.release()
    with locks.using(tmp_path) as lock:
        assert not lock.is_beside_writer
    locks.release_all()
    assert is_free(tmp_path)


def _writer(log_dir: Path) -> LogDirLock:
    return acquire_for_writing(FS, log_dir, SystemClock(), patience_ms=20_000)


def test_lock_that_is_kept_is_never_given_up(tmp_path: Path) -> None:
    """While it is, we know in which state the logs are; a lock that was lost in between is no longer kept."""
    locks = DirLocks(FS, holds=False)
    with pytest.raises(ValueError, match="not locked"):
        locks.keep(tmp_path)
    with locks.exclusive(tmp_path):
        locks.keep(tmp_path)
    with locks.using(tmp_path):
        pass
    assert locks.is_kept(tmp_path)
    assert not is_free(tmp_path)
    (tmp_path / ".lock").unlink()
    with locks.using(tmp_path):
        assert not locks.is_kept(tmp_path)
    locks.release_all()
    assert is_free(tmp_path)
