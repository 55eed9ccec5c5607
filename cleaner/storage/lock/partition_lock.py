"""
The lock of one partition, between cleaner, writer and readers: processes and threads alike.

Held for as long as names in a partition's directory change: by the cleaner while it swaps a group or settles what a
crash left, by the writer while it loads, rolls, cuts, deletes segments or snapshots; and shared by readers while they
list and open segments. Never while anything is copied, throttled or waited for, so that nobody waits for long.

It is one byte of `.lock` (`lock_bytes.slot_of`), locked through an opening of the file of its own: so two threads of
one process exclude each other as two processes do, and it ends with its holder, however that ends. Nothing is left
behind. A broker keeps everybody out of it: a JVM's lock covers the byte.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, LogDirLockedError
from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.lock.byte_ranges import READ, WRITE, try_lock
from cleaner.storage.lock.lock_bytes import CHECKPOINT_BYTE, FIRST_PARTITION_BYTE, slot_of
from cleaner.storage.lock.waiting import go_on, wait_until
from cleaner.storage.segment import names

PATIENCE_MS = 30_000
"""A swap or a roll takes a dozen fsyncs; a disk on which those take longer has other troubles."""

_this_thread = threading.local()


class HeldByte(io.FileIO):
    """
    One byte of a log dir's lock file, locked for the length of a `with` block.

    A `FileIO` for the sake of its `__exit__`: the block is left by compiled code, which closes the file. An interrupt
    could come at the first line of a method of ours, and the byte would stay locked.

    Args:
        fs: the door to the file system.
        log_dir: the log dir, links followed.
        byte: which one.
        kind: `READ` or `WRITE`.
        wait: waits until a condition holds; False when it did not in time.
        refusal: the message if it did not.
        partition: whose lock it is; a thread holds one of those at a time. None: it is no partition's.
    """

    def __new__(cls, *_: object, **__: object) -> HeldByte:
        """Make one that has no file yet."""
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
                # A signal handler, in the middle of another call; or a mistake.
                reason = f"this thread holds the lock of {held} and asks for that of {self.partition}"
                raise LogChangedError(f"{self.path.parent / str(self.partition)}: {reason}")
        file = self._opened()
        try:
            # Before the lock is there: an interrupt between the two calls leaves a descriptor to nobody.
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
        """Give it back; a second call does nothing."""
        if not self.closed:
            self.close()

    def _opened(self) -> File:
        try:
            return self._fs.open(self.path, write=self._kind == WRITE)
        except FileNotFoundError as error:
            raise LogDirLockedError(f"{self.path}: deleted; another process may use the log dir now") from error


def _held_by_this_thread() -> TopicPartition | None:
    """Return whose lock this thread holds; one that was dropped, however that came, is not held any more."""
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

    A thread holds one at a time: partitions may share a byte, and a thread that waited for itself would wait for ever.

    Args:
        fs: the door to the file system.
        log_dir: the log dir, links followed; the caller holds its lock, or only reads.
        topic_partition: whose.
        clock: to wait by.
        shared: for those who list and open; a file system that is read only is enough then.
        check_done: asked while waiting; raises to stop.
        patience_ms: how long to wait.
    Raises:
        LogChangedError: on entering: somebody else held it all the time, or this thread holds one.
        LogDirLockedError: on entering: the lock file is gone: the log dir belongs to somebody else now.
    """
    byte = FIRST_PARTITION_BYTE + slot_of(topic_partition)
    refusal = f"{log_dir / str(topic_partition)}: in use by another process for {patience_ms} ms"
    wait = partial(wait_until, clock=clock, patience_ms=patience_ms, check_done=check_done)
    return HeldByte(fs, log_dir, byte, READ if shared else WRITE, wait, refusal, topic_partition)


def checkpoint_lock(fs: FileSystem, log_dir: Path, clock: Clock, *, check_done: Callable[[], None] = go_on) -> HeldByte:
    """
    Return the right to change `cleaner-offset-checkpoint`, which holds lines of all partitions: read, change, write.

    A partition's lock may be held already; not the other way round.

    Raises:
        LogChangedError, LogDirLockedError: as `partition_lock`.
    """
    refusal = f"{log_dir / names.CLEANER_CHECKPOINT}: another process changes it and does not end"
    wait = partial(wait_until, clock=clock, patience_ms=PATIENCE_MS, check_done=check_done)
    return HeldByte(fs, log_dir, CHECKPOINT_BYTE, WRITE, wait, refusal)
