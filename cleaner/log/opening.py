"""
Loading a partition's log for its writer, and cutting it. Afterwards the log's end, producers and epochs are known from
its files, and every change is on disk.

Both hold the partition's lock, so that no cleaner swaps and no reader lists at the same time. While logs are opened for
the first time no round runs anyway (`storage/lock/logs_access.py`).

Source: rules R-123, R-126, R-630 to R-652; `LogLoader.java`, `UnifiedLog.java` (truncateTo).
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.model import EpochEntry, TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import TruncationRefusedError, ZeroTailError
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.producer_snapshot import SEQUENCES, ProducerEntry
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.new_dir import make_durable_dir
from cleaner.storage.load.leftovers import settle_swap
from cleaner.storage.load.loaded_log import LoadedLog, list_segments
from cleaner.storage.load.loader import load_log
from cleaner.storage.lock.partition_lock import HeldByte, checkpoint_lock, partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment import names
from cleaner.storage.segment.generation import raise_generation
from cleaner.storage.segment.segment import Segment

_NO_EPOCH = -1


@dataclass(frozen=True)
class OpenedLog:
    """
    A log that is ready for appends; all of it is on disk.

    Attributes:
        producers: as of the log end, in the order in which they became known.
        epochs: the leader epochs that begin below the log end.
        epoch: the one to append with; if it is not in `epochs`, it begins at the log end.
        first_base_offset: of the first segment.
        active_segment: the last one.
        truncated_bytes: how much recovery has cut off.
    """

    topic_partition: TopicPartition
    directory: Path
    log_start_offset: int
    log_end_offset: int
    producers: Sequence[ProducerEntry]
    epochs: Sequence[EpochEntry]
    epoch: int
    first_base_offset: int
    active_segment: Segment
    truncated_bytes: int


def open_log(
    log_dir: LogDir,
    topic_partition: TopicPartition,
    topic: TopicConfig,
    clock: Clock,
    *,
    was_closed: bool,
    producer_id_expiration_ms: int,
    has_controller: bool = False,
    allow_truncate: bool = True,
) -> OpenedLog:
    """
    Load a partition's log and settle it, after a recovery unless it `was_closed`; creates a missing directory.

    A log that was closed and ends in zeros is recovered all the same.

    Args:
        has_controller: the leader epochs are a controller's; see `cleaner/log/epochs.py`.
        allow_truncate: let recovery cut below the checkpoint's recovery point, and a log that ends below its start
            begin there without a record (R-641). Above the recovery point it always may cut.
    Raises:
        TruncationRefusedError: it would have to, and may not; nothing was changed.
        CorruptLogError: damage that recovery does not repair.
        LogChangedError: another process did not release the partition's lock.
        LogDirOfflineError, NoSpaceError: the disk.
    """
    fs, directory = log_dir.fs, log_dir.path / str(topic_partition)
    with partition_lock(fs, log_dir.path, topic_partition, clock):
        make_durable_dir(fs, directory, stat.S_IMODE(fs.stat(log_dir.path).st_mode))
        recovery_point = log_dir.recovery_points.get(topic_partition, 0)
        known_offset = max(recovery_point, log_dir.high_watermarks.get(topic_partition, 0))
        load = partial(
            _load,
            log_dir,
            topic_partition,
            topic,
            clock,
            recovery_point=recovery_point,
            producer_id_expiration_ms=producer_id_expiration_ms,
            has_controller=has_controller,
            allow_restart=allow_truncate,
        )
        if was_closed:
            with contextlib.suppress(ZeroTailError):  # our opening has removed the marker, so it can be recovered
                return load(was_closed=True)
        return load(was_closed=False, min_end_offset=0 if allow_truncate else known_offset)


def find_last_batch(fs: FileSystem, directory: Path, producer_id: int) -> ProducerEntry | None:
    """
    Search a log for the last batch of a producer that was forgotten; reads the whole log. The caller has its lock.

    Raises:
        CorruptLogError: damage on the way.
    """
    for segment in reversed(list_segments(fs, directory)):
        last = None
        for chunk in segment.chunks():
            rows = chunk.batches[(chunk.batches["producer_id"] == producer_id) & (chunk.batches["base_sequence"] >= 0)]
            last = rows[-1].copy() if len(rows) else last
        if last is not None:
            delta = int(last["last_offset"]) - int(last["base_offset"])
            last_sequence = (int(last["base_sequence"]) + delta) % SEQUENCES
            return ProducerEntry(
                *(producer_id, int(last["producer_epoch"]), last_sequence, int(last["last_offset"]), delta),
                *(int(last["max_timestamp"]), _NO_EPOCH, -1),
            )
    return None


def _load(
    log_dir: LogDir,
    topic_partition: TopicPartition,
    topic: TopicConfig,
    clock: Clock,
    *,
    recovery_point: int,
    was_closed: bool,
    producer_id_expiration_ms: int,
    has_controller: bool = False,
    min_end_offset: int = 0,
    allow_restart: bool = True,
) -> OpenedLog:
    """Load and settle, unless the log would end below a given offset; the caller has the partition's lock."""
    fs, directory = log_dir.fs, log_dir.path / str(topic_partition)
    # Loading drops an epoch without batches; its number must not be used again.
    latest = _latest(read_leader_epochs(fs, directory / names.LEADER_EPOCHS))
    log = load_log(
        fs,
        directory,
        topic_partition,
        topic=topic,
        log_start_offset=log_dir.log_start_offsets.get(topic_partition, 0),
        recovery_point=recovery_point,
        high_watermark=log_dir.high_watermarks.get(topic_partition),
        clean_shutdown=was_closed,
        producer_id_expiration_ms=producer_id_expiration_ms,
        now_ms=clock.now_ms(),
        allow_restart=allow_restart,
    )
    if log.log_end_offset < min_end_offset:
        raise TruncationRefusedError(
            f"{directory}: what was on disk up to offset {min_end_offset} is damaged or missing from offset "
            f"{log.log_end_offset} on; recovery would cut {log.truncated_bytes} bytes. Only allow_truncate does that"
        )
    log.settle(fs, partial(_signalled, log_dir, topic_partition))
    epochs = log.changes.epochs
    latest = max(latest, _latest(epochs))
    if latest == _NO_EPOCH:
        latest = _last_batch_epoch(log)
    return OpenedLog(
        topic_partition,
        directory,
        log.log_start_offset,
        log.log_end_offset,
        log.producers.entries(),
        tuple(epochs),
        max(latest, 0) if was_closed or has_controller else latest + 1,
        log.segments[0].base_offset,
        Segment.open(fs, directory, log.active_segment.base_offset),
        log.truncated_bytes,
    )


def _latest(epochs: Sequence[EpochEntry]) -> int:
    return epochs[-1].epoch if epochs else _NO_EPOCH


def _last_batch_epoch(log: LoadedLog) -> int:
    """Return the leader epoch of the last batch, for a log without its epoch file."""
    for segment in reversed(log.segments):
        epoch = None
        for chunk in segment.chunks(start=segment.position_at(log.log_end_offset)):
            epoch = int(chunk.batches["leader_epoch"][-1])
        if epoch is not None:
            return epoch
    return _NO_EPOCH


def cut_log(
    log_dir: LogDir,
    topic_partition: TopicPartition,
    topic: TopicConfig,
    clock: Clock,
    offset: int,
    *,
    lock: HeldByte,
    ending: Callable[[int], None],
    producer_id_expiration_ms: int,
) -> OpenedLog:
    """
    Cut a log so that it ends at an offset, or where the last batch below ends, and load it again.

    The steps, each durable before the next:

        1  lower the checkpoints' lines: high watermark, recovery point,                  no line is above the cut
           first dirty offset
        2  delete the segments above, the last one first                                  a shorter log, whole
        3  cut the segment that holds the offset                                          the cut log, indexes too long
        4  remove snapshots above its base offset; rebuild indexes, producers and epochs

    A crash on the way leaves a log that the next recovery accepts: longer than wanted, or cut.

    Args:
        lock: the partition's, held during the cut.
        ending: called with the new log end before anything changes; after it no thread has the files open for
            writing. The end is below the offset if that is within a batch or after records that cleaning has removed.
    Raises:
        CorruptLogError, LogChangedError, LogDirOfflineError, NoSpaceError: as `open_log`; the log may be half cut.
    """
    fs, directory = log_dir.fs, log_dir.path / str(topic_partition)
    with lock:
        settle_swap(fs, directory, index_bytes=topic.segment_index_bytes)
        segments = list_segments(fs, directory)
        target = next((each for each in reversed(segments) if each.base_offset <= offset), segments[0])
        size, end_offset = _cut_at(target, offset)
        ending(end_offset)
        raise_generation(fs, log_dir.path, topic_partition)
        _lower(log_dir, OffsetKind.HIGH_WATERMARK, topic_partition, end_offset)
        _lower(log_dir, OffsetKind.RECOVERY_POINT, topic_partition, target.base_offset)
        with checkpoint_lock(fs, log_dir.path, clock):
            _lower(log_dir, OffsetKind.CLEANER, topic_partition, target.base_offset)
        for segment in reversed(segments[segments.index(target) + 1 :]):
            _delete(fs, segment)
        _cut_segment(fs, target, size)
        _remove_snapshots_above(fs, directory, target.base_offset)
        return _load(
            log_dir,
            topic_partition,
            topic,
            clock,
            recovery_point=target.base_offset,
            was_closed=False,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )


@contextmanager
def _signalled(log_dir: LogDir, topic_partition: TopicPartition) -> Iterator[None]:
    """Signal a partition's readers that its names change."""
    raise_generation(log_dir.fs, log_dir.path, topic_partition)
    yield


def _lower(log_dir: LogDir, kind: OffsetKind, topic_partition: TopicPartition, offset: int) -> None:
    if log_dir.offsets(kind).get(topic_partition, 0) > offset:
        log_dir.put(kind, topic_partition, offset)


def _delete(fs: FileSystem, segment: Segment) -> None:
    """Delete a segment and the snapshot at its base offset; its `.log` is removed, durably, before the rest."""
    fs.rename(segment.log_path, segment.log_path.with_name(segment.log_path.name + names.DELETED))
    fs.fsync_dir(segment.directory)
    files = [
        names.segment_file_name(segment.base_offset, suffix) for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)
    ]
    fs.remove_all(segment.directory, [*files, segment.log_path.name + names.DELETED])


def _cut_at(segment: Segment, offset: int) -> tuple[int, int]:
    """Return how long a segment is up to an offset, and at which offset its last batch ends then."""
    size, end_offset = 0, segment.base_offset
    for chunk in segment.chunks():
        rows = chunk.batches[chunk.batches["last_offset"] < offset]
        if len(rows):
            size, end_offset = int(rows["position"][-1] + rows["size"][-1]), int(rows["last_offset"][-1]) + 1
        if len(rows) < len(chunk.batches):
            break
    return size, end_offset


def _cut_segment(fs: FileSystem, segment: Segment, size: int) -> None:
    with fs.open(segment.log_path, write=True) as file:
        file.truncate(size)
        file.fsync()


def _remove_snapshots_above(fs: FileSystem, directory: Path, offset: int) -> None:
    found = [name for name in fs.list_files(directory) if name.endswith(names.SNAPSHOT)]
    fs.remove_all(directory, [name for name in found if names.offset_of(name) > offset])
    fs.fsync_dir(directory)
