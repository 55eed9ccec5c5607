"""The locks of log dirs, shared by the workers of one process: R-111, D-01, R6."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.daemon.dir_locks import DirLocks
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs import FileSystem
from cleaner.storage.locks import LogDirLock
from cleaner.testing.manual_clock import ManualClock

FS = FileSystem()


def is_free(log_dir: Path) -> bool:
    """Tell whether somebody else could take the log dir."""
    try:
        LogDirLock(FS, log_dir).release()
    except LogDirLockedError:
        return False
    return True


def test_lock_is_held_until_the_last_worker_leaves(tmp_path: Path) -> None:
    """Two workers in one log dir share it."""
    locks = DirLocks(FS, ManualClock(), holds=False)
    with locks.using(tmp_path) as first:
        with locks.using(tmp_path) as second:
            assert first is second
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    assert not locks.holds(tmp_path)


def test_held_lock_stays_between_rounds(tmp_path: Path) -> None:
    """With cleaner.lock=hold, until the end."""
    locks = DirLocks(FS, ManualClock(), holds=True)
    with locks.using(tmp_path):
        pass
    assert not is_free(tmp_path)
    locks.release_all()
    assert is_free(tmp_path)


def test_held_lock_that_was_lost_is_taken_anew(tmp_path: Path) -> None:
    """A broker that stopped meanwhile has deleted the file."""
    locks = DirLocks(FS, ManualClock(), holds=True)
    with locks.using(tmp_path):
        pass
    (tmp_path / ".lock").unlink()
    with locks.using(tmp_path) as lock:
        lock.still_held()
        assert not is_free(tmp_path)


def test_lock_that_somebody_has_is_refused_each_time(tmp_path: Path) -> None:
    """And is free for us when they leave."""
    locks = DirLocks(FS, ManualClock(), holds=False)
    with LogDirLock(FS, tmp_path), pytest.raises(LogDirLockedError), locks.using(tmp_path):
        raise AssertionError("two holders")
    with locks.using(tmp_path):
        assert locks.holds(tmp_path)


def test_recovery_is_alone(tmp_path: Path) -> None:
    """Not beside a worker of this process either; afterwards the lock is given up."""
    locks = DirLocks(FS, ManualClock(), holds=False)
    with (
        locks.using(tmp_path),
        pytest.raises(LogDirLockedError, match="this process is at work"),
        locks.alone(tmp_path),
    ):
        raise AssertionError("not alone")
    with locks.alone(tmp_path), locks.using(tmp_path) as lock:
        assert not lock.is_beside_writer
    assert is_free(tmp_path)


def test_lock_that_is_kept_is_never_given_up(tmp_path: Path) -> None:
    """While it is, we know in which state the logs are; a lock that was lost in between is no longer kept."""
    locks = DirLocks(FS, ManualClock(), holds=False)
    with pytest.raises(ValueError, match="not locked"):
        locks.keep(tmp_path)
    with locks.alone(tmp_path):
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
