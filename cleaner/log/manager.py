"""
`LogManager`: log dirs opened for writing, with their tasks and their cleaner.

    open     create, lock, remove the marker                                             dir_state.py
             load every log, several at a time; recover if the marker was missing        partitions.py
             admit a cleaner (docs/coexistence.md); tasks and cleaner begin              upkeep.py, cleaning.py
    close    cleaner and tasks end; logs are closed; offsets and marker are written

A log that cannot be loaded does not affect the others: a caller that asks for it gets the error, and its log dir gets
no marker at the close, so that the next start recovers it (R-112).

It changes nothing process-wide: no signal handlers, and it logs and counts only to the given logger and registry. A
forked child cannot use it; locks and files stay the parent's.

Source: rules R-101 to R-118, R-640; `LogManager.java`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from cleaner.base import arguments, concurrency
from cleaner.base.arguments import Settings
from cleaner.base.clock import Clock, SystemClock
from cleaner.base.logger import Logger, logger_of
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import CleanerError, UnsupportedPlatformError
from cleaner.log import counters
from cleaner.log.cleaning import InProcessCleaner
from cleaner.log.coordinator import Coordinator, is_transaction_log
from cleaner.log.counters import NoRegistry, Registry
from cleaner.log.dir_state import DirState, PathLike, open_dirs, paths_of
from cleaner.log.group_offsets import OffsetStore
from cleaner.log.interrupted import load_all, require_uninterrupted
from cleaner.log.log import Log
from cleaner.log.log_producer import DEFAULT_TRANSACTION_TIMEOUT_MS
from cleaner.log.manager_producer import ManagerProducer, checked
from cleaner.log.origin import Origin
from cleaner.log.partitions import Partitions, Services
from cleaner.log.serde import Serde
from cleaner.log.served_topics import ServedTopics
from cleaner.log.tasks import Tasks
from cleaner.log.topic_calls import TopicCalls
from cleaner.log.topic_logs import TopicLogs, checked_serde
from cleaner.log.upkeep import Upkeep
from cleaner.log.work_threads import WorkThreads
from cleaner.settings import FollowedSettings, SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.remove.removals import Removals
from cleaner.storage.segment.names import DirKind

_FLUSH_THREADS = 4  # a disk can do several fsyncs together, and one log must not wait for all others
_STOP_SECONDS = 60.0


class LogManager(TopicCalls):
    """
    Log dirs opened for writing; use it in a `with` block or call `close`. Safe to share between threads.

        with LogManager("/data", create=True) as logs:
            logs.create_topic("prices", settings={"cleanup.policy": "compact"})
            prices = logs.log("prices")
            prices.append([Record(b"p3", b"10")]).durable.result()

    Args:
        log_dirs: one directory, or several of one node. Neither a broker nor another `LogManager` may write to them at
            the same time; a cleaner in another process may run.
        settings: Kafka's keys: those of a broker (`log.segment.bytes`), defaults for topics (`segment.bytes`), and
            those of the cleaner. Values are text, numbers or booleans.
        create: make missing directories, and give an identity to those without one.
        cleaner: compact topics in this process. Otherwise another process may (`cleaner run`).
        tasks: run `upkeep` in a thread: retention, flushes by `flush.ms`, checkpoints. Otherwise the caller does.
        registry: receives the counters; see `counters.py`.
        logger: receives events: a `logging.Logger`, or one called like structlog's; None: events are dropped.
        allow_truncate: let recovery, like Kafka's, cut records that were known to be on disk and are damaged now.
            Without it a log that ends below its checkpointed start is refused too, not emptied (R-641).
        cluster_id: of new log dirs; None chooses one.
        clock, fs: the time and the disk.
    Raises:
        UnsupportedPlatformError: not on Linux.
        UsageError: no directory, or directories that do not belong together.
        ConfigError: bad settings.
        LogDirLockedError: a broker or another writer has the lock, or a cleaner does not release it.
        CorruptCheckpointError, UncleanableError: a file of the whole directory is not sound; nothing was changed.
        LogDirOfflineError, NoSpaceError: the disk.
    """

    _may_be_interrupted = True  # by a signal handler that raises, in the main thread

    def __init__(
        self,
        log_dirs: PathLike | Sequence[PathLike],
        settings: Settings | None = None,
        *,
        create: bool = False,
        cleaner: bool = True,
        tasks: bool = True,
        registry: Registry | None = None,
        logger: logging.Logger | Logger | None = None,
        allow_truncate: bool = False,
        cluster_id: str | None = None,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise UnsupportedPlatformError(f"logs are written on Linux only, not on {sys.platform}; reading works here")
        _check_services(fs, clock, registry, logger)
        _check_flags(create=create, cleaner=cleaner, tasks=tasks, allow_truncate=allow_truncate)
        if cluster_id is not None:
            arguments.text("cluster_id", cluster_id)
        if self._may_be_interrupted:
            load_all()
        self._fs, self._clock = fs or FileSystem(), clock or SystemClock()
        self._sources = Sources(config=arguments.setting_texts(settings))
        config = SettingsResolver(self._fs, None, self._sources).cleaner
        self._lock, self._is_changing = concurrency.RLock(), False
        self._is_closed = False
        # Held by a thread that closes it: the lock of a log dir is not released while another one still writes there.
        self._closing = concurrency.RLock()
        self._is_closing = False
        self._flushers = WorkThreads(_FLUSH_THREADS, "cleaner-flush")
        self._callers = WorkThreads(1, "cleaner-callbacks")
        self._services = Services(
            fs=self._fs,
            clock=self._clock,
            config=config,
            logger=logger_of(logger),
            registry=registry or NoRegistry(),
            submit=self._flushers.submit,
            call_back=self._callers.submit,
            wake=self._wake,
            allow_truncate=allow_truncate,
        )
        self._partitions = Partitions(self._services)
        self._coordinator = Coordinator(self._services, self._partitions, self._partition_count, self._require_open)
        self._removals = Removals(self._fs, self._clock)
        self._tasks: Tasks | None = None
        self._cleaner: InProcessCleaner | None = None
        self._states: list[DirState] = []
        try:
            self._flushers.start()
            self._callers.start()
            paths, given = paths_of(log_dirs), self._sources.config
            self._open(open_dirs(self._fs, self._clock, paths, given, create=create, cluster_id=cluster_id))
            self._begin(tasks=tasks, cleaner=cleaner)
        except BaseException:
            self._abandon()
            self._callers.shutdown()
            raise

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _open(self, states: list[DirState]) -> None:
        self._states = states
        self._origin = Origin(self._name())
        self._settings = {state.path: FollowedSettings(self._fs, state.path, self._sources) for state in states}
        self._upkeep = Upkeep(
            *(self._services, self._partitions, states, self._settings, self._removals, self._wake_cleaner),
            self._coordinator.end_late_transactions,
        )
        self._topics = ServedTopics(
            *(self._services, self._partitions, states, self._settings),
            *(self._sources, self._upkeep, self._removals),
        )
        self._offsets = OffsetStore(
            lambda each: self._partitions.get(each).log, self._partition_count, self._require_open, self._clock
        )
        self._partitions.verdict, self._partitions.offsets = self._coordinator.verdict, self._offsets.of
        for state in states:
            for name in state.log_dir.listing().delete_or_stray:
                if name.endswith(DirKind.DELETE.value):
                    self._removals.add_directory(state.path / name, TopicConfig().file_delete_delay_ms)
            self._partitions.open_all(state, self._settings[state.path], is_transaction_log)
        self._coordinator.load()  # what it decides, all others do when they are opened
        for state in states:
            self._partitions.open_all(state, self._settings[state.path], lambda each: not is_transaction_log(each))
        self._coordinator.settle()
        # The recovered logs are on disk now: write that down.
        self._upkeep.note_all()
        for state in states:
            state.admit_cleaner()
        self._services.registry.put(counters.OPEN_LOGS, len(self._partitions.all()))
        self._services.logger.info(
            "log dirs are open",
            log_dirs=[str(state.path) for state in states],
            logs=len(self._partitions.all()),
            recovered=any(not state.was_closed and self._partitions.all() for state in states),
        )

    def _begin(self, *, tasks: bool, cleaner: bool) -> None:
        if tasks:
            self._tasks = Tasks(self._clock, self._upkeep.tasks(), self._upkeep.task_failed)
            self._tasks.start()
        if cleaner:
            paths = [state.path for state in self._states]
            given = InProcessCleaner(self._fs, self._clock, paths, self._sources.config, self._services.logger)
            self._cleaner = given
            given.start()

    # ---- logs ------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """
        Return the log of a partition; the same object each time.

        Raises:
            UnknownTopicError: there is no such topic or partition.
            CleanerError: why it could not be loaded.
            LogClosedError, ForkedError: the manager is closed, or belongs to another process.
        """
        self._require_open()
        wanted = TopicPartition(arguments.text("topic", topic), arguments.whole("partition", partition))
        return self._partitions.get(wanted).log

    def logs(self) -> dict[TopicPartition, Log]:
        """Return all open logs."""
        self._require_open()
        return {served.partition: served.log for served in self._partitions.all()}

    def topic(self, name: str, *, key: Serde = Serde.bytes, value: Serde = Serde.bytes) -> TopicLogs:
        """
        Return all logs of a topic as one, with Kafka's partitioner.

        Args:
            name: of the topic.
            key, value: how keys and values become bytes, and back.
        Raises:
            UnknownTopicError: it does not exist, or lacks a partition.
            CleanerError: why one of its logs could not be loaded.
        """
        self._require_open()
        key, value = checked_serde("key", key), checked_serde("value", value)
        numbers = range(len(self._topics.find(arguments.text("name", name)).homes))
        return TopicLogs(name, {number: self.log(name, number) for number in numbers}, self._clock, key, value)

    def producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    ) -> ManagerProducer:
        """
        Make a producer whose transactions are over partitions and topics.

        Args:
            transactional_id: the earlier instance with this id is fenced off, and its open transaction is aborted.
            transaction_timeout_ms: a transaction that takes longer is aborted, and its producer fenced off.
        Raises:
            UsageError: an empty id, or a timeout that is not above 0.
            CleanerError: the transaction log cannot be made or written.
            LogClosedError, ForkedError: the manager is closed, or belongs to another process.
        """
        self._require_open()
        return self._coordinator.producer(*checked(transactional_id, transaction_timeout_ms))

    @property
    def failed(self) -> dict[TopicPartition, CleanerError]:
        """The logs that could not be loaded, and why."""
        self._origin.require_own()
        return self._partitions.failed

    @property
    def config(self) -> CleanerConfig:
        """The settings of the process."""
        return self._services.config

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The directories, links followed."""
        return tuple(state.path for state in self._states)

    @property
    def upkeep(self) -> Upkeep:
        """The periodic tasks, to run one of them now."""
        self._require_open()
        return self._upkeep

    @property
    def cleaner(self) -> InProcessCleaner | None:
        """The cleaner in this process; None without."""
        self._origin.require_own()
        return self._cleaner

    def wake(self) -> None:
        """Have the tasks' thread check now what is due: a clock was advanced."""
        self._origin.require_own()
        self._wake()

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """
        Close everything in order; followers that wait for a record wake up. A second call does nothing, but waits for
        the first.

        Raises:
            ForkedError: it belongs to another process.
            LogWriteError: called by a signal handler in the middle of another call; it is open. Let the handler raise.
            CleanerError: the first log or log dir that could not be closed in order; it gets no marker, and the next
                start recovers. Everything is closed all the same, also after an interrupt; after two interrupts call
                it again.
        """
        self._origin.require_own()
        try:
            with self._closing:
                if self._is_closing:
                    return  # by a signal handler, in the middle of another close
                require_uninterrupted(self._name())
                try:
                    self._is_closing = True
                    self._close()
                finally:
                    self._is_closing = False
        finally:
            self._callers.shutdown()  # without the lock: a callback may close it, too

    def _close(self) -> None:
        errors: list[CleanerError] = []
        try:
            with self._lock:
                if self._is_closed:
                    return
                self._is_closed = True
            self._end_work()
            self._coordinator.close()
            errors = self._partitions.close_all()
            self._flushers.shutdown()
            self._upkeep.note_all()
            for state in self._states:
                try:
                    state.close(in_order=self._partitions.is_in_order(state) and state.may_be_marked)
                except CleanerError as error:
                    errors.append(error)  # one failed disk must not cost the other log dirs their markers
        finally:
            self._abandon()
        if errors:
            raise errors[0]

    def abandon(self) -> None:
        """Release everything and leave the files as they are, as a killed process would: the next start recovers."""
        self._origin.require_own()
        with self._closing:
            require_uninterrupted(self._name())
            with self._lock:
                self._is_closed = True
            self._abandon()
        self._callers.shutdown()

    def __enter__(self) -> LogManager:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it; a forked child that leaves the block leaves everything to its parent."""
        if not self._origin.is_parents:
            self.close()

    def _end_work(self) -> None:
        if self._cleaner is not None:
            self._cleaner.stop(_STOP_SECONDS)
        if self._tasks is not None:
            self._tasks.stop()

    def _abandon(self) -> None:
        self._end_work()
        self._partitions.abandon_all()
        self._flushers.shutdown()
        for state in self._states:
            state.abandon()

    # ---- small parts -----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._tasks is not None:
            self._tasks.wake()

    def _wake_cleaner(self) -> None:
        if self._cleaner is not None:
            self._cleaner.wake()


def _check_services(fs: object, clock: object, registry: object, logger: object) -> None:
    arguments.require_methods("fs", fs, "open", "stat", "list_files")
    arguments.require_methods("clock", clock, "now_ms", "monotonic_ns", "sleep")
    arguments.require_methods("registry", registry, "add", "put")
    arguments.require_methods("logger", logger, "info", "warning", "error")


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        arguments.flag(name, value)
