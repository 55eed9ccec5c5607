"""
A log dir: the partitions in it, its four offset checkpoints and its clean-shutdown marker.

    log dir/
        cleaner-offset-checkpoint           first offset not yet cleaned
        recovery-point-offset-checkpoint    first offset not known to be on disk
        replication-offset-checkpoint       high watermark
        log-start-offset-checkpoint         log start, where it lies inside the first segment
        .kafka_cleanshutdown                only after a clean stop
        orders-0/  orders-1/ ...            one directory a partition

Partitions and checkpoints are read again on every call: the directory is the truth. With thousands of partitions,
sorting and parsing take far longer than reading, so their result is kept and reused while names or bytes are the same.

Source: rules R-102, R-105, R-106, R-112 to R-118, R-440, R-442, D-07, D-12, D-14.
"""

from __future__ import annotations

import enum
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cleaner.base import concurrency
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, UncleanableError, UsageError
from cleaner.storage.files.checkpoint import (
    CHECKPOINT_LIMIT_BYTES,
    parse_offset_checkpoint,
    read_bounded,
    write_offset_checkpoint,
)
from cleaner.storage.files.meta_properties import MetaProperties, read_meta_properties
from cleaner.storage.fs.file_system import FileSystem, disk_errors, real_path
from cleaner.storage.segment import names

if TYPE_CHECKING:
    from cleaner.storage.lock.lock_probe import LockReport

NEVER_FOLLOWED = "a symbolic link, which is never followed"  # said by whatever meets such a partition's directory
_MARKER = b'{"version":0,"brokerEpoch":-1}'  # as Kafka writes it (CleanShutdownFileHandler.java); -1: no broker did


class OffsetKind(enum.Enum):
    """The four offset checkpoints of a log dir; the value is the file's name."""

    CLEANER = names.CLEANER_CHECKPOINT
    RECOVERY_POINT = names.RECOVERY_POINT_CHECKPOINT
    HIGH_WATERMARK = names.HIGH_WATERMARK_CHECKPOINT
    LOG_START = names.LOG_START_CHECKPOINT


class Use(enum.Enum):
    """
    How a log dir is used; this determines what a load of its logs would find.

    CLOSED: there is a clean-shutdown marker, so the logs are as they were closed. WRITTEN: one of our writers is at
    work; a log is loaded as it was when its active segment began. SERVED: another process has it open. TORN: no process
    has it open and there is no marker; a recovery comes first, which takes a snapshot at the log end.
    """

    CLOSED = enum.auto()
    WRITTEN = enum.auto()
    SERVED = enum.auto()
    TORN = enum.auto()


def must_be_recovered(use: Use, logs: Collection[object]) -> bool:
    """Tell whether the logs of a log dir must be recovered first; without a log there is none that could be torn."""
    return use is Use.TORN and bool(logs)


@dataclass(frozen=True)
class LogDirListing:
    """
    The directories of a log dir, by what they are.

    Attributes:
        current: the partitions served from here; the only ones that may be cleaned.
        future: copies being moved here from another log dir.
        delete_or_stray: names of `-delete` and `-stray` directories, left alone.
        linked: current partitions that are symbolic links; they are listed but never opened.
    """

    current: dict[TopicPartition, Path] = field(default_factory=dict)
    future: dict[TopicPartition, Path] = field(default_factory=dict)
    delete_or_stray: list[str] = field(default_factory=list)
    linked: dict[TopicPartition, Path] = field(default_factory=dict)

    def left_out(self, topic: str | None = None) -> list[str]:
        """Return a sentence for each link, or each of a topic, for the user of what works on all other partitions."""
        links = (path for each, path in sorted(self.linked.items()) if topic in (None, each.topic))
        return [f"{path}: left out: {NEVER_FOLLOWED}" for path in links]

    def find(self, topic_partition: TopicPartition, log_dir: Path) -> Path:
        """
        Return the directory of a partition that was named.

        Raises:
            UsageError: there is none in `log_dir`, whose listing this is, or it is a symbolic link.
        """
        if topic_partition in self.linked:
            raise UsageError(f"{self.linked[topic_partition]}: {NEVER_FOLLOWED}")
        if topic_partition not in self.current:
            likely = did_you_mean(str(topic_partition), map(str, self.current))
            raise UsageError(f"{log_dir}: no partition {topic_partition}{likely}")
        return self.current[topic_partition]

    def link_of(self, topic: str) -> Path | None:
        """Return a partition of a topic that is a link, the first; None without one."""
        return next((path for each, path in sorted(self.linked.items()) if each.topic == topic), None)


class LogDir:
    """
    One entry of `log.dirs`. Safe to share between threads.

    Args:
        fs: the file system.
        path: the directory; a link to it is followed once, here.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.fs = fs
        self.path = real_path(path)
        # Held while a checkpoint is read, changed and written, so that two rounds do not undo each other's lines.
        self._lock = concurrency.RLock()
        # The last results of parsing and listing; each is replaced as a whole.
        self._parsed: dict[OffsetKind, tuple[bytes, Mapping[TopicPartition, int]]] = {}
        self._listed: tuple[Sequence[str], LogDirListing] | None = None
        # Checkpoints whose last write has failed: what is there may not be on disk, though it is what is wanted.
        self._doubtful: set[OffsetKind] = set()

    def listing(self, on_fault: Callable[[UncleanableError], None] | None = None) -> LogDirListing:
        """
        List the sub-directories by kind.

        Args:
            on_fault: called for each refused directory, which is then left out; None raises.
        Raises:
            UncleanableError: a name with which no broker would start (R-102), or two directories for one partition
                (R-105).
            LogDirOfflineError: the directory cannot be listed.
        """
        found = LogDirListing()
        with disk_errors(self.path):
            entries = self.fs.list_dirs(self.path)
        for name in entries:
            try:
                self._classify(found, name)
            except UncleanableError as error:
                if on_fault is None:
                    raise
                on_fault(error)
        return found

    def _classify(self, found: LogDirListing, name: str) -> None:
        path = self.path / name
        try:
            mode = self.fs.stat(path).st_mode
        except FileNotFoundError:
            return  # removed since the directory was listed
        is_link = stat.S_ISLNK(mode)
        if name == names.REMOTE_LOG_INDEX_CACHE or not (stat.S_ISDIR(mode) or is_link):
            return
        try:
            topic_partition, kind = names.parse_partition_dir(name)
        except ValueError as error:
            if is_link:
                return
            raise UncleanableError(
                path, f"{error}; a broker does not start with such a directory in a log dir"
            ) from error
        if topic_partition.topic == names.METADATA_TOPIC:
            return
        if kind in (names.DirKind.DELETE, names.DirKind.STRAY):
            found.delete_or_stray.append(name)
            return
        if kind is names.DirKind.FUTURE:
            pools, pool = [found.future], found.future
        else:
            pools, pool = [found.current, found.linked], found.linked if is_link else found.current
        for other in (pool[topic_partition] for pool in pools if topic_partition in pool):
            raise UncleanableError(path, f"{other.name} is a directory of the same partition; a broker would not start")
        pool[topic_partition] = path

    def partitions(self) -> dict[TopicPartition, Path]:
        """Return the directories of the partitions that may be cleaned; raises as `listing`."""
        return self.listing().current

    def offsets(self, kind: OffsetKind) -> dict[TopicPartition, int]:
        """
        Read one of the four checkpoints; a missing or empty file is an empty map.

        Raises:
            CorruptCheckpointError: the file is damaged. It has lines for all partitions, so none may be cleaned.
        """
        path = self.path / kind.value
        data = read_bounded(self.fs, path, CHECKPOINT_LIMIT_BYTES) or b""
        parsed = self._parsed.get(kind)
        if parsed is None or parsed[0] != data:
            parsed = self._parsed[kind] = (data, parse_offset_checkpoint(data, path))
        return dict(parsed[1])

    @property
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """First dirty offsets (R-115)."""
        return self.offsets(OffsetKind.CLEANER)

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """First offsets that may not be flushed (R-116)."""
        return self.offsets(OffsetKind.RECOVERY_POINT)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks (R-117)."""
        return self.offsets(OffsetKind.HIGH_WATERMARK)

    @property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Log start offsets that are not their first segment's base offset (R-118)."""
        return self.offsets(OffsetKind.LOG_START)

    def put(self, kind: OffsetKind, topic_partition: TopicPartition, offset: int | None) -> bool:
        """Set one partition's line, or drop it (None); True when the file changed. See `put_all`."""
        return self.put_all(kind, {topic_partition: offset})

    def put_all(
        self,
        kind: OffsetKind,
        changes: Mapping[TopicPartition, int | None] | Callable[[], Mapping[TopicPartition, int | None]],
        *,
        coming: Collection[TopicPartition] = (),
    ) -> bool:
        """
        Set or drop (None) partitions' lines and write the checkpoint durably; True when the file changed.

        If the values may change at any time, pass a function: it is called while no other thread can write the
        checkpoint, so that an older value never overwrites a newer one.

        Lines of partitions without a directory here are dropped (D-12): a broker whose two log dirs name one partition
        loses all its cleaner threads (R-442). Partitions of `coming` are about to get a directory. Nothing is written
        if nothing changes.

        Raises:
            CorruptCheckpointError: the file on disk is damaged; it is left as it is.
            LogDirOfflineError, NoSpaceError: the disk.
        """
        with self._lock:
            found = self._listing_of_names()
            present = found.current.keys() | found.linked.keys() | set(coming)
            if kind is not OffsetKind.CLEANER:
                present |= found.future.keys()  # a future copy is never cleaned, but flushed and recovered
            before = self.offsets(kind)
            wanted = {**before, **(changes() if callable(changes) else changes)}
            after = {tp: offset for tp, offset in wanted.items() if offset is not None and tp in present}
            if after == before:
                if kind in self._doubtful:
                    self.fs.fsync_dir(self.path)
                    self._doubtful.discard(kind)
                return False
            self._doubtful.add(kind)
            self._parsed[kind] = (write_offset_checkpoint(self.fs, self.path / kind.value, after), after)
            self._doubtful.discard(kind)
            return True

    def _listing_of_names(self) -> LogDirListing:
        """Return `listing`, or the last result if the names are the same."""
        with disk_errors(self.path):
            found = self.fs.list_dirs(self.path)
            if self._listed is None or self._listed[0] != found:
                self._listed = None
                listing = self.listing()
                # Do not keep it if a name appeared or vanished during the listing: it might stay wrong for long.
                if self.fs.list_dirs(self.path) != found:
                    return listing
                self._listed = (found, listing)
            return self._listed[1]

    def meta_properties(self) -> MetaProperties | None:
        """Read `meta.properties`; None for a bare copy."""
        return read_meta_properties(self.fs, self.path / names.META_PROPERTIES)

    def check(self) -> None:
        """
        Read everything that concerns the directory as a whole, so that damage is found before anything is changed.

        Raises:
            CorruptCheckpointError: a damaged checkpoint or `meta.properties`.
            UncleanableError: as `listing`.
        """
        self.meta_properties()
        for kind in OffsetKind:
            self.offsets(kind)
        self.listing()

    # The marker promises that every byte of the log dir may be trusted: a broker that finds it skips recovery. So it
    # may be written only after all logs were loaded or recovered without error and everything is on disk.

    def has_clean_shutdown_marker(self) -> bool:
        """Tell whether the directory was shut down cleanly; only the marker's existence counts (R-112, D-02)."""
        return self.fs.exists(self.path / names.CLEAN_SHUTDOWN)

    def use(self, *, has_writer: bool, is_held: bool = False) -> Use:
        """Return how the log dir is used, by its marker and by the processes that have it open."""
        if has_writer:
            return Use.WRITTEN
        if self.has_clean_shutdown_marker():
            return Use.CLOSED
        return Use.SERVED if is_held else Use.TORN

    def look(self) -> tuple[LockReport, Use]:
        """
        Return who holds the lock, and how the log dir is used, without locking anything.

        A writer removes the marker once it has the lock. Without either both are asked again: one may have come.
        """
        from cleaner.storage.lock.lock_probe import LockHolder, probe  # readers elsewhere than on Linux go without

        for _ in range(2):
            lock = probe(self.fs, self.path)
            use = self.use(has_writer=lock.has_writer, is_held=lock.holder is not LockHolder.NOBODY)
            if use is not Use.TORN:
                break
        return lock, use

    def write_marker(self) -> None:
        """Write the clean-shutdown marker with no broker epoch, durably: a lost one would cost a needless recovery."""
        self.fs.write_atomically(self.path / names.CLEAN_SHUTDOWN, _MARKER)

    def remove_marker(self) -> None:
        """
        Remove the clean-shutdown marker durably, if there is one.

        Invariant: the removal is on disk before the first change that makes a log need recovery. A marker that a power
        cut brings back would let a broker trust a torn log. Without a marker the names are forced to disk, too: a
        process before may have changed them, and got an error when it did so.
        """
        if self.has_clean_shutdown_marker():
            self.fs.remove(self.path / names.CLEAN_SHUTDOWN)
        self.fs.fsync_dir(self.path)


class CachedLogDir(LogDir):
    """
    A log dir that reads each checkpoint only once: for inspecting all of its logs.

    Reading a checkpoint with thousands of lines again for every log would take most of the time.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        super().__init__(fs, path)
        self._offsets: dict[OffsetKind, dict[TopicPartition, int]] = {}

    def offsets(self, kind: OffsetKind) -> dict[TopicPartition, int]:
        """Return the checkpoint as first read; do not change the result. Raises as `LogDir.offsets`."""
        if kind not in self._offsets:
            self._offsets[kind] = super().offsets(kind)
        return self._offsets[kind]


class Conflict(NamedTuple):
    """
    A partition that two log dirs of one broker claim (D-14); prints as a sentence.

    `what` is "directory" (a broker does not start, R-105) or "cleaner-offset-checkpoint" (its cleaner threads die,
    R-442). In the second case, `droppable` lists the log dirs without the partition: their line can be dropped.
    """

    topic_partition: TopicPartition
    what: str
    log_dirs: tuple[Path, ...]
    droppable: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.topic_partition} has {self._claims()}"

    def _claims(self) -> str:
        places = " and ".join(str(path) for path in self.log_dirs)
        return f"{'a directory' if self.what == 'directory' else f'a line in {self.what}'} in {places}"

    @property
    def why_not_cleaned(self) -> str:
        """
        Why the partition is left alone; empty: it is not, as only a line of a checkpoint is there twice.

        No broker starts with two directories, and one of them is old, or a copy. Until the operator has removed that,
        neither loses anything to a round: then the two can still be compared.
        """
        if self.what != "directory":
            return ""
        why = "a broker would not start, and which is right is unknown; move one away"
        return f"its partition has {self._claims()}: {why}"


def find_conflicts(
    log_dirs: Sequence[LogDir], on_fault: Callable[[CleanerError | OSError], None] | None = None
) -> list[Conflict]:
    """
    List the partitions that are in more than one of a broker's log dirs (D-14). Changes nothing.

    Args:
        log_dirs: all of them.
        on_fault: called for each one of which its lines, or anything, cannot be read; that is left out. None raises.
    Raises:
        CorruptCheckpointError, UncleanableError: as `LogDir.offsets` and `LogDir.listing`.
    """
    directories: dict[Path, Set[TopicPartition]] = {}
    lines: dict[Path, Set[TopicPartition]] = {}
    for log_dir in log_dirs:
        try:
            found = log_dir.listing()
            directories[log_dir.path] = found.current.keys() | found.linked.keys()
            lines[log_dir.path] = log_dir.cleaner_offsets.keys()  # last: the directories count without it
        except (CleanerError, OSError) as error:
            if on_fault is None:
                raise
            on_fault(error)
    return conflicts_of(directories, lines)


def conflicts_of(
    directories: Mapping[Path, Set[TopicPartition]], lines: Mapping[Path, Set[TopicPartition]]
) -> list[Conflict]:
    """
    List the partitions that are in more than one log dir.

    Args:
        directories: by log dir, the partitions that have a directory there.
        lines: by log dir, the partitions with a line in `cleaner-offset-checkpoint`.
    """
    conflicts = [Conflict(tp, "directory", paths, ()) for tp, paths in _claimed_twice(directories)]
    for tp, paths in _claimed_twice(lines):
        droppable = tuple(path for path in paths if tp not in directories[path])
        conflicts.append(Conflict(tp, names.CLEANER_CHECKPOINT, paths, droppable))
    return conflicts


def _claimed_twice(
    claims: Mapping[Path, Set[TopicPartition]],
) -> list[tuple[TopicPartition, tuple[Path, ...]]]:
    counts = Counter(chain.from_iterable(claims.values()))
    twice = sorted(tp for tp, count in counts.items() if count > 1)
    return [(tp, tuple(path for path, partitions in claims.items() if tp in partitions)) for tp in twice]
