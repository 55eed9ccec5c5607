"""
The open logs of a `LogManager`: opened and closed several at a time, with their settings and flushers.

A log that cannot be opened or closed is remembered with its error and does not affect the others.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cleaner.app.session import as_cleaner_errors
from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.logger import Logger
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, UncleanableError, UnknownTopicError
from cleaner.log import counters
from cleaner.log.counters import Registry
from cleaner.log.dir_state import DirState
from cleaner.log.flusher import LogFlusher
from cleaner.log.log import Log, abandon_log, close_log
from cleaner.log.origin import Origin
from cleaner.log.partition_writer import PartitionWriter, WriterOptions
from cleaner.log.work_threads import Work
from cleaner.settings import FollowedSettings, ResolvedTopic
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.files.published import UNKNOWN
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import NEVER_FOLLOWED
from cleaner.storage.segment.names import PARTITION_METADATA

if TYPE_CHECKING:
    from cleaner.log.group_offsets import GroupOffsets

Item = TypeVar("Item")


@dataclass
class ServedLog:
    """
    An open log and what belongs to it.

    Attributes:
        state: its log dir.
        settings: its topic's; replaced when they change.
    """

    partition: TopicPartition
    state: DirState
    settings: ResolvedTopic
    writer: PartitionWriter
    flusher: LogFlusher
    log: Log

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self.state.path / str(self.partition)


@dataclass(frozen=True)
class Services:
    """
    The services that every log uses.

    Attributes:
        fs, clock: the disk and the time.
        config: the settings of the process.
        logger: of events.
        registry: receives the counters.
        submit: has a flush done by another thread.
        call_back: has the callbacks of a future called by another thread.
        wake: tells the tasks' thread that something is due sooner.
        allow_truncate: recovery may cut records that were known to be on disk.
    """

    fs: FileSystem
    clock: Clock
    config: CleanerConfig
    logger: Logger
    registry: Registry
    submit: Callable[[Work], None]
    call_back: Callable[[Work], None]
    wake: Callable[[], None]
    allow_truncate: bool


class Partitions:
    """
    The open logs. Thread-safe.

    Attributes:
        verdict, offsets: see `WriterOptions` and `Log`; set before the first log is opened.
    """

    def __init__(self, services: Services) -> None:
        self.verdict: Callable[[TopicPartition, int, int], bool | None] = lambda *_: False
        self.offsets: Callable[[object, TopicPartition], GroupOffsets] | None = None
        self._services = services
        self._origin = Origin("the log dirs")
        self._lock = concurrency.RLock()
        # Guarded by _lock.
        self._served: dict[TopicPartition, ServedLog] = {}
        self._failed: dict[TopicPartition, CleanerError] = {}
        self._closed_in_order: set[TopicPartition] = set()

    def get(self, partition: TopicPartition) -> ServedLog:
        """
        Return an open log.

        Raises:
            UnknownTopicError: there is none.
            CleanerError: why it could not be opened.
        """
        with self._lock:
            served, error = self._served.get(partition), self._failed.get(partition)
        if served is not None:
            return served
        if error is not None:
            raise error.with_traceback(None)
        raise UnknownTopicError(partition.topic, f"no partition {partition.partition}")

    def all(self) -> list[ServedLog]:
        """Return the logs that are open now. Raises ForkedError: they are the parent's."""
        self._origin.require_own()
        with self._lock:
            return list(self._served.values())

    @property
    def failed(self) -> dict[TopicPartition, CleanerError]:
        """The logs that could not be opened, or not be closed in order, and why."""
        with self._lock:
            return dict(self._failed)

    def is_in_order(self, state: DirState) -> bool:
        """
        Tell whether every partition of a log dir was served and closed in order.

        Read from the directory, not from memory: a topic may have been left half created or half deleted.
        """
        with self._lock:
            return self._closed_in_order.issuperset(state.log_dir.partitions())

    def open_all(self, state: DirState, settings: FollowedSettings, wanted: Callable[[TopicPartition], bool]) -> None:
        """Open the logs of a log dir that are `wanted`, `num.recovery.threads.per.data.dir` at a time (R-640)."""

        def open_one(partition: TopicPartition) -> None:
            try:
                with as_cleaner_errors(state.path):
                    self.open(state, settings, partition, was_closed=state.was_closed)
            except CleanerError as error:
                self._services.logger.error("a log cannot be opened", partition=str(partition), reason=str(error))
                self._note_failure(partition, error)

        found = state.log_dir.listing()
        for partition, link in found.linked.items():
            if wanted(partition):
                error = UncleanableError(link, NEVER_FOLLOWED)
                self._services.logger.error("a log cannot be opened", partition=str(partition), reason=str(error))
                self._note_failure(partition, error)
        self._side_by_side(open_one, sorted(filter(wanted, found.current)))

    def open(
        self, state: DirState, settings: FollowedSettings, partition: TopicPartition, *, was_closed: bool
    ) -> ServedLog:
        """Open a log, and recover it first unless it `was_closed`."""
        services = self._services
        directory = state.path / str(partition)
        topic_id = read_topic_id(services.fs, directory / PARTITION_METADATA)
        resolved = settings.topic(partition.topic, topic_id)
        writer = PartitionWriter.open(
            state.log_dir,
            partition,
            resolved.config,
            services.clock,
            was_closed=was_closed,
            allow_truncate=services.allow_truncate,
            options=WriterOptions(
                producer_id_expiration_ms=services.config.producer_id_expiration_ms,
                publish=partial(state.published.publish, partition),
                verdict=self.verdict,
                has_controller=resolved.is_in_cluster,
            ),
        )
        try:
            # The markers of transactions that no process can end any more: readers of committed records wait for them.
            writer.flush_to_disk()
            if not was_closed:
                services.registry.add(counters.RECOVERED_LOGS, 1, topic=partition.topic)
                services.registry.add(counters.TRUNCATED_BYTES, writer.truncated_bytes, topic=partition.topic)
                services.logger.info(
                    "a log was recovered", partition=str(partition), truncated_bytes=writer.truncated_bytes
                )
            return self._serve(state, resolved, partition, writer)
        except BaseException:
            # An interrupt may come at any moment; from the last one on the log is closed with all others.
            if partition not in self._served:
                writer.abandon()
            raise

    def _serve(
        self, state: DirState, resolved: ResolvedTopic, partition: TopicPartition, writer: PartitionWriter
    ) -> ServedLog:
        """Have an open log found by all others."""
        services = self._services

        def flushed(seconds: float, _offset: int) -> None:
            services.registry.add(counters.FLUSHES, 1, topic=partition.topic)
            services.registry.add(counters.FLUSH_SECONDS, seconds, topic=partition.topic)

        flusher = LogFlusher(
            writer,
            str(writer.directory),
            submit=services.submit,
            call_back=services.call_back,
            wake=services.wake,
            clock=services.clock,
            topic=resolved.config,
            flushed=flushed,
        )
        log = Log(writer, flusher, services.clock, services.config.batch_limit_bytes, self.offsets)
        served = ServedLog(partition, state, resolved, writer, flusher, log)
        with self._lock:
            self._served[partition] = served
        return served

    def configure(self, served: ServedLog, settings: FollowedSettings) -> None:
        """
        Give a log its topic's present settings.

        Raises:
            ConfigError: they cannot be read; the log keeps its settings.
        """
        topic_id = read_topic_id(self._services.fs, served.directory / PARTITION_METADATA)
        resolved = settings.topic(served.partition.topic, topic_id)
        if resolved.config != served.settings.config:
            served.writer.topic = resolved.config
            served.flusher.configure(resolved.config)
        served.settings = resolved

    def abandon(self, partition: TopicPartition) -> None:
        """Close a log that is being deleted and leave its files as they are; does nothing if it was not open."""
        with self._lock:
            served = self._served.get(partition)
        if served is not None:
            abandon_log(served.log)
            served.state.published.publish(partition, UNKNOWN)
        with self._lock:
            self._served.pop(partition, None)
            self._failed.pop(partition, None)

    def close_all(self) -> list[CleanerError]:
        """Close all logs in order; returns the errors of those that failed, which are then in `failed`."""
        errors: list[CleanerError] = []

        def close_one(served: ServedLog) -> None:
            try:
                with as_cleaner_errors(served.directory):
                    close_log(served.log)
                    served.writer.require_closed_in_order()
                with self._lock:
                    self._closed_in_order.add(served.partition)
            except CleanerError as error:
                reason = str(error)
                self._services.logger.error("a log cannot be closed", partition=str(served.partition), reason=reason)
                errors.append(error)
                self._note_failure(served.partition, error)

        self._side_by_side(close_one, self.all())
        return errors

    def abandon_all(self) -> None:
        """Close all logs and leave their files as they are."""
        for served in self.all():
            self.abandon(served.partition)

    def _note_failure(self, partition: TopicPartition, error: CleanerError) -> None:
        with self._lock:
            self._failed[partition] = error

    def _side_by_side(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        left = deque(items)

        def work_off() -> None:
            with contextlib.suppress(IndexError):  # nothing is left
                while True:
                    item = left.popleft()
                    work(item)

        others = min(self._services.config.recovery_threads_per_data_dir, len(items)) - 1
        if others < 1:
            work_off()
            return
        with concurrency.ThreadPoolExecutor(others, thread_name_prefix="cleaner-logs") as pool:
            helping: list[concurrency.Future[None]] = []
            with contextlib.suppress(RuntimeError):  # the system has no thread left
                for _ in range(others):
                    helping.append(pool.submit(work_off))
            work_off()
            for future in helping:
                future.result()
