"""
Generation numbers: how a reader learns that the segments it has open were replaced.

A swap replaces segments while readers have the old ones open. Their data stays correct (the kernel keeps the bytes of
an open file), but it includes records that are now gone, it takes room on the disk, and the next segment they expect
may not exist. So each partition has a number that a swap raises, in one small file of the log dir, eight bytes a slot
(`lock_bytes.slot_of`):

    a swap, under the partition's lock:    raise the number; rename
    a reader, under the same lock, shared: read the number; list and open the segments
    later, without a lock, at each read:   if the number changed, list and open again, and find the position by offset

The number is raised *before* the first rename: if the cleaner dies in between, the readers know already. They cannot
list too early, as listing waits for the lock, which the swap holds until all names are final. Partitions that share a
slot share its lock, so no change is lost when two of them change it.

Not durable: a number only has to outlive the readers who remember it, and they do not outlive the machine. After a
power cut the number may be an old one or missing, but no reader remembers it.

A reader creates the file before it first lists anything; without the file there are no readers.
A broker ignores plain files in a log dir (R-102).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.closing import Closing
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.lock_bytes import slot_of
from cleaner.storage.segment.names import GENERATIONS

_NUMBER_BYTES = 8


def raise_generation(fs: FileSystem, log_dir: Path, topic_partition: TopicPartition) -> None:
    """
    Notify readers that a partition's segments are about to be replaced; the caller has the partition's lock.

    Raises:
        LogDirOfflineError: the disk.
    """
    try:
        file = fs.open(log_dir / GENERATIONS, write=True)
    except FileNotFoundError:
        return
    with file:
        number = _read(file, topic_partition) + 1
        file.write(number.to_bytes(_NUMBER_BYTES, "little"), slot_of(topic_partition) * _NUMBER_BYTES)


def _read(file: File, topic_partition: TopicPartition) -> int:
    # Slots beyond the end were never raised.
    return int.from_bytes(file.read(_NUMBER_BYTES, slot_of(topic_partition) * _NUMBER_BYTES), "little")


class Generations(Closing):
    """
    The generation numbers of a log dir, for its readers; creates the file. Close it, or use it in a `with` block.

    Create it before listing the first segment. Safe to share between threads.

    Raises:
        LogDirOfflineError: the file cannot be opened or created.
    """

    def __init__(self, fs: FileSystem, log_dir: Path) -> None:
        path = log_dir / GENERATIONS
        try:
            self._file = fs.open(path)
        except FileNotFoundError:
            self._file = _make(fs, path)
        self._guard = concurrency.Lock()

    def of(self, topic_partition: TopicPartition) -> int:
        """
        Return the current number.

        Without the partition's lock it may be read in the middle of a change: then it differs from the old number, and
        the reader lists again as it should.
        """
        return _read(self._file, topic_partition)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._guard:
            self._file.close()


def _make(fs: FileSystem, path: Path) -> File:
    try:
        fs.create(path, like=path.parent).close()
    except LogDirOfflineError as error:
        if not isinstance(error.cause, FileExistsError):
            raise
    with contextlib.suppress(FileNotFoundError):
        return fs.open(path)
    raise LogDirOfflineError(path, FileNotFoundError("was removed right after it was created"))
