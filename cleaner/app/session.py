"""A log dir opened for a command: locked, its own files checked, its settings read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.base import concurrency
from cleaner.base.io_throttle import IoThrottle
from cleaner.base.model import TopicPartition, name_without_place
from cleaner.config.values import CleanerConfig
from cleaner.errors import (
    CleanerError,
    CleaningAborted,
    LogDirLockedError,
    UncleanableError,
    UsageError,
    WriterWaitingError,
    as_value,
    disk_error,
    unexpected,
)
from cleaner.policy.kafka_version import ChosenVersion
from cleaner.settings import Given, ResolvedTopic, SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, once_each, real_path
from cleaner.storage.lock.lock_probe import LockHolder, probe
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock, acquire_for_cleaning
from cleaner.storage.lock.partition_lock import checkpoint_lock, partition_lock
from cleaner.storage.log_dir import Conflict, LogDir, OffsetKind, Use, find_conflicts
from cleaner.storage.segment.generation import raise_generation
from cleaner.storage.segment.names import LOCK, LOG, PARTITION_METADATA
from cleaner.storage.which_dir import require_log_dir

if TYPE_CHECKING:
    from cleaner.state.key_index_dir import KeyIndexDir  # loads kernels

Result = TypeVar("Result")


class SettingsLike(Protocol):
    """Settings of a log dir: a `SettingsResolver`, or something that follows them as they change."""

    @property
    def cleaner(self) -> CleanerConfig:
        """Those of the process."""

    @property
    def trusts_default_policy(self) -> bool:
        """Tell whether the operator trusts a default policy."""

    @property
    def kafka(self) -> ChosenVersion:
        """The Kafka version whose rules apply to the log dir."""

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """Return a topic's; raises ConfigError for a bad one."""


@dataclass(frozen=True)
class Session:
    """
    The objects that every step on a log dir needs.

    Attributes:
        log_dir: its files.
        settings: of its topics and of the process.
        context: the caller's file system, clock, progress and stop check.
        throttle: slows reading and writing, one for all partitions (R-715).
        lock: None if nothing is going to be changed.
        given: settings of the process that are not defaults, with their origin; may be left empty.
        key_index_dir: of key indexes; None: rounds read everything.
        conflicts: partitions that other log dirs of the broker claim, too (D-14).
    """

    log_dir: LogDir
    settings: SettingsLike
    context: CallContext
    throttle: IoThrottle
    lock: LogDirLock | None = None
    given: Mapping[str, Given] = field(default_factory=dict)
    key_index_dir: KeyIndexDir | None = None
    conflicts: Sequence[Conflict] = ()

    def require_one_directory(self, topic_partition: TopicPartition, directory: Path) -> None:
        """Raise UncleanableError if another log dir of the broker has a directory of the partition, too."""
        for conflict in self.conflicts:
            if conflict.topic_partition == topic_partition and conflict.why_not_cleaned:
                raise UncleanableError(directory, conflict.why_not_cleaned)

    @property
    def beside_writer(self) -> bool:
        """
        One of our writers is at work in the log dir; does not change during a round.

        Closing logs is then the writer's work; see `docs/coexistence.md`.
        """
        return self.lock is not None and self.lock.is_beside_writer

    @property
    def use(self) -> Use:
        """How the log dir was left: TORN if its logs must be recovered first. Looks for the marker each time."""
        return self.log_dir.use(has_writer=self.beside_writer)

    def topic(self, topic_partition: TopicPartition, directory: Path) -> ResolvedTopic:
        """
        Return the settings of a partition's topic.

        Raises:
            CorruptCheckpointError: `partition.metadata` is damaged.
            ConfigError: a bad setting.
        """
        topic_id = read_topic_id(self.context.fs, directory / PARTITION_METADATA)
        return self.settings.topic(topic_partition.topic, topic_id)

    def still_held(self) -> None:
        """Raise LogDirLockedError if the lock was lost; without a lock, do nothing."""
        if self.lock is not None:
            self.lock.still_held()

    def check_done(self) -> None:
        """
        Raise if the work must stop: to be called before each buffer and each partition.

        Raises:
            CleaningAborted: raised by the caller's `CallContext.check_done`.
            WriterWaitingError: a writer wants the logs; it gets them after the session is closed.
        """
        self.context.check_done()
        if self.lock is not None and self.lock.logs.is_writer_waiting():
            raise WriterWaitingError(f"{self.log_dir.path}: a writer is about to load the logs, so rounds stop")

    def partition_lock(self, topic_partition: TopicPartition) -> AbstractContextManager[object]:
        """
        Return the lock of a partition, for a `with` block: to be held while names in it change.

        If the log dir is not locked nothing is going to change, and this does nothing.

        Raises:
            LogChangedError: on entering: another process does not release it.
        """
        if self.lock is None:
            return contextlib.nullcontext()
        context = self.context
        return partition_lock(
            context.fs, self.log_dir.path, topic_partition, context.clock, check_done=context.check_done
        )

    @contextlib.contextmanager
    def swapping(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Hold the lock of a partition for a swap, and signal its readers to list it again."""
        with self.partition_lock(topic_partition):
            raise_generation(self.context.fs, self.log_dir.path, topic_partition)
            yield

    def put_cleaner_offset(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """
        Write, or drop (None), a partition's line in `cleaner-offset-checkpoint`; a writer that cuts the log lowers it.
        """
        context = self.context
        with checkpoint_lock(context.fs, self.log_dir.path, context.clock, check_done=context.check_done):
            self.log_dir.put(OffsetKind.CLEANER, topic_partition, offset)


@contextlib.contextmanager
def open_session(
    log_dir: Path, sources: Sources, context: CallContext, *, mode: LockMode | None = LockMode.SHARED
) -> Iterator[Session]:
    """
    Open a log dir for the length of a `with` block.

    Args:
        log_dir: the directory.
        sources: where settings come from.
        context: the caller's.
        mode: how to lock it. `SHARED` is for rounds, alone or next to a writer; `EXCLUSIVE` for a recovery, alone; None
            takes no lock and does not even create a lock file.
    Raises:
        UsageError: it is not a log dir; the message says what it is.
        LogDirLockedError: a live broker, another cleaner, or a writer that loads its logs.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound; nothing in it may be changed.
        ConfigError: a bad setting of the process.
    """
    fs, context = context.fs, replace(context, check_done=_one_at_a_time(context.check_done))
    require_log_dir(fs, log_dir)
    with contextlib.ExitStack() as stack:
        lock: LogDirLock | None = None
        if mode is LockMode.SHARED:
            lock = stack.enter_context(acquire_for_cleaning(fs, log_dir))
        elif mode is LockMode.EXCLUSIVE:
            lock = stack.enter_context(LogDirLock(fs, log_dir, mode, LockRole.CLEANER))
        directory = LogDir(fs, log_dir)
        directory.check()
        settings = SettingsResolver(fs, directory.path, sources)
        for warning in settings.warnings:
            context.warn(warning)
        conflicts = _conflicts(directory, settings, context.warn)
        throttle = IoThrottle(settings.cleaner.io_max_bytes_per_second, context.clock)
        yield Session(directory, settings, context, throttle, lock, settings.process_values, conflicts=conflicts)


def _one_at_a_time(check_done: Callable[[], None]) -> Callable[[], None]:
    """Let only one thread at a time call what may be a caller's own function: a round works in several."""
    lock = concurrency.RLock()

    def check() -> None:
        with lock:
            check_done()

    return check


def _conflicts(log_dir: LogDir, settings: SettingsResolver, warn: Callable[[str], None]) -> list[Conflict]:
    """
    Return conflicts between log dirs of the same broker (D-14), if the configuration names this one, and warn of them.

    One that cannot be read keeps no other from being worked on.
    """
    paths = [real_path(path) for path in once_each(map(Path, settings.cleaner.log_dirs))]
    if log_dir.path not in paths:
        return []

    def note(error: CleanerError | OSError) -> None:
        if not isinstance(getattr(error, "cause", error), FileNotFoundError | NotADirectoryError):
            warn(f"not searched for the same partitions: {error}")

    conflicts = find_conflicts([LogDir(log_dir.fs, path) for path in paths], note)
    for conflict in conflicts:
        warn(str(conflict))
    return conflicts


def require_unlocked(fs: FileSystem, log_dir: Path) -> None:
    """
    Make sure that a log dir could be locked, without a lock: for a dry run.

    Raises:
        LogDirLockedError: another process is at work in it.
    """
    report = probe(fs, log_dir)
    if report.holder is not LockHolder.NOBODY or report.has_writer:
        who = report.holder.value if report.holder is not LockHolder.NOBODY else "a writer"
        pid = "" if report.pid is None else f" (process {report.pid})"
        raise LogDirLockedError(f"{log_dir / LOCK}: locked by {who}{pid}; stop it first")


def parse_names(texts: Sequence[str]) -> list[TopicPartition]:
    """
    Read names of partitions as given by the caller, each once, in the order given.

    Raises:
        UsageError: a name is not a topic, a dash and a number.
    """
    try:
        return list(dict.fromkeys(TopicPartition.parse(name_without_place(text)) for text in texts))
    except ValueError as error:
        raise UsageError(str(error)) from error


def choose_partitions(session: Session, named: Sequence[TopicPartition] | None) -> dict[TopicPartition, Path]:
    """
    Return the directories of the partitions named, or (None) of all of them by name; a link draws a warning then.

    Raises:
        UsageError: one of them does not exist, or is a symbolic link.
    """
    found = session.log_dir.listing()
    if named is None:
        for sentence in found.left_out():
            session.context.warn(sentence)
        return dict(sorted(found.current.items()))
    return {topic_partition: found.find(topic_partition, session.log_dir.path) for topic_partition in named}


class as_cleaner_errors:
    """Turn an unexpected OSError into one of the cleaner's errors."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Replace an `OSError`."""
        if isinstance(error, OSError):
            raise disk_error(Path(error.filename) if error.filename else self._path, error) from error


def attempt(topic_partition: TopicPartition, directory: Path, work: Callable[[], Result]) -> Result | Refusal:
    """
    Do one partition's work, or return why it was refused: as in Kafka (R-452), one log never stops the others.

    Raises:
        LogDirLockedError, CleaningAborted: these end the whole call.
    """
    try:
        with as_cleaner_errors(directory):
            return work()
    except (LogDirLockedError, CleaningAborted):
        raise
    except CleanerError as error:
        return Refusal(str(topic_partition), as_value(error))
    except Exception as error:  # noqa: BLE001 - any failure of one log, even an internal error
        return Refusal(str(topic_partition), as_value(unexpected(directory, error)))


def with_progress(
    session: Session, partitions: Mapping[TopicPartition, Path], phase: str
) -> Iterator[tuple[TopicPartition, Path]]:
    """Yield partitions to work on, and report progress to the caller in bytes of their logs."""
    sizes = {topic_partition: _log_bytes_known(session, directory) for topic_partition, directory in partitions.items()}
    done, total = 0, sum(sizes.values())
    for topic_partition, directory in partitions.items():
        session.check_done()
        session.context.progress(f"{topic_partition} {phase}", done, total)
        yield topic_partition, directory
        done += sizes[topic_partition]


def log_bytes(session: Session, directory: Path) -> int:
    """Return how many bytes the `.log` files of a partition have. Raises OSError."""
    fs = session.context.fs
    return sum(fs.stat(directory / name).st_size for name in fs.list_files(directory) if name.endswith(LOG))


def _log_bytes_known(session: Session, directory: Path) -> int:
    try:
        return log_bytes(session, directory)
    except (OSError, CleanerError):
        return 0  # the error is reported when its turn comes
