"""
The lock of one partition, between cleaner, writer and readers, be they processes or threads.

It is held while names in a partition's directory change: by the cleaner while it swaps a group or settles a crash, by
the writer while it loads, rolls, cuts, deletes segments or snapshots; and shared by readers while they list and open
segments. It is never held while data is copied, throttled or waited for, so that no one waits for long.

It is one byte of `.lock` (`lock_bytes.slot_of`), locked through its own opening of the file: so two threads of one
process exclude each other as two processes do, and the lock ends with its holder, even if that is killed. Nothing is
left behind. A broker keeps all others out: a JVM's lock covers the byte.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, LogDirLockedError
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.lock.byte_ranges import READ, WRITE, try_lock
from cleaner.storage.lock.lock_bytes import CHECKPOINT_BYTE, FIRST_PARTITION_BYTE, slot_of
from cleaner.storage.lock.waiting import go_on, wait_until
from cleaner.storage.segment import names

PATIENCE_MS = 30_000
"""A swap or a roll takes a dozen fsyncs; a disk on which those take longer has other problems."""

_this_thread = concurrency.local()


class HeldByte(io.FileIO):
    """
    One byte of a log dir's lock file, locked for the length of a `with` block.

    It is a `FileIO` because of its `__exit__`: compiled code leaves the block and closes the file. In a Python method,
    an interrupt could come at the first line, and the byte would stay locked.

    Args:
        fs: the file system.
        log_dir: the log dir, links followed.
        byte: the byte's number.
        kind: `READ` or `WRITE`.
        wait: waits until a condition holds; returns False if it does not in time.
        refusal: the error message in that case.
        partition: the partition it locks; a thread holds one such lock at a time. None: it is not a partition's lock.
    """

    def __new__(cls, *_: object, **__: object) -> HeldByte:
        """Create the object without a file yet."""
        return super().__new__(cls)

    def __init__(
        self,
        fs: FileSystem,
        log_dir: Path,
        byte: int,
        kind: int,
        wait: Callable[[Callable[[], bool]], bool],
        refusal: str,
        partition: TopicPartition | None = None,
    ) -> None:
        self.partition = partition
        self._fs = fs
        self.path = log_dir / names.LOCK
        self._byte = byte
        self._kind = kind
        self._wait = wait
        self._refusal = refusal

    def __enter__(self) -> HeldByte:
        if self.partition is not None:
            held = _held_by_this_thread()
            if held is not None:
                # A signal handler in the middle of another call, or an internal error.
                reason = f"this thread holds the lock of {held} and asks for that of {self.partition}"
                raise LogChangedError(f"{self.path.parent / str(self.partition)}: {reason}")
        file = self._opened()
        try:
            # Before locking: an interrupt between these two calls leaks a descriptor without a lock.
            with disk_errors(self.path):
                super().__init__(os.dup(file.fileno()), "rb+" if self._kind == WRITE else "rb")
            file.close()
            if not self._wait(lambda: try_lock(self, self._kind, self._byte, 1)):
                raise LogChangedError(self._refusal)
            if self.partition is not None:
                _this_thread.held = weakref.ref(self)
        except BaseException:
            file.close()
            self.release()
            raise
        return self

    def release(self) -> None:
        """Unlock; a second call does nothing."""
        if not self.closed:
            self.close()

    def _opened(self) -> File:
        try:
            return self._fs.open(self.path, write=self._kind == WRITE)
        except FileNotFoundError as error:
            raise LogDirLockedError(f"{self.path}: deleted; another process may use the log dir now") from error


def _held_by_this_thread() -> TopicPartition | None:
    """Return the partition whose lock this thread holds; a lock object that was dropped no longer counts."""
    reference = getattr(_this_thread, "held", None)
    held = None if reference is None else reference()
    return None if held is None or held.closed else held.partition


def partition_lock(
    fs: FileSystem,
    log_dir: Path,
    topic_partition: TopicPartition,
    clock: Clock,
    *,
    shared: bool = False,
    check_done: Callable[[], None] = go_on,
    patience_ms: int = PATIENCE_MS,
) -> HeldByte:
    """
    Return a partition's lock, for a `with` block.

    A thread holds one at a time: partitions may share a byte, and a thread that waited for itself would wait forever.

    Args:
        fs: the file system.
        log_dir: the log dir, links followed; the caller holds its lock, or only reads.
        topic_partition: the partition to lock.
        clock: to wait by.
        shared: for callers that list and open; works on a read-only file system too.
        check_done: called while waiting; raises to stop.
        patience_ms: how long to wait.
    Raises:
        LogChangedError: on entering: another holder kept it all the time, or this thread already holds one.
        LogDirLockedError: on entering: the lock file is gone, so another process may use the log dir now.
    """
    byte = FIRST_PARTITION_BYTE + slot_of(topic_partition)
    refusal = f"{log_dir / str(topic_partition)}: in use by another process for {patience_ms} ms"
    wait = partial(wait_until, clock=clock, patience_ms=patience_ms, check_done=check_done)
    return HeldByte(fs, log_dir, byte, READ if shared else WRITE, wait, refusal, topic_partition)


def checkpoint_lock(fs: FileSystem, log_dir: Path, clock: Clock, *, check_done: Callable[[], None] = go_on) -> HeldByte:
    """
    Return the right to change `cleaner-offset-checkpoint`, which holds lines of all partitions: read, change, write.

    The caller may hold a partition's lock; with this lock held, no partition's lock may be taken.

    Raises:
        LogChangedError, LogDirLockedError: as `partition_lock`.
    """
    refusal = f"{log_dir / names.CLEANER_CHECKPOINT}: another process has been changing it for {PATIENCE_MS} ms"
    wait = partial(wait_until, clock=clock, patience_ms=PATIENCE_MS, check_done=check_done)
    return HeldByte(fs, log_dir, CHECKPOINT_BYTE, WRITE, wait, refusal)
