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

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from cleaner.clock import Clock
from cleaner.errors import LogChangedError, LogDirLockedError
from cleaner.model import TopicPartition
from cleaner.storage import names
from cleaner.storage.byte_ranges import READ, WRITE, try_lock, unlock
from cleaner.storage.fs import File, FileSystem
from cleaner.storage.lock_bytes import CHECKPOINT_BYTE, FIRST_PARTITION_BYTE, slot_of
from cleaner.storage.waiting import go_on, wait_until

PATIENCE_MS = 30_000
"""A swap or a roll takes a dozen fsyncs; a disk on which those take longer has other troubles."""

_this_thread = threading.local()


@contextlib.contextmanager
def partition_lock(
    fs: FileSystem,
    log_dir: Path,
    topic_partition: TopicPartition,
    clock: Clock,
    *,
    shared: bool = False,
    check_done: Callable[[], None] = go_on,
    patience_ms: int = PATIENCE_MS,
) -> Iterator[None]:
    """
    Hold a partition's lock for the length of a `with` block.

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
        LogChangedError: somebody else held it all the time.
        LogDirLockedError: the lock file is gone: the log dir belongs to somebody else now.
    """
    byte = FIRST_PARTITION_BYTE + slot_of(topic_partition)
    refusal = f"{log_dir / str(topic_partition)}: in use by another process for {patience_ms} ms"
    wait = partial(wait_until, clock=clock, patience_ms=patience_ms, check_done=check_done)
    with (
        _one_at_a_time(topic_partition),
        _opened(fs, log_dir, write=not shared) as file,
        _held(file, byte, READ if shared else WRITE, wait, refusal),
    ):
        yield


@contextlib.contextmanager
def checkpoint_lock(
    fs: FileSystem, log_dir: Path, clock: Clock, *, check_done: Callable[[], None] = go_on
) -> Iterator[None]:
    """
    Hold the right to change `cleaner-offset-checkpoint`, which holds lines of all partitions: read, change, write.

    A partition's lock may be held already; not the other way round.

    Raises:
        LogChangedError, LogDirLockedError: as `partition_lock`.
    """
    refusal = f"{log_dir / names.CLEANER_CHECKPOINT}: another process changes it and does not end"
    wait = partial(wait_until, clock=clock, patience_ms=PATIENCE_MS, check_done=check_done)
    with _opened(fs, log_dir, write=True) as file, _held(file, CHECKPOINT_BYTE, WRITE, wait, refusal):
        yield


@contextlib.contextmanager
def _one_at_a_time(topic_partition: TopicPartition) -> Iterator[None]:
    holds = getattr(_this_thread, "holds", None)
    if holds is not None:
        raise RuntimeError(f"this thread holds the lock of {holds} and asks for that of {topic_partition}")
    _this_thread.holds = topic_partition
    try:
        yield
    finally:
        _this_thread.holds = None


@contextlib.contextmanager
def _opened(fs: FileSystem, log_dir: Path, *, write: bool) -> Iterator[File]:
    path = log_dir / names.LOCK
    try:
        file = fs.open(path, write=write)
    except FileNotFoundError as error:
        raise LogDirLockedError(f"{path}: deleted; another process may use the log dir now") from error
    with file:
        yield file


@contextlib.contextmanager
def _held(file: File, byte: int, kind: int, wait: Callable[[Callable[[], bool]], bool], refusal: str) -> Iterator[None]:
    """Hold a byte of the lock file; `wait` tells whether it became free in time."""
    if not wait(lambda: try_lock(file, kind, byte, 1)):
        raise LogChangedError(refusal)
    try:
        yield
    finally:
        # Closing alone would not do if a forked child still had the descriptor.
        unlock(file, byte, 1)
