"""Counts the keys that a key view merges: what a round with the view would remove and Kafka's cleaner would not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from cleaner.base.key_views import KeyView
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptLogError
from cleaner.format.chunks import control_batches
from cleaner.format.key_digests import Words
from cleaner.format.records import Unpacker
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.latest import Digest, LatestByKey
from cleaner.read.open_segment import OpenSegment
from cleaner.read.snapshot import LogSnapshot, LogSnapshots
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.batch_source import checked_batches

_FIRST_KEYS, _MOST_KEYS = 1 << 12, 1 << 22


def count_merged(
    fs: FileSystem,
    topic_partition: TopicPartition,
    directory: Path,
    end_offset: int,
    view: KeyView,
    *,
    limit_bytes: int,
    check_done: Callable[[], None],
) -> int | None:
    """
    Count the keys below an offset that are another writing of a key with a later record: by their bytes there are so
    many keys more than by the view. Reads the log at least twice.

    Args:
        limit_bytes: the most a batch may unpack to.
        check_done: called before each chunk; raises to stop.
    Returns:
        None if a part of the log is damaged.
    Raises:
        LogDirOfflineError, LogChangedError: as for a reader.
    """

    def count(log: LogSnapshot) -> int:
        by_bytes = _last_ones(fs, log, end_offset, None, limit_bytes, check_done)
        return by_bytes - _last_ones(fs, log, end_offset, view, limit_bytes, check_done)

    try:
        return LogSnapshots(fs).look(topic_partition, directory, count)
    except CorruptLogError:
        return None


def _last_ones(
    fs: FileSystem,
    log: LogSnapshot,
    end_offset: int,
    view: KeyView | None,
    limit_bytes: int,
    check_done: Callable[[], None],
) -> int:
    """Count the keys with a record below an offset; aborted transactions do not count."""
    aborted, unpacker = AbortedTransactions(fs, log.places), Unpacker(limit_bytes)

    def read(digest: Digest) -> Iterator[Words]:
        for number, place in enumerate(log.places):
            if place.base_offset >= end_offset:
                return
            with OpenSegment(fs, place) as segment:
                size, path = segment.file.size(), segment.file.path
                for chunk in checked_batches(segment.file, size=size, start=0, check_order_from=place.base_offset):
                    check_done()
                    rows = chunk.batches
                    hidden = control_batches(rows) | aborted.hidden(rows, number)
                    for block in unpacker.blocks(path, chunk, unwanted=hidden != 0):
                        yield digest(path, block, hidden[block.first : block.first + len(block.batches)])

    return LatestByKey(read, log.start_offset, end_offset, _FIRST_KEYS, _MOST_KEYS, view=view).count()
