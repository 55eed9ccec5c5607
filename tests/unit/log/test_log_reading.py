"""The reading half of a log that is open for writing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from pathlib import Path

import numpy as np
import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import LogClosedError
from cleaner.log.log import Log
from cleaner.log.partition_writer import PartitionWriter
from cleaner.log.record import Record
from cleaner.read.view import Signal
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock, acquire_for_writing
from cleaner.storage.log_dir import LogDir
from tests.unit.log.writing import log_of

pytestmark = pytest.mark.kernels
PARTITION = TopicPartition("prices", 0)


def test_log_is_read_followed_and_restored(tmp_path: Path) -> None:
    """The writer itself says what is flushed, what is committed, and when it is closed."""
    fs, clock = FileSystem(), SystemClock()
    (tmp_path / str(PARTITION)).mkdir()
    lock = acquire_for_writing(fs, tmp_path, clock, patience_ms=0)
    writer = PartitionWriter.open(LogDir(fs, tmp_path), PARTITION, TopicConfig(), clock, was_closed=False)
    log = log_of(writer, clock)
    log.append([Record(b"a", b"1", timestamp_ms=10), Record(b"b", b"2", timestamp_ms=20)])
    assert list(log.read(0)) == []
    assert [record.value for record in log.read(0, until="end")] == [b"1", b"2"]
    log.flush()
    log.append([Record(b"a", None, timestamp_ms=30)])
    follower = log.follow(0)
    assert [record.offset for record in follower.poll()] == [0, 1]
    with log.latest() as latest:
        assert (latest.to_dict(), latest.next_offset) == ({b"a": b"1", b"b": b"2"}, 2)
    log.flush()
    assert [record.value for record in follower.poll()] == [None]
    with log.latest() as latest:
        assert (latest.to_dict(), latest.next_offset) == ({b"b": b"2"}, 3)
    assert np.concatenate([columns.timestamps_ms for columns in log.columns(0)]).tolist() == [10, 20, 30]
    assert [log.offset_for_time(ms) for ms in (0, 11, 30, 31)] == [0, 1, 2, None]
    log.close()
    assert list(follower) == []
    with pytest.raises(LogClosedError):
        log.read(0)
    lock.release()


def _opened(tmp_path: Path) -> tuple[LogDirLock, Log]:
    fs, clock = FileSystem(), SystemClock()
    (tmp_path / str(PARTITION)).mkdir()
    lock = acquire_for_writing(fs, tmp_path, clock, patience_ms=0)
    writer = PartitionWriter.open(LogDir(fs, tmp_path), PARTITION, TopicConfig(), clock, was_closed=False)
    log = log_of(writer, clock)
    log.append([Record(b"a", b"1"), Record(b"b", b"2")])
    log.flush()
    return lock, log


def _descriptors() -> int:
    gc.collect()  # objects that earlier tests have left
    return len(list(Path("/proc/self/fd").iterdir()))


def test_followers_and_states_that_are_dropped_leave_no_descriptor_open(tmp_path: Path) -> None:
    """Each way to drop one without closing it, a few times; a ResourceWarning reports it."""
    lock, log = _opened(tmp_path)

    async def first() -> Record:
        async for record in log.follow(0):
            return record
        raise AssertionError("there is one")

    def leave_all() -> None:
        for _ in log.follow(0):
            break
        asyncio.run(first())
        log.latest()
        log.follow(0).poll()
        next(iter(log.read(0)))
        with contextlib.suppress(ZeroDivisionError), log.follow(0) as follower:
            next(follower)
            raise ZeroDivisionError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        leave_all()
        before = _descriptors()
        for _ in range(5):
            leave_all()
        assert _descriptors() <= before
    with pytest.warns(ResourceWarning, match="without being closed"):
        log.follow(0).poll()
    with pytest.warns(ResourceWarning):
        log.latest()
    log.close()
    lock.release()


def test_follower_after_its_timeout_holds_no_file_open_and_goes_on(tmp_path: Path) -> None:
    """A caller that iterates until no more records come seldom closes it."""
    lock, log = _opened(tmp_path)
    before = _descriptors()
    follower = log.follow(0, timeout_seconds=0)
    assert [record.value for record in follower] == [b"1", b"2"]
    assert _descriptors() <= before
    log.append([Record(b"c", b"3")])
    log.flush()
    assert [record.value for record in follower] == [b"3"]
    log.close()
    lock.release()


def test_signal_is_reentrant_while_it_notifies() -> None:
    """A signal handler that appends, or the collector that drops a follower, may run at any moment."""
    signal, heard = Signal(), []

    class Dropped:
        def __init__(self) -> None:
            self.stop = signal.listen(lambda: None)

        def __del__(self) -> None:
            self.stop()

    def drop() -> None:
        heard.append(1)
        Dropped()
        if len(heard) < 3:
            signal.notify()

    signal.listen(drop)
    with signal._lock:
        signal.notify()
    assert (len(heard), signal.version) == (3, 3)
