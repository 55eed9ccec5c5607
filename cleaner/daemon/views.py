"""Makes the parts of a `ServiceSnapshot` from the state of the daemon."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from cleaner.app.plan_settings import topic_settings
from cleaner.base.io_throttle import UNLIMITED_FROM, IoThrottle
from cleaner.base.model import TopicPartition
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.manager_snapshot import HeldLogs, ManagerSnapshot
from cleaner.daemon.snapshot import Counts, LogDirView, LogView, ServiceSnapshot, ThrottleView, WorkerView
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.selection import Survey
from cleaner.policy.selection_context import DirCondition, LogDirFacts
from cleaner.state.quarantine import QuarantinedLog


def log_view(log: LogStatus, verdict: CleaningStatus | None, last_round_ms: int | None) -> LogView:
    """Show one log."""
    return LogView(
        partition=log.partition,
        log_dir=log.log_dir,
        policy=log.policy,
        policy_origin=log.policy_origin,
        segments=log.segments,
        sections=log.sections,
        verdict=verdict,
        held_by=log.held_by,
        why=verdict.words() if verdict is not None else log.why,
        error=log.error,
        last_round_ms=last_round_ms,
        warnings=log.warnings,
    )


def with_settings(shown: ServiceSnapshot, known: ManagerSnapshot, names: Collection[str]) -> ServiceSnapshot:
    """Show the logs of some topics and partitions with their topics' settings."""
    found = {
        (log.partition, log.log_dir): topic_settings(log.resolved)
        for log, _ in known.logs
        if log.resolved is not None and (str(log.partition) in names or log.partition.topic in names)
    }
    logs = [replace(view, settings=found.get((view.partition, view.log_dir), ())) for view in shown.logs]
    return replace(shown, logs=tuple(logs))


class _Basis(NamedTuple):
    """What the views of all logs are made of."""

    survey: Survey
    held: HeldLogs
    logs: list[tuple[LogStatus, ...]]

    def is_same(self, other: _Basis) -> bool:
        """Tell whether the views are the same."""
        if self.survey is not other.survey or self.held != other.held or len(self.logs) != len(other.logs):
            return False
        return all(map(operator.is_, self.logs, other.logs))


class LogViews:
    """
    The views of all logs, rebuilt only if something has changed: most of thousands of logs stay the same.

    To be called by one thread at a time.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[TopicPartition, str], tuple[LogStatus, CleaningStatus | None, int | None, LogView]] = {}
        self._made_of: _Basis | None = None
        self._all: tuple[LogView, ...] = ()
        self._counts = Counts()

    def of(self, known: ManagerSnapshot) -> tuple[tuple[LogView, ...], Counts]:
        """Show every log, in order of partition and log dir, and count them."""
        made_of = _Basis(known.survey, known.held, [look.logs for look in known.looks.values()])
        if self._made_of is None or not made_of.is_same(self._made_of):
            made = {(log.partition, log.log_dir): self._one(log, verdict, known) for log, verdict in known.logs}
            self._made = dict(sorted(made.items()))
            self._all = tuple(view for _, _, _, view in self._made.values())
            self._counts = Counts.of(self._all)
            self._made_of = made_of
        return self._all, self._counts

    def _one(
        self, log: LogStatus, verdict: CleaningStatus | None, known: ManagerSnapshot
    ) -> tuple[LogStatus, CleaningStatus | None, int | None, LogView]:
        last = known.last_round_ms.get(log.partition)
        before = self._made.get((log.partition, log.log_dir))
        if before is not None and before[0] is log and before[2] == last and verdict in before[1:2]:
            return before
        return log, verdict, last, log_view(log, verdict, last)


class LogDirHistory:
    """Remembers since when each log dir has had its condition. To be called by one thread at a time."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[DirCondition, int]] = {}

    def note(self, log_dirs: Mapping[str, LogDirFacts], now_ms: int) -> list[str]:
        """Take note of the current conditions; returns the log dirs whose condition has changed."""
        changed = []
        for path, facts in log_dirs.items():
            before = self._since.get(path)
            if before is None or before[0] is not facts.condition:
                self._since[path] = (facts.condition, now_ms)
                if before is not None or facts.condition is not DirCondition.ONLINE:
                    changed.append(path)
        return changed

    def view(
        self, path: str, look: DirLook, facts: LogDirFacts, quarantine: tuple[QuarantinedLog, ...], now_ms: int
    ) -> LogDirView:
        """Show one log dir."""
        quarantined = {entry.topic_partition for entry in quarantine if entry.log_dir == path}
        return LogDirView(
            path=path,
            condition=facts.condition,
            detail=facts.detail,
            since_ms=self._since.get(path, (facts.condition, now_ms))[1],
            partitions=len(look.logs),
            free_bytes=look.free_bytes,
            total_bytes=look.total_bytes,
            workers=facts.workers,
            uncleanable_partitions=len(quarantined),
            uncleanable_bytes=_uncleanable_bytes(look, quarantined),
            looked_at_ms=look.looked_at_ms,
            beside_writer=look.beside_writer,
            kafka="" if look.kafka is None else look.kafka.version.name,
            kafka_origin="" if look.kafka is None else look.kafka.origin,
        )


def _uncleanable_bytes(look: DirLook, quarantined: set[TopicPartition]) -> int:
    """Return the bytes of quarantined logs from their first dirty offset on, as Kafka counts them (R-452)."""
    return sum(
        log.sections.total_bytes - log.sections.clean_bytes
        for log in look.logs
        if log.partition in quarantined and log.sections is not None
    )


def worker_views(names: list[str], busy: tuple[WorkerView, ...], now_ms: int) -> tuple[WorkerView, ...]:
    """Show every worker, busy ones first."""
    at_work = {view.name: view for view in busy}
    idle = [WorkerView(name, None, None, "", 0, 0, now_ms, None) for name in names if name not in at_work]
    return (*busy, *idle)


def throttle_view(throttle: IoThrottle, log_dirs: Mapping[str, float]) -> ThrottleView:
    """Show the speed limit."""
    statistics = throttle.statistics()
    rate = statistics.bytes_per_second
    return ThrottleView(
        bytes_per_second=None if rate >= UNLIMITED_FROM else rate,
        bytes=statistics.bytes,
        waited_seconds=statistics.waited_ns / 1e9,
        log_dirs={path: rate for path, rate in log_dirs.items() if rate < UNLIMITED_FROM},
    )
