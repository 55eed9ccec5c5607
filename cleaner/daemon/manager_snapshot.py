"""The manager's state at one moment; everything that is shown is made from it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cleaner.base.model import TopicPartition
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.snapshot import JobView, WorkerView
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.selection import Survey
from cleaner.policy.selection_context import LogDirFacts


class HeldLogs(NamedTuple):
    """
    Which logs are taken at the moment. The last survey may say otherwise: it is kept while logs are taken and given
    back.

    Attributes:
        workers: the worker of each log being cleaned, by partition and log dir.
        stopping: the partitions among them that are asked to stop.
        retention: partitions that retention works on.
        stale: partitions that were given back and not looked at since.
    """

    workers: Mapping[tuple[TopicPartition, str], str]
    stopping: frozenset[TopicPartition]
    retention: frozenset[TopicPartition]
    stale: frozenset[TopicPartition]


@dataclass(frozen=True)
class ManagerSnapshot:
    """
    The manager's state at one moment.

    Attributes:
        logs: every log and its verdict; None if it may not be cleaned or could not be read.
        held: which logs are taken; the verdicts have been adjusted to it.
        looks: the log dirs, by path.
        log_dirs: their facts, with failures of rounds applied.
        survey: the last one.
    """

    logs: Sequence[tuple[LogStatus, CleaningStatus | None]]
    held: HeldLogs
    looks: Mapping[str, DirLook]
    log_dirs: Mapping[str, LogDirFacts]
    survey: Survey
    workers: tuple[WorkerView, ...]
    stuck: tuple[str, ...]
    jobs: tuple[JobView, ...]
    pauses: tuple[str, ...]
    retries: Mapping[TopicPartition, Retry]
    last_round_ms: Mapping[TopicPartition, int]
    opens_at_ms: int | None


def as_of_now(
    logs: Iterable[LogStatus], verdicts: Iterable[CleaningStatus], held: HeldLogs
) -> list[tuple[LogStatus, CleaningStatus | None]]:
    """
    Return every log with its verdict, adjusted for logs that were taken or given back since the survey.

    Args:
        logs: in the survey's order, including the logs that may not be cleaned.
        verdicts: of the survey.
        held: which logs are taken now.
    """
    remaining = iter(verdicts)
    shown: list[tuple[LogStatus, CleaningStatus | None]] = []
    taken: list[int] = []
    moved = {partition for partition, _ in held.workers} | held.retention | held.stale
    for log in logs:
        verdict = next(remaining) if log.facts is not None else None
        if verdict is not None and log.partition in moved:
            now = _as_of_now(verdict, log, held)
            if verdict.place is not None and now.place is None:
                taken.append(verdict.place)
            verdict = now
        shown.append((log, verdict))
    if taken:
        taken.sort()
        shown = [(log, verdict and _moved_up(verdict, taken)) for log, verdict in shown]
    return shown


def _as_of_now(verdict: CleaningStatus, log: LogStatus, held: HeldLogs) -> CleaningStatus:
    worker = held.workers.get((log.partition, log.log_dir))
    if worker is not None:
        reason = Reason.ABORTED if log.partition in held.stopping else Reason.IN_PROGRESS
        return replace(verdict, reason=reason, place=None, detail=worker)
    if log.partition in held.retention:
        return replace(verdict, reason=Reason.RETENTION, place=None, detail="")
    # A lasting obstacle (a pause, a retry, its disk) still holds; a verdict from its old numbers does not.
    if verdict.reason.is_due_and_free or verdict.reason in (Reason.IN_PROGRESS, Reason.ABORTED):
        return replace(verdict, reason=Reason.TO_BE_LOOKED_AT, place=None, detail="")
    return verdict


def _moved_up(verdict: CleaningStatus, taken: Sequence[int]) -> CleaningStatus:
    """Return the verdict of a queued log with its new place after logs before it have left the queue."""
    if verdict.place is None or verdict.place < taken[0]:
        return verdict
    return replace(verdict, place=verdict.place - bisect_left(taken, verdict.place))
