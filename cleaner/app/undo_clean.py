"""
`undo`: puts back segments that `clean --keep-old` has kept, if nothing was appended or cleaned since.

    1. everything is checked: the kept files, the segments that replaced them, the active segment
    2. the cleaner checkpoint is set back: from here on the range counts as dirty, which is always safe
    3. group by group, the last one swapped first, the old segments replace the new one (`swap_apart.py`)
    4. the manifest gets the name of an undone one, the kept files are removed, and then it

The last one goes first because an expired tombstone of a later group has deleted records of an earlier one. If the
earlier group were put back first, a crash would leave the records without the tombstone, and a deleted key would
return.

A crash leaves each group new or old; the same command finishes, and says which partitions were undone already. Kafka's
loader accepts the state after any crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

from cleaner.app import load_partition
from cleaner.app.kept_before import is_kept
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import Session, as_cleaner_errors, attempt, open_session, parse_names
from cleaner.base.model import TopicPartition
from cleaner.errors import NotCleanlyShutDownError, UndoRefusedError, UsageError, as_value
from cleaner.settings.sources import Sources
from cleaner.state.kept_manifest import KeptFile, KeptGroup, KeptPartition, is_group_name, manifest
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem, real_path
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.lock.log_dir_lock import LockMode
from cleaner.storage.log_dir import LogDirListing, Use
from cleaner.storage.segment import names
from cleaner.storage.swap.backup import crc32_of, keep_files
from cleaner.storage.swap.swap import replace_by_several


@dataclass(frozen=True)
class UndoReport:
    """
    The segments put back in one partition.

    Attributes:
        partition: as its directory is named.
        log_dir: where.
        was_undone: an earlier undo, which was interrupted, had put everything back.
        groups: how many were put back; groups that were never swapped, or were put back before, do not count.
        segments, bytes: of the `.log` files put back.
        checkpoint: the line in `cleaner-offset-checkpoint` now; None for none.
    """

    partition: str
    log_dir: str
    groups: int
    segments: int
    bytes: int
    checkpoint: int | None
    was_undone: bool = False


def log_dir_of(fs: FileSystem, kept_dir: Path) -> Path:
    """
    Return the log dir that a directory keeps segments of.

    Raises:
        UsageError: it keeps none, or segments of several log dirs.
        UndoRefusedError: a manifest is damaged.
    """
    there = _manifests(fs, kept_dir)
    found = {kept.log_dir for _, kept, is_undone in there if kept is not None and not is_undone}
    # What another log dir's undo has left undone needs no more than to be removed, by the next undo.
    found = found or {kept.log_dir for _, kept, _ in there if kept is not None}
    if len(found) == 1:
        return Path(found.pop())
    if not found and there:
        raise _without_manifest(there[0][0])
    if is_kept(fs, kept_dir):
        raise UsageError(
            f"{kept_dir}: keeps one partition's segments; name the directory above, {real_path(kept_dir).parent}"
        )
    none = "no segments; `clean --keep-old` fills it, and an undo that has ended leaves it empty"
    what = "segments of several log dirs" if found else none
    raise UsageError(f"{kept_dir}: keeps {what}")


def undo_clean(kept_dir: Path, sources: Sources, context: CallContext) -> Iterator[UndoReport | Refusal]:
    """
    Put back the kept segments of a directory, partition by partition.

    Raises:
        UsageError, UndoRefusedError: as `log_dir_of`.
        NotCleanlyShutDownError: no clean-shutdown marker: the logs may be torn.
        LogDirLockedError: the log dir is in use.
    """
    fs, kept_dir = context.fs, real_path(kept_dir)
    log_dir = log_dir_of(fs, kept_dir)
    with (
        as_cleaner_errors(log_dir),
        fs.hold(kept_dir),
        open_session(log_dir, sources, context, mode=LockMode.SHARED) as session,
    ):
        if session.use is Use.TORN:
            raise NotCleanlyShutDownError(
                f"{log_dir}: no clean-shutdown marker (.kafka_cleanshutdown), so its logs may be torn; recover them "
                "first (cleaner recover)"
            )
        found = session.log_dir.listing()
        for directory, kept, is_undone in _manifests(fs, kept_dir):
            if kept is None:
                yield Refusal(directory.name, as_value(_without_manifest(directory)))
                continue
            (name,) = parse_names([kept.partition])
            if is_undone and Path(kept.log_dir) != log_dir:
                continue
            if is_undone:
                yield attempt(name, directory, partial(_finish, session, name, directory, kept))
            else:
                yield attempt(name, directory, partial(_undo, session, found, name, directory, kept))


def _without_manifest(directory: Path) -> UndoRefusedError:
    """Return the error for kept segments of which nothing says where they were."""
    reason = (
        "there is none beside the kept segments, so nothing says where they belong: bring it back from a copy. A crash "
        "before the first swap of a round leaves them so, too: then the log is as it was before the round, and "
        f"{quote(str(directory))} can be removed"
    )
    return UndoRefusedError(directory / names.KEPT_MANIFEST, reason)


def _manifests(fs: FileSystem, kept_dir: Path) -> list[tuple[Path, KeptPartition | None, bool]]:
    """
    Return the directories that keep a partition's segments, with the manifest, and whether they are undone.

    The manifest is None if it is not there.
    """
    if not kept_dir.is_dir():
        raise UsageError(f"{kept_dir}: {'not a directory' if kept_dir.exists() else 'no such directory'}")
    found: list[tuple[Path, KeptPartition | None, bool]] = []
    for directory in (kept_dir / name for name in fs.list_dirs(kept_dir)):
        if (kept := _read(manifest(fs, directory))) is not None:
            found.append((directory, kept, False))
        elif (kept := _read(manifest(fs, directory, names.UNDONE_MANIFEST))) is not None:
            found.append((directory, kept, True))
        elif any(_keeps_segments(fs, directory / name) for name in fs.list_dirs(directory) if is_group_name(name)):
            found.append((directory, None, False))
    return found


def _keeps_segments(fs: FileSystem, group: Path) -> bool:
    """Tell whether files of segments are there; an undo leaves others in place."""
    return any(names.parse_file_name(name) is not None for name in fs.list_files(group))


def _read(file: StateFile[KeptPartition]) -> KeptPartition | None:
    try:
        return file.peek()
    except BadStateError as error:
        raise UndoRefusedError(file.path, str(error)) from error


def _finish(session: Session, name: TopicPartition, kept_dir: Path, kept: KeptPartition) -> UndoReport:
    """Remove what an undo has left that was interrupted when all was put back; the log may have moved on since."""
    with session.context.fs.hold(kept_dir):
        _remove_undone(session.context.fs, kept_dir)
    line = session.log_dir.cleaner_offsets.get(name)
    return UndoReport(str(name), kept.log_dir, 0, 0, 0, line, was_undone=True)


def _undo(
    session: Session, found: LogDirListing, name: TopicPartition, kept_dir: Path, kept: KeptPartition
) -> UndoReport:
    directory = found.find(name, session.log_dir.path)
    with session.context.fs.hold(directory), session.context.fs.hold(kept_dir):
        return _undo_held(session, name, directory, kept_dir, kept)


def _undo_held(
    session: Session, name: TopicPartition, directory: Path, kept_dir: Path, kept: KeptPartition
) -> UndoReport:
    context = session.context
    log = load_partition.load(
        session,
        name,
        directory,
        session.topic(name, directory).config,
        now_ms=context.clock.now_ms(),
        clean_shutdown=True,
        high_watermark="end",
    )
    _check_active(log, kept)
    todo = _groups_to_undo(context.fs, log, kept_dir, kept)
    log.settle(context.fs, partial(session.swapping, name))
    has_moved = session.log_dir.cleaner_offsets.get(name) != kept.checkpoint
    if has_moved:
        with session.partition_lock(name):
            log.require_in_place()
            session.put_cleaner_offset(name, kept.checkpoint)
    for group in todo:
        session.check_done()
        with session.swapping(name):
            session.still_held()
            log.require_in_place()
            _put_back(context.fs, directory, kept_dir / group.directory, group)
    _put_back_snapshots(context.fs, directory, kept_dir, kept)
    _forget(context.fs, kept_dir)
    logs = [file for group in todo for file in group.old_logs.values()]
    size, was_undone = sum(file.bytes for file in logs), not todo and not has_moved
    return UndoReport(str(name), kept.log_dir, len(todo), len(logs), size, kept.checkpoint, was_undone)


def _check_active(log: LoadedLog, kept: KeptPartition) -> None:
    active = log.active_segment
    if (active.base_offset, active.size) != (kept.active_base, kept.active_bytes):
        raise UndoRefusedError(
            active.log_path,
            f"{active.size} bytes where the active segment was {kept.active_base} with {kept.active_bytes}: records "
            "were appended or cut since",
        )


def _groups_to_undo(fs: FileSystem, log: LoadedLog, kept_dir: Path, kept: KeptPartition) -> list[KeptGroup]:
    """
    Return the groups to put back, the last one swapped first, and make sure that each can be put back.

    A group whose old segments are on disk needs nothing: it was never swapped, or was put back before a crash. One of
    them that an earlier round made is gone again once the segments before that round are back.
    """
    on_disk = {segment.base_offset: segment for segment in log.segments}

    def look(base: int) -> tuple[int, int] | None:
        return crc32_of(fs, on_disk[base].log_path) if base in on_disk else None

    # The `.log` files after the groups handled so far have been put back.
    logs = {each: look(each) for each in {each for group in kept.groups for each in group.old_logs}}
    is_done, gone = list[bool](), set[tuple[int, KeptFile]]()
    for group in kept.groups:
        olds = group.old_logs.items()
        is_done.append(all(logs[each] == (file.bytes, file.crc32) or (each, file) in gone for each, file in olds))
        if is_done[-1]:
            gone.add(group.new_log)
    todo = []
    for group, is_put_back in zip(reversed(kept.groups), reversed(is_done), strict=True):
        base, new = group.new_log
        old = group.old_logs
        if is_put_back or all(logs[each] == (file.bytes, file.crc32) for each, file in old.items()):
            continue
        # Old segments that hold nothing new come back by themselves after a crash.
        others = ((logs[each], (file.bytes, file.crc32)) for each, file in old.items() if each != base)
        if logs[base] != (new.bytes, new.crc32) or any(found not in (None, was) for found, was in others):
            path = log.directory / new.name
            raise UndoRefusedError(
                path, "is not the file that the round wrote: it was cleaned again, deleted or changed"
            )
        _check_kept(fs, kept_dir / group.directory, group)
        logs |= {each: (file.bytes, file.crc32) for each, file in old.items()}
        todo.append(group)
    return todo


def _check_kept(fs: FileSystem, directory: Path, group: KeptGroup) -> None:
    for file in group.old:
        path = directory / file.name
        try:
            found = crc32_of(fs, path)
        except FileNotFoundError as error:
            raise UndoRefusedError(path, "the kept file is gone") from error
        if found != (file.bytes, file.crc32):
            raise UndoRefusedError(path, f"the kept file is damaged: {found[0]} bytes, {file.bytes} were kept")


def _put_back(fs: FileSystem, directory: Path, source: Path, group: KeptGroup) -> None:
    """Replace a group's new segment by its old ones."""
    files = [file.name for file in group.old if not file.name.endswith(names.SNAPSHOT)]
    keep_files(fs, source, directory, [(name, name + names.CLEANED) for name in files])
    replace_by_several(fs, directory, group.new_log[0], sorted(group.old_logs))


def _put_back_snapshots(fs: FileSystem, directory: Path, kept_dir: Path, kept: KeptPartition) -> None:
    """Put back the producer snapshots removed with segments; the first round that kept one kept the right one."""
    for group in kept.groups:
        for file in group.old:
            if file.name.endswith(names.SNAPSHOT) and not fs.exists(directory / file.name):
                fs.write_atomically(directory / file.name, fs.read_bytes(kept_dir / group.directory / file.name))


def _forget(fs: FileSystem, kept_dir: Path) -> None:
    """
    Remove the kept files; first the manifest says that they are undone.

    Durably: once records are appended, a manifest that a power cut has brought back would have `clean --keep-old`
    refuse the directory.
    """
    fs.rename(kept_dir / names.KEPT_MANIFEST, kept_dir / names.UNDONE_MANIFEST)
    fs.fsync_dir(kept_dir)
    _remove_undone(fs, kept_dir)


def _remove_undone(fs: FileSystem, kept_dir: Path) -> None:
    """
    Remove kept files that are undone, and last what says so.

    Files of a group that a crash kept out of the manifest are removed too. Files that belong to no segment stay.
    """
    for name in fs.list_dirs(kept_dir):
        if is_group_name(name):
            files = fs.list_files(kept_dir / name)
            fs.remove_all(kept_dir / name, [file for file in files if names.parse_file_name(file) is not None])
            _remove_if_empty(fs, kept_dir / name)
    fs.fsync_dir(kept_dir)  # else kept files could come back without it
    fs.remove(kept_dir / (names.KEPT_MANIFEST + UNFINISHED))
    fs.remove(kept_dir / names.UNDONE_MANIFEST)
    _remove_if_empty(fs, kept_dir)


def _remove_if_empty(fs: FileSystem, directory: Path) -> None:
    if not fs.list_dir(directory):
        fs.remove_dir(directory)
