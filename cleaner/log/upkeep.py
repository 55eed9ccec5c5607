"""
The periodic tasks of a `LogManager`, at Kafka's intervals.

    retention        log.retention.check.interval.ms, the first time log.initial.task.delay.ms after the opening
    removal          when `file.delete.delay.ms` of a deleted file has passed
    flush            when `flush.ms` of a log has passed; at least every log.flush.scheduler.interval.ms
    high watermark   replica.high.watermark.checkpoint.interval.ms
    recovery point   log.flush.offset.checkpoint.interval.ms
    log start        log.flush.start.offset.checkpoint.interval.ms
    settings         every five seconds: `cleaner-topics.properties` may be written by others
    transactions     every ten seconds: those that take longer than they may are aborted
    producers        every ten minutes: those that are idle are forgotten

Unlike in Kafka (R-902), `flush.ms` works without the scheduler's interval: with its default, Kafka never checks.

A checkpoint line is computed while no other thread can write the file, and never names more than is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cleaner.app.session import as_cleaner_errors
from cleaner.base.model import TopicPartition
from cleaner.errors import MAY_PASS, CleanerError, FailedFsyncError, LogClosedError
from cleaner.log import counters
from cleaner.log.dir_state import DirState
from cleaner.log.partitions import Partitions, ServedLog, Services
from cleaner.log.tasks import PeriodicTask
from cleaner.policy.retention import KeptLog, find_expired
from cleaner.settings import FollowedSettings
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.remove.removals import Removals

_LOOK_MS = 5_000
_TRANSACTIONS_MS = 10_000  # Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms
_PRODUCERS_MS = 600_000  # Kafka's producer.id.expiration.check.interval.ms
_NEVER_MS = 2**63 - 1


class Upkeep:
    """
    The tasks of a `LogManager`; `tasks` are run by one thread, everything else may be called by any.

    Args:
        services: those of the logs.
        partitions: the open logs.
        states: the log dirs.
        settings: of the topics, by log dir.
        removals: files that wait for their removal.
        rolled: called when segments were rolled or settings have changed: a cleaner may find work.
        end_late: ends transactions over several logs that take too long.
    """

    def __init__(
        self,
        services: Services,
        partitions: Partitions,
        states: Iterable[DirState],
        settings: Mapping[Path, FollowedSettings],
        removals: Removals,
        rolled: Callable[[], None],
        end_late: Callable[[], int],
    ) -> None:
        self._services = services
        self._partitions = partitions
        self._states = tuple(states)
        self._settings = settings
        self._removals = removals
        self._rolled = rolled
        self._end_late = end_late
        self._are_given = True  # whether each log has its topic's settings, as far as the disk lets them be known

    def tasks(self) -> list[PeriodicTask]:
        """Return the tasks."""
        config = self._services.config
        high_watermark_ms = config.high_watermark_checkpoint_interval_ms
        recovery_point_ms = config.flush_offset_checkpoint_interval_ms
        log_start_ms = config.flush_start_offset_checkpoint_interval_ms
        scheduler_ms = config.flush_scheduler_interval_ms
        return [
            PeriodicTask("removal", self.remove_due, _NEVER_MS, _NEVER_MS, lambda: self._removals.due_ns),
            PeriodicTask("flush", self.flush_due, scheduler_ms, scheduler_ms, self._flush_due_ns),
            PeriodicTask("high watermark", self.note_high_watermarks, high_watermark_ms, high_watermark_ms),
            PeriodicTask("recovery point", self.note_recovery_points, recovery_point_ms, recovery_point_ms),
            PeriodicTask("log start", self.note_log_starts, log_start_ms, log_start_ms),
            PeriodicTask("settings", self.look_at_settings, _LOOK_MS, _LOOK_MS),
            PeriodicTask("retention", self.retain, config.retention_check_interval_ms, config.initial_task_delay_ms),
            PeriodicTask("transactions", self.end_late_transactions, _TRANSACTIONS_MS, _TRANSACTIONS_MS),
            PeriodicTask("producers", self._expire_producers, _PRODUCERS_MS, _PRODUCERS_MS),
        ]

    # ---- forcing to disk -------------------------------------------------------------------------------------------

    def flush_due(self) -> None:
        """Flush the logs whose oldest record has waited for `flush.ms`."""
        now_ns = self._services.clock.monotonic_ns()
        for served in self._partitions.all():
            if served.flusher.is_due(now_ns):
                with self._reporting(served, "flushed"):
                    served.flusher.flush()

    def _flush_due_ns(self) -> int | None:
        due = (served.flusher.due_ns for served in self._partitions.all())
        return min((each for each in due if each is not None), default=None)

    def remove_due(self) -> None:
        """
        Remove deleted files that have waited for `file.delete.delay.ms`.

        Raises:
            LogDirLockedError: the manager is closed, or the lock was lost: the files may belong to another process.
        """
        for state in self._states:
            state.still_held()
        self._removals.remove_due()

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def note_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint`."""
        self._note(OffsetKind.HIGH_WATERMARK, lambda served: served.writer.flushed_offset)
        for state in self._states:
            error = state.published.take_error()
            if error is not None:
                self._services.logger.warning(
                    "readers in other processes learn of high watermarks from the checkpoint alone",
                    log_dir=str(state.path),
                    reason=str(error),
                )

    def note_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint`."""
        self._note(OffsetKind.RECOVERY_POINT, lambda served: served.writer.flushed_offset)

    def note_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint`: a line only if the log start is not the first base offset (R-118)."""
        self._note(OffsetKind.LOG_START, lambda served: served.writer.log_start_checkpoint)

    def note_all(self) -> None:
        """Write all three."""
        self.note_recovery_points()
        self.note_high_watermarks()
        self.note_log_starts()

    def _note(self, kind: OffsetKind, offset_of: Callable[[ServedLog], int | None]) -> None:
        for state in self._states:

            def offsets(state: DirState = state) -> dict[TopicPartition, int | None]:
                # The logs are listed here: a log deleted since would give its line to a new one of the same name.
                mine = (served for served in self._partitions.all() if served.state is state)
                return {served.partition: offset_of(served) for served in mine}

            if any(served.state is state for served in self._partitions.all()):
                with as_cleaner_errors(state.path):
                    state.note(kind, offsets)

    # ---- settings --------------------------------------------------------------------------------------------------

    def look_at_settings(self) -> None:
        """Apply changes that other processes or operators made in settings files."""
        now_ms = self._services.clock.now_ms()
        has_changed = not self._are_given
        for settings in self._settings.values():
            has_changed |= settings.look(now_ms)
        if has_changed:
            self.apply_settings()

    def apply_settings(self) -> None:
        """Give each log its topic's present settings; one whose disk fails gets them at the next look."""
        self._are_given, are_given = False, True
        for served in self._partitions.all():
            with self._reporting(served, "given its settings"):
                try:
                    self._partitions.configure(served, self._settings[served.state.path])
                except MAY_PASS:
                    are_given = False
                    raise
        self._are_given = are_given
        self._rolled()

    # ---- retention -------------------------------------------------------------------------------------------------

    def retain(self) -> None:
        """Remove the expired segments of all logs."""
        for served in self._partitions.all():
            with self._reporting(served, "searched for expired segments"):
                self.retain_one(served)

    def retain_one(self, served: ServedLog) -> int:
        """Remove the expired segments of one log; returns how many."""
        topic, now_ms = served.settings.config, self._services.clock.now_ms()
        # A policy that is only Kafka's default expires nothing (see `daemon_limits`).
        is_trusted = "cleanup.policy" in served.settings.origins

        def choose(log: KeptLog) -> int:
            return find_expired(log, topic, now_ms, is_trusted=is_trusted, keeps_active=False).count

        gone = served.writer.expire(choose)
        waiting = self._removals.files_of(served.directory)
        if files := tuple(name for name in gone.files if name not in waiting):
            self._removals.add_files(served.directory, files, topic.file_delete_delay_ms)
        if not gone.segments:
            return 0
        name = served.partition.topic
        self._services.registry.add(counters.EXPIRED_SEGMENTS, gone.segments, topic=name)
        self._services.registry.add(counters.EXPIRED_BYTES, gone.bytes, topic=name)
        self._services.logger.info(
            "segments expired",
            partition=str(served.partition),
            segments=gone.segments,
            bytes=gone.bytes,
            log_start_offset=served.writer.log_start_offset,
        )
        return gone.segments

    def end_late_transactions(self) -> None:
        """Abort the transactions that have taken longer than their timeout."""
        for served in self._partitions.all():
            with self._reporting(served, "freed of a late transaction"):
                served.log.end_late_transactions()
        self._end_late()

    def _expire_producers(self) -> None:
        for served in self._partitions.all():
            with self._reporting(served, "freed of idle producers"):
                served.writer.expire_producers()

    # ---- troubles --------------------------------------------------------------------------------------------------

    def task_failed(self, name: str, error: Exception) -> None:
        """Report a task that failed."""
        self._services.registry.add(counters.FAILED_TASKS, 1, task=name)
        known = {} if isinstance(error, CleanerError) else {"exc_info": error}
        self._services.logger.error("a task failed and is tried again", task=name, reason=str(error), **known)

    def _reporting(self, served: ServedLog, what: str) -> _ErrorReporter:
        return _ErrorReporter(self._services, served, what)


class _ErrorReporter:
    """Reports an error about one log, so that the next log gets its turn."""

    def __init__(self, services: Services, served: ServedLog, what: str) -> None:
        self._services = services
        self._served = served
        self._what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        """Report a `CleanerError`; a log that has been closed since needs nothing any more."""
        if isinstance(error, LogClosedError) and not isinstance(error, FailedFsyncError):
            return True
        if not isinstance(error, CleanerError | OSError):
            return False
        self._services.logger.error(
            f"a log could not be {self._what}", partition=str(self._served.partition), reason=str(error)
        )
        return True
