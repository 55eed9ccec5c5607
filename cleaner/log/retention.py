"""
Retention of a log by its writer: removes segments that have expired as a whole, the active one too.

`policy/retention.py` chooses them; `storage/remove/expiry.py` removes them in steps so that no crash makes a hole. When
all have expired, an empty segment takes their place first (R-913), so an idle log ends up with no records. A cleanup
policy that only a default gives deletes only segments below the log start.

Source: rules R-901 to R-914, R-920.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleaner.log.writable_log import WritableLog
from cleaner.policy.log_views import RetentionSegment
from cleaner.policy.retention import KeptLog
from cleaner.storage.load.leftovers import settle_swap
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.remove.expiry import list_deleted, rename_to_deleted
from cleaner.storage.segment.generation import raise_generation


@dataclass(frozen=True)
class ExpiredSegments:
    """
    The segments that were renamed: how many, and the bytes of their logs; and all `.deleted` files that are there.
    """

    segments: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()


def expire(log: WritableLog, choose: Callable[[KeptLog], int]) -> ExpiredSegments:
    """
    Rename the oldest segments to `.deleted`; the caller removes the files later, those of a call that failed, too.

    Args:
        choose: returns how many; called again before anything changes, with the active segment rolled if that was
            among them.
    Raises:
        LogDirOfflineError, NoSpaceError, LogChangedError, CorruptLogError: some segments may be renamed already.
        LogClosedError: it was closed, or an fsync failed.
    """
    with log.locked():
        kept = _for_retention(log)
    count = choose(kept)
    if count and count == len(kept.segments):
        log.roll()
    return _expire_segments(log, choose) if count else _nothing_more(log)


def _nothing_more(log: WritableLog) -> ExpiredSegments:
    return ExpiredSegments(files=tuple(list_deleted(log.log_dir.fs, log.directory)))


def _for_retention(log: WritableLog) -> KeptLog:
    """Return the log as retention sees it: the active segment is on disk once it has been rolled."""
    listed = list_segments(log.log_dir.fs, log.directory)
    segments: list[RetentionSegment] = [*listed[:-1], log.active.for_retention(listed[-1])]
    return KeptLog(segments, log.log_start_offset, log.log_end_offset, log.log_end_offset)


def _expire_segments(log: WritableLog, choose: Callable[[KeptLog], int]) -> ExpiredSegments:
    log_dir, fs, partition = log.log_dir, log.log_dir.fs, log.topic_partition
    with log.locked():
        settle_swap(fs, log.directory, index_bytes=log.topic.segment_index_bytes)
        kept = _for_retention(log)
        count = min(choose(kept), len(kept.segments) - 1)
        if not count:
            return _nothing_more(log)
        going, first = kept.segments[:count], kept.segments[count].base_offset
        # In memory first: a read below it gets an error, and the checkpoint never names a lower offset again.
        log.log_start_offset = max(log.log_start_offset, first)
        log_dir.put(OffsetKind.LOG_START, partition, log.log_start_offset)
        raise_generation(fs, log_dir.path, partition)
        log.epochs.cut_start(log.log_start_offset)
        rename_to_deleted(fs, log.directory, [segment.base_offset for segment in going])
        log.first_base_offset = first
        files = tuple(list_deleted(fs, log.directory))
    # The first segment's name is the log start; a checkpoint line is needed only for a start inside it.
    log_dir.put(OffsetKind.LOG_START, partition, log.log_start_checkpoint)
    return ExpiredSegments(count, sum(segment.size for segment in going), files)
