"""
Puts a partition's files in the place of a broker's empty ones, so that a crash leaves either the old or the new log.

A directory cannot be filled atomically, but it can be renamed. So the files are copied into a directory with another
name, which is renamed when it is complete. Its name is that of a partition waiting for deletion: a broker that starts
in the middle removes it, and no broker refuses to start because of it (R-102, R-105). The name is derived from the
topic's id, so that the next attempt finds what this one left.

    step  what happens                                             a crash right after it leaves
    H1    our files -> `T-0.<copy>-delete`, all durable            the broker's empty log, and garbage
    H2    `T-0` -> `T-0.<aside>-delete`, durably                   no log; a broker creates an empty one, as before
    H3    the four checkpoints' lines of `T-0`                     the same: a broker does not read them for a new log
    H4    `T-0.<copy>-delete` -> `T-0`, durably: handed over       our log, complete, and its lines
    H5    `T-0.<aside>-delete` is removed                          our log

Invariant: the lines are written while there is no `T-0`. With a log start offset beyond the end of the broker's empty
log, that log would begin at this offset (R-641); without its line, ours would begin too early and show deleted records.

`settle_handover` begins and ends every attempt: from H2 and H3 it goes back to the broker's log, without the lines, and
it removes the rest.

Source: rules R-102 to R-107, R-641; `LogManager.java` (loadLogs, getOrCreateLog).
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID, uuid5

from cleaner.base.model import EpochEntry, TopicPartition
from cleaner.errors import HandoverRefusedError, LogDirOfflineError, NoSpaceError
from cleaner.kernels.batch_header import LEADER_EPOCH_AT, MAGIC
from cleaner.storage.files.leader_epochs import write_leader_epochs
from cleaner.storage.files.partition_metadata import write_topic_id
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.fs.space import require_room
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.remove.removals import remove_directory
from cleaner.storage.segment import names
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.backup import clone, may_clone, write_range

_FIRST_EPOCH = 0

# The log start last: it is the one line that a broker must not find for an empty log.
_IN_ORDER = (OffsetKind.RECOVERY_POINT, OffsetKind.HIGH_WATERMARK, OffsetKind.CLEANER, OffsetKind.LOG_START)


def is_log_file(name: str) -> bool:
    """Tell whether a file of a partition's directory is copied: segments, indexes and snapshots are."""
    parsed = names.parse_file_name(name)
    return parsed is not None and not parsed.temporary


def is_same_log(fs: FileSystem, one: Path, other: Path) -> bool:
    """Tell whether two directories hold the same segments, by names, sizes and times (ns)."""
    first, second = (
        {name: (state.size, state.mtime_ns) for name, state, _ in fs.scan_dir(where, (names.LOG,))}
        for where in (one, other)
    )
    return first == second


def settle_handover(log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """Undo a handover that a crash interrupted: restore the broker's own log and remove the copy."""
    fs, home = log_dir.fs, log_dir.path / str(topic_partition)
    copy, aside = handover_dirs(log_dir.path, topic_partition, topic_id)
    if fs.exists(aside) and not fs.exists(home):
        for kind in OffsetKind:
            log_dir.put(kind, topic_partition, None)
        fs.rename(aside, home)
        fs.fsync_dir(log_dir.path)
    for rest in (aside, copy):
        if fs.exists(rest):
            remove_directory(fs, rest)


def moved_broker_log(log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID) -> Path | None:
    """Return where a handover that crashed between H2 and H4 put the broker's own directory; else None."""
    _, aside = handover_dirs(log_dir.path, topic_partition, topic_id)
    return aside if log_dir.fs.exists(aside) and not log_dir.fs.exists(log_dir.path / str(topic_partition)) else None


def hand_over_partition(
    log_dir: LogDir,
    topic_partition: TopicPartition,
    topic_id: UUID,
    source: Path,
    lines: Mapping[OffsetKind, int | None],
    *,
    log_start_offset: int,
    still_held: Callable[[], None],
    check_done: Callable[[], None],
) -> None:
    """
    Copy a closed log and put it in the place of the empty one in `log_dir`; call `settle_handover` first.

    Args:
        log_dir: the broker's; both log dirs are locked.
        topic_partition, topic_id: the partition and its topic's id.
        source: the directory of the closed log.
        lines: the partition's lines in the broker's checkpoints; None: no line.
        log_start_offset: of the log.
        still_held: raises if a lock was lost.
        check_done: called before each file; raises to stop.
    Raises:
        NoSpaceError, LogDirOfflineError: the disk. The broker's directory is restored, if the disk lets us.
    """
    fs, home = log_dir.fs, log_dir.path / str(topic_partition)
    copy, aside = handover_dirs(log_dir.path, topic_partition, topic_id)
    try:
        fs.make_dir(copy, stat.S_IMODE(fs.stat(home).st_mode), like=home)
        _copy_files(fs, source, copy, home, check_done)
        has_records = any(segment.size for segment in list_segments(fs, copy))
        epochs = [EpochEntry(_FIRST_EPOCH, log_start_offset)] if has_records else []
        write_leader_epochs(fs, copy / names.LEADER_EPOCHS, epochs)
        write_topic_id(fs, copy / names.PARTITION_METADATA, topic_id)
        fs.fsync_dir(log_dir.path)
        still_held()
        fs.rename(home, aside)
        fs.fsync_dir(log_dir.path)
        for kind in _IN_ORDER:
            log_dir.put_all(kind, {topic_partition: lines[kind]}, coming=(topic_partition,))
        still_held()
        fs.rename(copy, home)
        fs.fsync_dir(log_dir.path)
    except (NoSpaceError, LogDirOfflineError) as error:
        if not error.path.is_relative_to(copy):
            raise
        # Name the log dir: the copy is gone by the time the message is read.
        if isinstance(error, NoSpaceError):
            raise NoSpaceError(log_dir.path, error.missing_bytes) from error
        raise LogDirOfflineError(log_dir.path, error.cause) from error
    finally:
        settle_handover(log_dir, topic_partition, topic_id)


def bytes_to_write(log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID, source: Path) -> int:
    """
    Return how much free space the handover of a log to `log_dir` takes.

    0 where a copy may share the disk's blocks: whether it does is seen only when it is made. Files that an earlier
    attempt left are removed first, so the result can be negative.
    """
    fs = log_dir.fs
    if may_clone(fs, source, log_dir.path):
        return 0
    there = [place for place in handover_dirs(log_dir.path, topic_partition, topic_id) if fs.exists(place)]
    return _bytes_in(fs, source) - sum(_bytes_in(fs, place) for place in there)


def _bytes_in(fs: FileSystem, directory: Path) -> int:
    return sum(fs.stat(directory / name).st_size for name in fs.list_files(directory) if is_log_file(name))


def handover_dirs(log_dir: Path, topic_partition: TopicPartition, topic_id: UUID) -> tuple[Path, Path]:
    """Return the directory that a handover fills, and the one to which it moves the broker's own."""

    def named(use: str) -> Path:
        unique = uuid5(topic_id, f"handover/{topic_partition.partition}/{use}").hex
        return log_dir / names.partition_dir_name(topic_partition, names.DirKind.DELETE, unique)

    return named("copy"), named("aside")


def _copy_files(fs: FileSystem, source: Path, copy: Path, like: Path, check_done: Callable[[], None]) -> None:
    """
    Copy the files of a log, durably, with their times; copies share the disk's blocks where the file system allows it.

    Never by hard links: the broker appends to the last segment, cuts it and rewrites indexes, and owns its own files.
    """
    found = [name for name in fs.list_files(source) if is_log_file(name)]
    sizes = {name: fs.stat(source / name).st_size for name in found}
    is_cloned = True
    for name in found:
        check_done()
        with fs.open(source / name) as file:
            _require_owner(fs, source, file)
            # Searched in the source, so that an error about damage names a file that stays.
            later = _positions_of_later_epochs(fs, source, name) if name.endswith(names.LOG) else ()
            is_cloned = is_cloned and clone(fs, file, copy / name, like=like)
            if not is_cloned:
                require_room(fs, copy, sum(sizes.values()), overhead_bytes=0)
                write_range(fs, file, 0, file.size(), copy / name, like=like)
            _begin_epochs(fs, copy / name, later)
            fs.set_mtime_ns(copy / name, file.stat().st_mtime_ns)
        del sizes[name]
    fs.fsync_all(copy, found)


def _require_owner(fs: FileSystem, directory: Path, file: File) -> None:
    """Refuse a file whose owner is not its directory's: root would read it for a user who may not."""
    mine, owner = file.stat().st_uid, fs.stat(directory).st_uid
    if mine != owner:
        raise HandoverRefusedError(file.path, f"belongs to user {mine}, and its directory to user {owner}")


def _begin_epochs(fs: FileSystem, path: Path, positions: Sequence[int]) -> None:
    """
    Set the leader epoch of the batches at some byte positions of a copied segment to the first one.

    Our epochs count openings of the log, a cluster's count elections. A broker that becomes leader with a lower epoch
    than the log's last one forgets where the higher epochs began. It could then never tell a follower that has those
    epochs in its batches where the two logs diverge.
    """
    if positions:
        with fs.open(path, write=True) as file:
            for position in positions:
                file.write(_FIRST_EPOCH.to_bytes(4, "big"), position + LEADER_EPOCH_AT)  # no checksum covers it


def _positions_of_later_epochs(fs: FileSystem, directory: Path, name: str) -> Sequence[int]:
    found: list[int] = []
    for chunk in Segment.open(fs, directory, names.offset_of(name)).chunks():
        batches = chunk.batches
        later = (batches["magic"] == MAGIC) & (batches["leader_epoch"] > _FIRST_EPOCH)
        found += batches["position"][later].tolist()
    return found
