"""What the manager knows of everything, at one moment: what is shown is made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.looked_log import LookedLog
from cleaner.daemon.snapshot import JobView, WorkerView
from cleaner.model import TopicPartition
from cleaner.policy.circumstances import LogDirFacts
from cleaner.policy.retry import Retry
from cleaner.policy.selection import Survey
from cleaner.policy.verdict import Reason, Verdict


@dataclass(frozen=True)
class Board:
    """
    What the manager knows, at one moment.

    Attributes:
        logs: every log and its verdict; None where it may not be cleaned or could not be looked at.
        looks: the log dirs, by path.
        log_dirs: their facts as they count now.
        survey: the last one.
    """

    logs: Sequence[tuple[LookedLog, Verdict | None]]
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


def as_of_now(verdict: Verdict, worker: str | None) -> Verdict:
    """Return a verdict, or that a worker has taken the log since."""
    if worker is None or verdict.reason in (Reason.IN_PROGRESS, Reason.ABORTED):
        return verdict
    return replace(verdict, reason=Reason.IN_PROGRESS, place=None, detail=worker)
