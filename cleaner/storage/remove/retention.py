"""
Deletes the oldest segments of a log, in an order in which a crash cannot leave a hole.

Source: rules R-123, R-126, R-913; `UnifiedLog.java` (deleteSegments), `LocalLog.java` (roll). `policy/retention.py`
decides which segments are deleted.
"""

from __future__ import annotations

from contextlib import nullcontext

from cleaner.storage.files.leader_epochs import truncate_from_start
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import new_segment
from cleaner.storage.segment import names


def delete_oldest(fs: FileSystem, log: LoadedLog, count: int) -> None:
    """
    Delete the `count` oldest segments, their snapshots, and the leader epochs below the new log start offset.

    The caller holds the partition's lock and has signalled its readers.

    If all segments are deleted, an empty segment at the log end is created first.

    Invariant: a segment is gone durably before the next younger one is touched. Otherwise a power cut could keep an old
    segment and lose a younger one: a log with a hole, in which deleted records come back. Its `.log` is removed before
    its indexes: a load that finds no index rebuilds it, which costs the producer snapshots above (see `expiry.py`).

    Raises:
        ValueError: a segment to be deleted reaches above the high watermark.
    """
    if count == 0:
        return
    changes = log.changes
    expired, kept = log.segments[:count], log.segments[count:]
    start_offset = kept[0].base_offset if kept else log.log_end_offset
    log.raise_log_start(start_offset)
    changes.epochs = truncate_from_start(changes.epochs, log.log_start_offset)
    if not kept:
        log.producers.take_snapshot()
        kept = [new_segment(fs, log.directory, log.log_end_offset, changes)]
        log.settle(fs, nullcontext)
    for segment in expired:
        fs.remove(segment.log_path)
        fs.fsync_dir(log.directory)
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            fs.remove(segment.path(suffix))
        if segment.base_offset != kept[0].base_offset:
            changes.snapshots.remove(segment.base_offset)
    log.segments = kept
    log.settle(fs, nullcontext)
