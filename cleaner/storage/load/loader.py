"""
Loading a log, as Kafka's loader does when a broker starts.

With a clean-shutdown marker the log is read as it is: names, indexes, the last batches, the newest producer snapshot.
Without a marker it is recovered first (`recovery.py`). Everything is checked before anything is changed, and Kafka's
changes wait for `LoadedLog.settle`. The exceptions: an interrupted swap is completed and an overflowed segment split at
once, as nothing is known of the log before; and a long recovery writes sound indexes as it goes.

Alongside one of our writers there is no marker and nothing to recover: the log is loaded as it was when its active
segment began. By then the writer had closed, flushed and snapshotted everything before it (`docs/coexistence.md`), so
the active segment, whose end may be torn at any moment, is not read. Only leftovers of a dead cleaner are settled.

Source: rules R-118, R-123, R-126, R-330, R-331, R-630 to R-642, R-652; `LogLoader.java`, `UnifiedLog.java`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CorruptBatchError,
    CorruptIndexError,
    LogChangedError,
    NotCleanlyShutDownError,
    TruncationRefusedError,
    ZeroTailError,
)
from cleaner.storage.files.leader_epochs import read_leader_epochs, truncate_from_end, truncate_from_start
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import is_zero_from
from cleaner.storage.load.leftovers import (
    SwapState,
    complete_swap,
    find_leftovers,
    settle_leftovers,
    unfinished_snapshots,
)
from cleaner.storage.load.load_changes import LoadChanges, SaveCut
from cleaner.storage.load.loaded_log import LoadedLog, list_segments
from cleaner.storage.load.loading import Loading
from cleaner.storage.load.rebuild import SegmentOverflowError, rebuild_producer_state
from cleaner.storage.load.recovery import cut_damage, recover_segments
from cleaner.storage.load.snapshots import Snapshots
from cleaner.storage.lock.waiting import go_on
from cleaner.storage.segment import names
from cleaner.storage.segment.batch_source import batch_headers, checked_batches, stoppable
from cleaner.storage.segment.indexes import CUTS_ZEROS, LAST_OFFSET, ZERO_TAIL
from cleaner.storage.segment.segment import Segment

Exclusive = Callable[[], contextlib.AbstractContextManager[object]]


def load_log(
    fs: FileSystem,
    directory: Path,
    topic_partition: TopicPartition,
    *,
    topic: TopicConfig,
    log_start_offset: int,
    recovery_point: int,
    high_watermark: int | None,
    clean_shutdown: bool,
    producer_id_expiration_ms: int,
    now_ms: int,
    allow_truncate: bool = True,
    allow_restart: bool | None = None,
    read_only: bool = False,
    beside_writer: bool = False,
    exclusive: Exclusive = contextlib.nullcontext,
    save_cut: SaveCut | None = None,
    check_done: Callable[[], None] = go_on,
) -> LoadedLog:
    """
    Load a partition's log; without a clean-shutdown marker, recover it.

    Args:
        topic: `index_interval_bytes` and `segment_index_bytes` are used for rebuilt indexes.
        log_start_offset, recovery_point: the partition's lines in the checkpoints, 0 without one.
        high_watermark: likewise; None without one, which means the log start offset (D-03).
        clean_shutdown: the log dir has its marker, so only left-over files are suspect, by their names (D-02).
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        now_ms: the time at which idle producers are judged.
        allow_truncate: let recovery cut more than a torn tail.
        allow_restart: let a log that ends below its start lose all its segments (R-641); None: as `allow_truncate`.
        read_only: change nothing at all; call neither `settle` nor `close`. Only headers of batches are read then:
            offsets and transactions are those of a full load, but damage to records is not seen.
        beside_writer: one of our writers uses the log, and will settle and close it.
        exclusive: gives the partition's lock, held while an interrupted swap is settled.
        check_done: called before each chunk that is read; raises to stop. Nothing was changed then, except as in the
            module's docstring.
    Raises:
        CorruptLogError: damage. Nothing was changed, except as in the module's docstring. ZeroTailError: there is a
            marker, and the log has to be recovered all the same.
        NotCleanlyShutDownError: `read_only`, and an interrupted swap must be completed, a segment split or the log
            recovered first.
        TruncationRefusedError: recovery would have to cut more than a torn tail, or delete all segments, and may not.
        UncleanableError: a rebuilt index would be full (R-311).
    """
    clean_shutdown = clean_shutdown or beside_writer
    if read_only and not clean_shutdown:
        raise NotCleanlyShutDownError(f"{directory}: must be recovered first")
    if not clean_shutdown:
        _drop_page_cache(fs, directory)
    with exclusive():
        if beside_writer and not read_only:
            deleted_before_ms = now_ms - topic.file_delete_delay_ms
            index_bytes = topic.segment_index_bytes
            settle_leftovers(fs, directory, deleted_before_ms=deleted_before_ms, index_bytes=index_bytes)
        files = _settle_swap(fs, directory, topic, read_only=read_only)
    loading = Loading(
        fs=fs,
        directory=directory,
        topic=topic,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        is_clean=clean_shutdown,
        allow_truncate=allow_truncate,
        allow_restart=allow_truncate if allow_restart is None else allow_restart,
        now_ms=now_ms,
        expiration_ms=producer_id_expiration_ms,
        changes=_changes_from(fs, directory, files, save_cut),
        source=stoppable(batch_headers if read_only else checked_batches, check_done),
        check_done=check_done,
        is_beside_writer=beside_writer,
    )
    for group in find_leftovers(directory, files).removals():
        loading.changes.remove(directory / name for name in group)
    if not beside_writer:
        loading.changes.remove(directory / name for name in unfinished_snapshots(files))
    _splitting_overflows(loading, _load_segments, read_only=read_only)
    if not clean_shutdown:
        _splitting_overflows(loading, recover_segments, read_only=read_only)
    log_end_offset = _end_of_log(loading)
    return _finish(loading, topic_partition, log_end_offset, high_watermark)


def _drop_page_cache(fs: FileSystem, directory: Path) -> None:
    """
    Drop the page cache of the log files, so that recovery reads them from the disk.

    After a failed fsync the page cache may hold data that never reached the disk, marked as written; reading it,
    finding it sound and calling fsync again would succeed, and be false (C-2). Dirty pages stay in memory.
    """
    for segment in list_segments(fs, directory):
        with segment.open_log() as file:
            file.drop_cache(0, 0)


def _settle_swap(fs: FileSystem, directory: Path, topic: TopicConfig, *, read_only: bool) -> list[str]:
    """Complete an interrupted swap; returns the directory's files after that."""
    files = fs.list_files(directory)
    leftovers = find_leftovers(directory, files)
    if not leftovers.swaps:
        return files
    if read_only:
        raise NotCleanlyShutDownError(f"{directory}: {SwapState.COMPLETED.value}, and this one may change nothing")
    complete_swap(fs, directory, files, leftovers.swaps, index_bytes=topic.segment_index_bytes)
    return fs.list_files(directory)


def _changes_from(fs: FileSystem, directory: Path, files: Sequence[str], save_cut: SaveCut | None) -> LoadChanges:
    """Return the changes of a load, none yet: the producer snapshots and leader epochs are those on disk."""
    return LoadChanges(
        directory,
        Snapshots(fs, directory, names.offsets_of(files, names.SNAPSHOT)),
        read_leader_epochs(fs, directory / names.LEADER_EPOCHS),
        has_epochs=names.LEADER_EPOCHS in files,
        save_cut=save_cut,
    )


def _splitting_overflows(loading: Loading, step: Callable[[Loading], None], *, read_only: bool) -> None:
    """Do a step of loading, and repeat it after each segment that had to be split (R-614)."""
    while True:
        try:
            step(loading)
        except SegmentOverflowError as overflow:
            source = overflow.segment
            if read_only:
                raise NotCleanlyShutDownError(
                    f"{source.log_path}: must be split first: its offsets span too wide a range"
                ) from overflow
            from cleaner.storage.swap.split import split_overflowed_segment  # loads the kernels

            bases = split_overflowed_segment(loading.fs, source, loading.topic, loading.buffer)
            loading.changes.forget_segment(source)
            if source.base_offset not in bases:
                loading.changes.snapshots.remove(source.base_offset)
            at = next((at for at, s in enumerate(loading.segments) if s is source), len(loading.segments))
            loading.segments[at : at + 1] = [Segment.open(loading.fs, loading.directory, base) for base in bases]
        else:
            return


def _load_segments(loading: Loading) -> None:
    """Find the segments, and note which of their files are missing, left over or damaged (R-330, R-331, R-635)."""
    loading.segments.clear()
    files = loading.fs.list_files(loading.directory)
    present = set(files)
    logs = [name for name in files if name.endswith(names.LOG)]
    bases = [names.offset_of(name) for name in logs]
    loading.last_base_offset = bases[-1] if bases else -1
    loading.recovery_base_offset = max((base for base in bases if base <= loading.recovery_point), default=0)
    for name in files:
        if name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX)):
            if names.segment_file_name(names.offset_of(name), names.LOG) not in present:
                loading.changes.remove([loading.directory / name])
        elif name.endswith(names.LOG):
            segment = Segment.open(loading.fs, loading.directory, names.offset_of(name), source=loading.source)
            if loading.is_beside_writer and segment.base_offset == loading.last_base_offset:
                loading.segments.append(segment)
                continue
            if segment.time_index_path.name not in present:
                loading.changes.create_empty(segment.time_index_path)
            if segment.index_path.name not in present or _has_foreign_txns(loading, segment):
                _rebuild_now(loading, segment)
            elif loading.is_clean:
                # Kafka does not check them; a cleaner that trusted these would skip or misplace records.
                segment.offset_index()
                segment.time_index()
            loading.segments.append(segment)


def _has_foreign_txns(loading: Loading, segment: Segment) -> bool:
    """Tell whether the transaction index names a marker below the segment: Kafka rebuilds such an index (R-330)."""
    try:
        aborts = segment.aborted_txns()
    except CorruptIndexError:
        if loading.is_clean:
            raise
        return True  # entries that a power cut left as zeros
    return bool((aborts[:, LAST_OFFSET] < segment.base_offset).any())


def _rebuild_now(loading: Loading, segment: Segment) -> None:
    """
    Rebuild the indexes of a segment that is not recovered.

    After a clean stop, damage in it is not cut away. Otherwise it is, but later segments stay, as in Kafka.
    """
    try:
        rebuilt = loading.rebuild(segment)
    except CorruptBatchError as damage:
        # Damage in a segment below, found while replaying this one's producers. If that segment is to be recovered, it
        # will be cut, and this segment removed; an interrupted recovery can leave exactly this.
        if loading.is_clean or names.offset_of(damage.path.name) < loading.recovery_base_offset:
            raise
        return
    if rebuilt.damage is not None and loading.is_clean:
        raise rebuilt.damage
    cut_damage(loading, segment, rebuilt, later=[])
    segment.rebuilt = rebuilt.indexes
    loading.changes.write_indexes(segment)
    loading.keep_small()


def _end_of_log(loading: Loading) -> int:
    """
    Return the log end offset; a log without segments, or that ends below its start, starts again there (R-641).

    A line of the log start checkpoint, which has no checksum, decides about that. So, unlike in Kafka, no record is
    deleted for it without `allow_restart`.

    Alongside a writer, the log end is where the active segment begins.
    """
    if loading.is_beside_writer:
        if not loading.segments:
            raise LogChangedError(f"{loading.directory}: the writer has not created its first segment yet")
        return max(loading.last_base_offset, loading.log_start_offset)
    if loading.segments:
        last = loading.segments[-1]
        log_end_offset = _next_offset(loading, last)
        if log_end_offset >= loading.log_start_offset:
            return log_end_offset
        has_records = loading.truncated_bytes or any(segment.size for segment in loading.segments)
        if has_records and not loading.allow_restart:
            raise TruncationRefusedError(
                f"{loading.directory}: the log ends at offset {log_end_offset}, below its start, "
                f"{loading.log_start_offset}; all its segments would be deleted. Only --allow-truncate does that. If "
                f"its line in log-start-offset-checkpoint is wrong, correct the line"
            )
        for segment in reversed(loading.segments):
            loading.changes.remove_segment(segment)
        loading.segments.clear()
        loading.changes.clear_epochs()
        for offset in loading.changes.snapshots.offsets():
            loading.changes.snapshots.remove(offset)
    loading.segments.append(new_segment(loading.fs, loading.directory, loading.log_start_offset, loading.changes))
    return loading.log_start_offset


def _next_offset(loading: Loading, active: Segment) -> int:
    """Return where the active segment ends; raises ZeroTailError if zeros follow its batches after a clean stop."""
    try:
        return active.next_offset(buffer=loading.buffer, check_order=loading.is_clean)
    except CorruptBatchError as damage:
        with active.open_log() as file:
            is_zero_tail = loading.is_clean and is_zero_from(file, damage.position)
        if not is_zero_tail:
            raise
        raise ZeroTailError(damage.path, damage.position, f"{ZERO_TAIL}; {CUTS_ZEROS}") from damage


def new_segment(fs: FileSystem, directory: Path, base_offset: int, changes: LoadChanges) -> Segment:
    """Add an empty segment to the pending changes."""
    segment = Segment(fs, directory, base_offset, size=0, mtime_ns=0)
    for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
        changes.create_empty(segment.path(suffix))
    return segment


def _finish(
    loading: Loading, topic_partition: TopicPartition, log_end_offset: int, high_watermark: int | None
) -> LoadedLog:
    changes = loading.changes
    changes.epochs = truncate_from_end(changes.epochs, log_end_offset)
    log_start_offset = max(loading.log_start_offset, loading.segments[0].base_offset)
    # Kafka cuts by the checkpointed log start, not by the effective one.
    changes.epochs = truncate_from_start(changes.epochs, loading.log_start_offset)
    changes.snapshots.remove_strays(segment.base_offset for segment in loading.segments)
    state = loading.new_producer_state()
    rebuild_producer_state(
        state,
        loading.segments,
        log_start_offset=log_start_offset,
        end_offset=log_end_offset,
        was_clean=loading.is_clean,
        buffer=loading.buffer,
    )
    log = LoadedLog(
        loading.fs,
        loading.directory,
        topic_partition,
        loading.topic,
        segments=loading.segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        producers=state,
        changes=changes,
        truncated_bytes=loading.truncated_bytes,
        is_beside_writer=loading.is_beside_writer,
    )
    log.set_high_watermark(log_start_offset if high_watermark is None else high_watermark)
    return log
