"""
One log dir under watch: whether its logs can be worked on, and what each of them is like.

A look locks nothing and changes nothing, so a broker or a writer may be at work in the log dir: a log whose files
change during the look is looked at again, and one that cannot be read is shown as an error of that log alone.

    what the look finds                            condition     what follows
    no answer, damaged files of its own, read-only offline       looked at again after a growing delay
    held by a broker or another cleaner            locked        looked at and shown all the same
    no clean-shutdown marker, and no live writer   needs recovery, or the next round recovers it (`cleaner.recover`)
    otherwise                                      online        next to a live writer even without a marker

Every look asks of every log whether it has changed. Judging those that have takes longer, so a look stops after
`JUDGING_NS`, and the next one goes on behind the last log judged: with 20 000 logs that all change all the time, each
is judged in its turn, and no look holds up workers and pages for seconds. The first look judges all logs.
"""

from __future__ import annotations

import errno
import operator
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from cleaner.app.session import as_cleaner_errors
from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.log_watch import Lines, Moment, WatchedLog, proves_unchanged
from cleaner.daemon.topic_settings import WatchedTopicSettings
from cleaner.errors import LogDirOfflineError, describe
from cleaner.policy.kafka_version import ChosenVersion
from cleaner.policy.retry import Retry, RetryDelays, after_failure
from cleaner.policy.selection_context import DirCondition, LogDirFacts
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileState, FileSystem, Space, real_path
from cleaner.storage.lock.lock_probe import LockHolder, LockReport
from cleaner.storage.log_dir import NEVER_FOLLOWED, LogDir, LogDirListing, OffsetKind, Use, must_be_recovered
from cleaner.storage.segment.names import META_PROPERTIES
from cleaner.storage.which_dir import require_log_dir, why_no_log_dir

JUDGING_NS = 100_000_000
"""How long a look judges logs that have changed."""
JUDGED_AT_LEAST = 100
"""How many of them it judges even if that takes longer, as on a slow disk."""


@dataclass(frozen=True)
class DirLook:
    """
    What a look has found out about a log dir.

    Attributes:
        facts: its condition; `workers` and `max_workers` are the manager's to fill in.
        beside_writer: one of our writers holds it too: no marker is expected and the end of active segments may be
            torn.
        needs_recovery: there is no marker and no process has it open, and `cleaner.recover` allows a round to recover
            first.
        free_bytes, total_bytes: of its file system; None when it does not answer.
        looked_at_ms: when it was last looked at with success; None: never.
        begun_ns: when that look began, monotonic; a later change of a log is not in it.
        logs: in order of partition; as of that moment, except for those that are behind.
        behind: logs that have changed and were not judged again yet; the next look goes on with them.
        warnings: about the log dir and its settings as a whole.
        kafka: the version of Kafka whose rules apply; None: its settings were never read.
    """

    facts: LogDirFacts = field(default_factory=LogDirFacts)
    beside_writer: bool = False
    needs_recovery: bool = False
    free_bytes: int | None = None
    total_bytes: int | None = None
    looked_at_ms: int | None = None
    begun_ns: int = 0
    logs: tuple[LogStatus, ...] = ()
    behind: frozenset[TopicPartition] = frozenset()
    warnings: tuple[str, ...] = ()
    kafka: ChosenVersion | None = None


class WatchedLogDir:
    """
    A log dir under watch. Only one thread may call `look`; any thread may call `reconfigure`.

    Args:
        fs: the file system.
        clock: measures how long a look takes; logs are judged by `now_ms`.
        path: the directory, as configured.
        config: the settings of the process.
        sources: where the topics' settings come from.
    """

    def __init__(self, fs: FileSystem, clock: Clock, path: Path, config: CleanerConfig, sources: Sources) -> None:
        self.path = real_path(path)
        self._fs = fs
        self._clock = clock
        self._guard = concurrency.Lock()
        self._next: tuple[CleanerConfig, Sources] | None = None  # guarded: settings that wait for the next look
        self._config = config
        self._log_dir = LogDir(fs, self.path)
        self._settings = WatchedTopicSettings(fs, self.path, sources)
        self._names: tuple[str, ...] | None = None
        self._dir_warnings: tuple[str, ...] = ()  # why it is not a log dir now, though it may become one
        self._listing = LogDirListing()
        self._logs: dict[TopicPartition, WatchedLog] = {}
        self._linked: tuple[LogStatus, ...] = ()
        self._offsets: dict[OffsetKind, dict[TopicPartition, int]] = {}
        self._own_files: dict[str, FileState] = {}
        self._last = DirLook()
        self._failure: Retry | None = None
        self._progress = (0, 0)
        self._judged_last: TopicPartition | None = None  # where the next look goes on; None: at the beginning

    @property
    def progress(self) -> tuple[int, int]:
        """How many logs the current or last look has passed, and of how many; for any thread."""
        return self._progress

    @property
    def settings(self) -> WatchedTopicSettings:
        """The topics' settings as of the last look; for any thread."""
        return self._settings

    def reconfigure(self, config: CleanerConfig, sources: Sources) -> None:
        """Use other settings from the next look on; an offline log dir is tried at once."""
        with self._guard:
            self._next = (config, sources)

    def look(self, now_ms: int) -> DirLook:
        """
        Look at the log dir now. Never raises: an error is part of the returned look.

        Args:
            now_ms: the wall clock; what is cleanable and what has expired depends on it.
        """
        self._take_over_settings()
        if self._failure is not None and self._failure.remaining_ms(now_ms) > 0:
            return self._last
        try:
            with as_cleaner_errors(self.path):
                self._last = self._look(now_ms)
        except Exception as error:  # noqa: BLE001 - even an internal error stops no other log dir
            self._last = self._offline(error, now_ms)
        else:
            self._failure = None
        return self._last

    def _take_over_settings(self) -> None:
        with self._guard:
            given, self._next = self._next, None
        if given is not None:
            self._config, sources = given
            self._settings.take_over(sources)
            self._failure = None

    def _offline(self, error: Exception, now_ms: int) -> DirLook:
        detail = describe(error)
        delays = RetryDelays.of(self._config)
        self._failure = after_failure(self._failure, now_ms, detail, delays)
        self._names = None
        self._own_files.clear()
        facts = LogDirFacts(DirCondition.OFFLINE, detail, self._failure.not_before_ms)
        return replace(self._last, facts=facts, beside_writer=False, free_bytes=None, total_bytes=None)

    def _look(self, now_ms: int) -> DirLook:
        begun_ns = self._clock.monotonic_ns()
        self._fs.accept(self.path)
        space = self._fs.space(self.path)
        if space.is_read_only:
            raise LogDirOfflineError(self.path, OSError(errno.EROFS, "the file system is read-only"))
        # Before the logs: a checkpoint slightly older than its log says that less is replicated, never more.
        self._read_own_files(now_ms)
        self._list()
        self._settings.refresh(self._names or (), now_ms)
        lock, use = self._log_dir.look()
        needs_recovery = must_be_recovered(use, self._logs)
        watches_retention = self._config.retention_enable and use is Use.CLOSED
        trusts_default = self._settings.trusts_default_policy
        quiet = self._config.quiet_cleaning
        moment = Moment(self._fs, self._settings, now_ms, begun_ns, watches_retention, use, trusts_default, quiet)
        behind = self._look_at_logs(moment)
        look = self._assemble(space, lock, needs_recovery, self._statuses(), now_ms)
        return replace(look, begun_ns=begun_ns, behind=behind)

    def _assemble(
        self, space: Space, lock: LockReport, needs_recovery: bool, logs: tuple[LogStatus, ...], now_ms: int
    ) -> DirLook:
        facts = LogDirFacts()
        if lock.holder is not LockHolder.NOBODY:
            process = f" (process {lock.pid})" if lock.pid is not None else ""
            detail = f"{lock.holder.value}{process}"
            facts = LogDirFacts(DirCondition.LOCKED, detail, now_ms + self._config.backoff_ms)
        elif needs_recovery and not self._config.recover:
            facts = LogDirFacts(
                DirCondition.NEEDS_RECOVERY,
                "no clean-shutdown marker and no writer at work; run cleaner recover, or set cleaner.recover=true",
            )
        mistake = self._settings.mistake
        return DirLook(
            facts=facts,
            beside_writer=lock.has_writer,
            needs_recovery=needs_recovery,
            free_bytes=space.free_bytes,
            total_bytes=space.total_bytes,
            looked_at_ms=now_ms,
            logs=logs,
            kafka=self._settings.kafka,
            warnings=(*self._dir_warnings, *self._settings.warnings, *([mistake] if mistake else [])),
        )

    def _look_at_logs(self, at: Moment) -> frozenset[TopicPartition]:
        """Look at every log; returns those that are behind."""
        total = len(self._logs)
        cleaned, replicated, begun = (
            self._offsets[kind].get for kind in (OffsetKind.CLEANER, OffsetKind.HIGH_WATERMARK, OffsetKind.LOG_START)
        )
        changed = []
        for number, (partition, watched) in enumerate(self._logs.items()):
            if watched.status is not None:
                self._progress = (number, total)
            lines = Lines(cleaned(partition), replicated(partition), begun(partition))
            if not watched.is_current(at, lines):
                changed.append((watched, lines))
        return self._judge(at, changed)

    def _judge(self, at: Moment, changed: list[tuple[WatchedLog, Lines]]) -> frozenset[TopicPartition]:
        """Look at logs that have changed, as far as the time allows; returns the rest."""
        if self._judged_last is not None:
            begin = bisect_right(changed, self._judged_last, key=lambda each: each[0].partition)
            changed = changed[begin:] + changed[:begin]
        total = len(changed)
        until_ns = self._clock.monotonic_ns() + JUDGING_NS
        behind = []
        judged = 0
        for number, (watched, lines) in enumerate(changed):
            self._progress = (number, total)
            is_new = watched.status is None
            if not is_new and judged >= JUDGED_AT_LEAST and self._clock.monotonic_ns() >= until_ns:
                behind.append(watched.partition)
                continue
            watched.look(at, lines)
            if is_new:
                watched.expect_freshness_until(at.now_ns, (number + 1) / total)
            else:
                judged += 1
                self._judged_last = watched.partition
        return frozenset(behind)

    def _statuses(self) -> tuple[LogStatus, ...]:
        """Return what is known of every log that is there; the same object as last time if it is the same."""
        seen = [watched.status for watched in self._logs.values() if watched.status is not None]
        statuses = (*seen, *self._linked)
        is_same = len(statuses) == len(self._last.logs) and all(map(operator.is_, statuses, self._last.logs))
        return self._last.logs if is_same else statuses

    def _list(self) -> None:
        """List and sort the directories, if they have changed since last time."""
        names = tuple(self._fs.list_dirs(self.path))
        if names == self._names:
            return
        # A directory that is empty, or holds nothing of a log dir, may wait for its disk to be mounted or for its first
        # log.
        require_log_dir(self._fs, self.path, may_be_new=True)
        reason = why_no_log_dir(self._fs, self.path)
        self._dir_warnings = () if reason is None else (reason,)
        self._listing = self._log_dir.listing()
        self._logs = {
            partition: self._logs.get(partition) or WatchedLog(partition, str(self.path), directory)
            for partition, directory in sorted(self._listing.current.items())
        }
        self._linked = tuple(
            LogStatus(partition, str(self.path), path).left_alone(NEVER_FOLLOWED)
            for partition, path in self._listing.linked.items()
        )
        self._names = names

    def _read_own_files(self, now_ms: int) -> None:
        """Read the files of the directory as a whole, those that `LogDir.check` reads: none may be damaged."""

        def take_offsets(kind: OffsetKind) -> None:
            self._offsets[kind] = self._log_dir.offsets(kind)

        for kind in OffsetKind:
            self._read_own_file(kind.value, partial(take_offsets, kind), now_ms)
        self._read_own_file(META_PROPERTIES, self._log_dir.meta_properties, now_ms)

    def _read_own_file(self, name: str, read: Callable[[], object], now_ms: int) -> None:
        """Read a file if it is another one than last time: such files are replaced, never changed in place."""
        try:
            state = FileState.of(self._fs.stat(self.path / name))
        except FileNotFoundError:
            state = FileState()
        if state != self._own_files.get(name):
            read()
            if proves_unchanged(state, now_ms):
                self._own_files[name] = state
            else:
                self._own_files.pop(name, None)
