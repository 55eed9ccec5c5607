"""
Log dirs held by a writer: created if missing, locked, marker removed, checkpoints written, closed in order.

    open     writes `meta.properties` if the directory is new; takes the lock, which ends a cleaner's rounds; remembers
             and removes the clean-shutdown marker, durably, before anything else changes
    at work  every log is loaded: a cleaner may run (`admit_cleaner`); offsets are written at intervals
    close    writes the offsets, writes the marker if every log was closed in order, releases the lock

The writer owns three checkpoints. Without replicas, high watermark and recovery point are both the flushed offset.
Invariant: a line never names more than is on disk. To cut a log the writer first lowers its flushed offset, then the
lines, then cuts; lines are computed while no other thread can write them, so that a line from before the cut cannot be
written after it.

The log dirs of one node are opened together, all or none (`open_dirs`).

Source: rules R-101, R-106, R-110 to R-118; `docs/coexistence.md`.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cleaner.base import arguments
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import ConfigError, LogDirOfflineError, UsageError
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from cleaner.storage.files.published import Publisher
from cleaner.storage.fs.file_system import FileSystem, once_each, real_path
from cleaner.storage.fs.new_dir import make_durable_dir
from cleaner.storage.lock.log_dir_lock import LogDirLock, acquire_for_writing
from cleaner.storage.log_dir import LogDir, OffsetKind, find_conflicts
from cleaner.storage.segment.generation import Generations
from cleaner.storage.segment.names import META_PROPERTIES, DirKind
from cleaner.storage.which_dir import require_log_dir

_PATIENCE_MS = 30_000
"""A cleaner's round ends at its next buffer, but may have a swap to finish."""

_DIRECTORY_MODE = 0o755
_FIRST_NODE = 1  # as in the `server.properties` that Kafka comes with

PathLike = str | os.PathLike[str]

Offsets = Callable[[], Mapping[TopicPartition, int | None]]
"""Returns lines of a checkpoint; called while no other thread or process changes the file."""


def new_uuid() -> uuid.UUID:
    """Return a random id whose text, as Kafka's, does not begin with a dash: commands would read that as an option."""
    while True:
        chosen = uuid.uuid4()
        if not format_uuid(chosen).startswith("-"):
            return chosen


def make_log_dir(fs: FileSystem, path: Path, identity: MetaProperties) -> MetaProperties:
    """
    Make a log dir as `kafka-storage format` does, with its own id; a directory that has an identity keeps it.

    Args:
        fs: the file system.
        path: the directory; it may exist, its parent must.
        identity: cluster and node, version 1.
    Returns:
        The contents of its `meta.properties`.
    Raises:
        UsageError: the parent does not exist, or `path` is no directory.
        CorruptCheckpointError: its `meta.properties` is damaged.
        LogDirOfflineError, NoSpaceError: the disk.
    """
    if fs.exists(path) and not path.is_dir():
        raise UsageError(f"{path}: not a directory")
    try:
        make_durable_dir(fs, path, _DIRECTORY_MODE)
    except LogDirOfflineError as error:
        if isinstance(error.cause, FileNotFoundError):
            raise UsageError(f"{path}: its parent directory does not exist") from error
        raise
    found = read_meta_properties(fs, path / META_PROPERTIES)
    if found is None:
        found = replace(identity, version=1, directory_id=new_uuid())
        write_meta_properties(fs, path / META_PROPERTIES, found)
    return found


def identify(fs: FileSystem, paths: Iterable[Path], cluster_id: str | None, node_id: int | None) -> MetaProperties:
    """
    Return cluster and node for new log dirs: those of the existing log dirs, else the given ones, else new ones.

    Raises:
        UsageError: the log dirs belong to different clusters or nodes, or to others than the given ones.
        CorruptCheckpointError: a damaged `meta.properties`.
    """
    found = [(path, read_meta_properties(fs, path / META_PROPERTIES)) for path in paths]
    known = [(path, each) for path, each in found if each is not None and each.cluster_id is not None]
    for path, each in known:
        first_path, first = known[0]
        if (each.cluster_id, each.node_id) != (first.cluster_id, first.node_id):
            raise UsageError(f"{path} and {first_path} belong to different clusters or nodes")
        if cluster_id is not None and each.cluster_id != cluster_id:
            raise UsageError(f"{path} belongs to cluster {each.cluster_id}, not to {cluster_id}")
    if known:
        return replace(known[0][1], version=1)
    return MetaProperties(1, cluster_id or format_uuid(new_uuid()), _FIRST_NODE if node_id is None else node_id)


class DirState:
    """
    A log dir that is written to; the lock is held from creation until `close` or `abandon`.

    Args:
        fs: the file system.
        path: the directory.
        clock: for waits.
    Attributes:
        log_dir: its files.
        was_closed: it had the clean-shutdown marker: nothing has to be recovered.
        generations: how readers learn of swaps.
        published: how readers in other processes learn of high watermarks.
    Raises:
        LogDirLockedError: a broker or another writer has the lock, or a cleaner does not release it.
        CorruptCheckpointError, UncleanableError: a file of the whole directory is not sound; nothing was changed.
        LogDirOfflineError, NoSpaceError: the disk.
    """

    def __init__(self, fs: FileSystem, path: Path, clock: Clock) -> None:
        self.log_dir = LogDir(fs, path)
        self._fs = fs
        self._lock: LogDirLock = acquire_for_writing(fs, self.log_dir.path, clock, patience_ms=_PATIENCE_MS)
        with contextlib.ExitStack() as undone:
            undone.callback(self._lock.release)
            self.log_dir.check()
            self.generations = Generations(fs, self.log_dir.path)
            undone.callback(self.generations.close)
            self.published = Publisher(fs, self.log_dir.path)
            undone.callback(self.published.close)
            self.was_closed = self.log_dir.has_clean_shutdown_marker()
            self.log_dir.remove_marker()
            undone.pop_all()

    @property
    def path(self) -> Path:
        """The directory, links followed."""
        return self.log_dir.path

    @property
    def may_be_marked(self) -> bool:
        """
        Tell whether a marker would be true, once all logs that are served here are closed.

        With a marker a broker also trusts directories that are not served here: copies from another log dir, stray
        directories, links. After an unclean stop no process has recovered those.
        """
        found = self.log_dir.listing()
        strays = [name for name in found.delete_or_stray if not name.endswith(DirKind.DELETE.value)]
        return self.was_closed or not (found.future or found.linked or strays)

    def admit_cleaner(self) -> None:
        """Let rounds begin next to this writer: every log is loaded, recovered and settled."""
        self._lock.logs.admit_cleaner()

    def still_held(self) -> None:
        """Raise LogDirLockedError when the lock was lost."""
        self._lock.still_held()

    def note(self, kind: OffsetKind, offsets: Offsets) -> None:
        """
        Write the checkpoint lines of this writer's logs, durably.

        Raises:
            LogDirLockedError: the lock was lost: the files may belong to another process.
            CorruptCheckpointError, LogDirOfflineError, NoSpaceError: see `LogDir.put_all`.
        """
        self.still_held()
        self.log_dir.put_all(kind, offsets)

    def close(self, *, in_order: bool) -> None:
        """
        Leave the log dir.

        Args:
            in_order: every log in it was loaded, and closed without an error: the next start may trust all of it.
        """
        try:
            if in_order:
                self.still_held()
                self.log_dir.write_marker()
        finally:
            self.abandon()

    def restore(self) -> None:
        """Release an unchanged log dir, with the marker it had at the opening."""
        self.close(in_order=self.was_closed)

    def abandon(self) -> None:
        """Release the log dir and leave it as it is, as a killed process would."""
        self.generations.close()
        self.published.close()
        self._lock.release()


def paths_of(log_dirs: PathLike | Sequence[PathLike]) -> list[Path]:
    """
    Return the directories, each once.

    Raises:
        UsageError: none, or two names for one directory (R-101).
    """
    is_one = isinstance(log_dirs, str | bytes | os.PathLike) or not isinstance(log_dirs, Iterable)
    given = [log_dirs] if is_one else list(log_dirs)  # type: ignore[arg-type]  # each is looked at below
    paths = [arguments.path("log_dirs", path) for path in given]
    if not paths:
        raise UsageError("no log dir is named")
    if len(once_each(paths)) < len(paths):
        raise UsageError(f"{', '.join(map(str, paths))}: two of them are the same directory")
    return paths


def open_dirs(
    fs: FileSystem,
    clock: Clock,
    paths: Sequence[Path],
    settings: Mapping[str, str],
    *,
    create: bool,
    cluster_id: str | None,
) -> list[DirState]:
    """
    Lock log dirs for writing and take their markers away, all of them or none.

    Args:
        fs, clock: the disk and the time.
        paths: the directories.
        settings: `node.id` (or `broker.id`) is used, for new ones.
        create: make missing directories, and give an identity to those without one.
        cluster_id: for new ones.
    Raises:
        UsageError: one is no log dir, or they do not belong together.
        CleanerError: see `DirState`.
    """
    for path in paths:
        require_log_dir(fs, path, may_be_new=create)
    there = [path for path in paths if path.is_dir()]
    identity = identify(fs, there, cluster_id, _node_id(settings))
    if create:
        for path in paths:
            make_log_dir(fs, path, identity)
    states: list[DirState] = []
    try:
        # Always in the same order, so that two processes with the same directories cannot each get one of them.
        for path in sorted(real_path(path) for path in paths):
            states.append(DirState(fs, path, clock))
        if len(states) > 1:
            conflicts = find_conflicts([state.log_dir for state in states])
            directories = [str(conflict) for conflict in conflicts if conflict.what == "directory"]
            if directories:
                raise UsageError("; ".join(directories))
    except BaseException:
        for state in states:
            state.restore()
        raise
    return states


def _node_id(settings: Mapping[str, str]) -> int | None:
    for key in ("node.id", "broker.id"):
        text = settings.get(key, "").strip()
        if text:
            try:
                return int(text)
            except ValueError:
                raise ConfigError(key, text, "must be an integer") from None
    return None
