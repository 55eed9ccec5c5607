"""
The end of a write: staged segments get their offsets and names, and complete partitions appear.

    1. create the log dir if it is missing, lock it as any writer does, and remove its clean shutdown marker
    2. for each partition, in its unpublished directory: write offsets into the batches, give the files their final
       names, add the other files of a log
    3. rename the unpublished directories to the partitions' names, one by one
    4. write checkpoints, and the marker if the whole log dir may be trusted

A crash at any step leaves complete partitions, or directories marked for removal.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from cleaner.base.clock import SystemClock
from cleaner.base.model import EpochEntry, TopicPartition
from cleaner.errors import UsageError
from cleaner.log.dir_state import DirState, identify, make_log_dir, new_uuid
from cleaner.spark.source.staging import BATCHES, Staged, unpublished_dir
from cleaner.spark.source.write_options import WriteOptions
from cleaner.storage.files.leader_epochs import write_leader_epochs
from cleaner.storage.files.partition_metadata import read_topic_id, write_topic_id
from cleaner.storage.files.producer_snapshot import write_snapshot
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.log_dir import LogDirListing, OffsetKind
from cleaner.storage.segment.names import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    TIME_INDEX,
    segment_file_name,
    snapshot_file_name,
)

_BASE_OFFSET = struct.Struct(">q")
_SUFFIXES = (LOG, INDEX, TIME_INDEX)


def publish(fs: FileSystem, options: WriteOptions, job: str, staged: Iterable[Staged]) -> dict[TopicPartition, int]:
    """
    Make a log dir of the segments that tasks have written.

    Args:
        staged: all segments; the segments of a partition are in the order of their records.
    Returns:
        The partitions' log end offsets.
    Raises:
        UsageError: a partition exists already, or the directory belongs to another cluster; nothing has changed.
        LogDirLockedError: a broker, a writer or a cleaner is using the directory.
        NoSpaceError, LogDirOfflineError: the disk is full, or refuses.
    """
    parts: dict[TopicPartition, list[Staged]] = {}
    for each in staged:
        parts.setdefault(each.topic_partition, []).append(each)
    log_dir = real_path(Path(options.path))
    _require_room(fs, log_dir, parts)
    if options.writes_meta:
        make_log_dir(
            fs, log_dir, identify(fs, [log_dir] if log_dir.is_dir() else [], options.cluster_id, options.node_id)
        )
    if not log_dir.is_dir():
        return {}
    state = DirState(fs, log_dir, SystemClock())
    in_order = False
    try:
        before = state.log_dir.listing()
        ids = _topic_ids(fs, before, parts, options) if options.writes_meta else {}
        ends = {name: _complete(fs, unpublished_dir(log_dir, name, job), parts[name], ids) for name in sorted(parts)}
        for name in ends:
            state.still_held()
            fs.rename(unpublished_dir(log_dir, name, job), log_dir / str(name))
        fs.fsync_dir(log_dir)
        state.note(OffsetKind.RECOVERY_POINT, lambda: ends)
        state.note(OffsetKind.HIGH_WATERMARK, lambda: ends)
        in_order = state.was_closed or not before.current
    finally:
        state.close(in_order=in_order and state.may_be_marked)
    return ends


def _require_room(fs: FileSystem, log_dir: Path, parts: Mapping[TopicPartition, object]) -> None:
    for name in sorted(parts):
        if fs.exists(log_dir / str(name)):
            reason = "exists already; a write creates partitions and does not append to one"
            raise UsageError(f"{log_dir / str(name)}: {reason}: remove it, write elsewhere, or use `cleaner produce`")


def _topic_ids(
    fs: FileSystem, found: LogDirListing, parts: Mapping[TopicPartition, object], options: WriteOptions
) -> dict[str, uuid.UUID]:
    """Return the ids of the topics: the given id, the id in other partitions of the topic, or a new one."""
    ids = {}
    for name, directory in (*found.future.items(), *found.linked.items(), *found.current.items()):
        known = read_topic_id(fs, directory / PARTITION_METADATA)
        if known is not None:
            ids[name.topic] = known
    ids |= options.topic_ids
    return {name.topic: ids.get(name.topic) or ids.setdefault(name.topic, new_uuid()) for name in parts}


def _complete(fs: FileSystem, directory: Path, staged: Sequence[Staged], ids: Mapping[str, uuid.UUID]) -> int:
    """Turn a unpublished directory into a complete log; returns its end offset."""
    next_offset = 0
    for each in staged:
        _fill_in(fs, directory, each.stem, next_offset)
        for suffix in _SUFFIXES:
            fs.rename(directory / (each.stem + suffix), directory / segment_file_name(next_offset, suffix))
        fs.remove(directory / (each.stem + BATCHES))
        next_offset += each.offset_count
    bases = accumulate((each.offset_count for each in staged[:-1]), initial=0)
    kept = {segment_file_name(base, suffix) for base in bases for suffix in _SUFFIXES}
    # Files of attempts that failed, or were not the first to finish.
    fs.remove_all(directory, [name for name in fs.list_files(directory) if name not in kept])
    write_snapshot(fs, directory / snapshot_file_name(next_offset), [])
    write_leader_epochs(fs, directory / LEADER_EPOCHS, [EpochEntry(0, 0)])
    topic = staged[0].topic_partition.topic
    if topic in ids:
        write_topic_id(fs, directory / PARTITION_METADATA, ids[topic])
    fs.fsync_dir(directory)
    return next_offset


def _fill_in(fs: FileSystem, directory: Path, stem: str, base_offset: int) -> None:
    """Add the base offset to the offsets of a staged segment's batches, which count from 0."""
    if base_offset == 0:
        return
    with fs.open(directory / (stem + LOG), write=True) as file:
        places = np.frombuffer(fs.read_bytes(directory / (stem + BATCHES)), np.int64).reshape(-1, 2)
        for position, offset in places.tolist():
            file.write(_BASE_OFFSET.pack(base_offset + offset), position)
        file.fsync()


def discard(fs: FileSystem, options: WriteOptions, job: str) -> None:
    """Remove what the tasks of a failed job have written."""
    log_dir = real_path(Path(options.path))
    if not log_dir.is_dir():
        return
    with fs.hold(log_dir):
        for name in fs.list_dirs(log_dir):
            if name.endswith(f".{job}-delete"):
                fs.remove_all(log_dir / name, fs.list_files(log_dir / name))
                fs.remove_dir(log_dir / name)
