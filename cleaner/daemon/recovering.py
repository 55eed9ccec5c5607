"""
Recovering log dirs that were not closed in order, where `cleaner.recover` asks for it.

It runs in the log dir's scanner thread, under an exclusive lock. Logs that cannot be recovered are quarantined, and the
others cleaned. Then there must be no clean-shutdown marker, which a broker would trust for all logs. So the log dir's
lock is kept until the process ends: as long as it is held, the state of the other logs is known.

A failure that may pass by itself (no space, a disk that failed) quarantines no log: the whole recovery is tried again
later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from cleaner.app.options import CallContext
from cleaner.app.recover_log_dir import recover_partitions
from cleaner.app.session import Session, as_cleaner_errors, choose_partitions
from cleaner.base.model import TopicPartition
from cleaner.daemon.faults import Ending, judge_failure
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.round_task import RoundTools
from cleaner.daemon.scanners import Scanners, Watched
from cleaner.errors import CleanerError, as_value
from cleaner.policy.retry import Retry, RetryDelays, after_failure
from cleaner.policy.selection_context import DirCondition
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.segment.names import PARTITION_METADATA

_BEING_RECOVERED = "it is being recovered"


PutIntoQuarantine = Callable[[TopicPartition, Path, CleanerError, UUID | None], None]
"""Puts a log into quarantine: its log dir, why, and the id of its topic if it has one that can be read."""


class DirRecovery:
    """
    Recovers log dirs that need it. To be called by the scheduler's thread.

    Args:
        tools: the same that rounds use.
        put_into_quarantine: puts a log into quarantine.
        check_done: raises CleaningAborted when the daemon is being stopped.
        note: called with what was done, and what failed.
    """

    def __init__(
        self,
        tools: RoundTools,
        put_into_quarantine: PutIntoQuarantine,
        check_done: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._tools = tools
        self._put_into_quarantine = put_into_quarantine
        self._check_done = check_done
        self._note = note
        self._retries: dict[Path, Retry] = {}

    def overlay(
        self,
        watched: Sequence[Watched],
        looks: Mapping[str, DirLook],
        scanners: Scanners,
        delays: RetryDelays,
        now_ms: int,
    ) -> dict[str, DirLook]:
        """
        Begin to recover log dirs that need it, and return the looks; a log dir recovered under a kept lock is fit.
        """
        paths = {str(each.path): each for each in watched}
        return {
            path: self._one(paths[path], look, scanners, delays, now_ms) if _needs_recovery(look) else look
            for path, look in looks.items()
        }

    def _one(self, watched: Watched, look: DirLook, scanners: Scanners, delays: RetryDelays, now_ms: int) -> DirLook:
        path = watched.path
        if self._tools.locks.is_kept(path):
            return look
        retry = self._retries.get(path)
        if retry is None or not retry.remaining_ms(now_ms):
            # The failure is noted before the attempt, and removed if the attempt succeeds.
            self._retries[path] = after_failure(retry, now_ms, "recovery", delays)
            scanners.run_other(path, lambda: self._recover(watched), _BEING_RECOVERED)
        facts = replace(look.facts, condition=DirCondition.NEEDS_RECOVERY, detail=self._words(path, now_ms))
        return replace(look, facts=facts)

    def _words(self, path: Path, now_ms: int) -> str:
        retry = self._retries[path]
        if retry.failures == 1 and retry.failed_at_ms == now_ms:
            return _BEING_RECOVERED
        return f"recovery is tried again in {retry.remaining_ms(now_ms) // 1000} s; see the logs"

    def _recover(self, watched: Watched) -> DirLook:
        """Recover a log dir, then look at it."""
        tools = self._tools
        try:
            with as_cleaner_errors(watched.path), tools.locks.exclusive(watched.path) as lock:
                context = CallContext(fs=tools.fs, clock=tools.clock, check_done=self._check_done, warn=self._note)
                log_dir = tools.log_dir_of(watched.path)
                log_dir.check()
                session = Session(log_dir, tools.settings_of(log_dir.path), context, tools.throttle, lock=lock)
                report = recover_partitions(session, choose_partitions(session, None), allow_truncate=False)
                for refusal in report.refused:
                    if judge_failure(refusal.error, log_dir.path).ending is not Ending.QUARANTINED:
                        raise refusal.error
                if not report.has_marker:
                    tools.locks.keep(watched.path)
            for refusal in report.refused:
                partition = TopicPartition.parse(refusal.partition)
                topic_id = self._topic_id(watched.path / refusal.partition)
                self._put_into_quarantine(partition, watched.path, refusal.error, topic_id)
            self._note(f"{watched.path}: recovered {len(report.partitions)} logs; {report.note or 'marked clean'}")
            del self._retries[watched.path]
        except CleanerError as error:
            self._note(f"{watched.path}: cannot be recovered now: {as_value(error)}")
        return watched.look(tools.clock.now_ms())

    def _topic_id(self, directory: Path) -> UUID | None:
        try:
            return read_topic_id(self._tools.fs, directory / PARTITION_METADATA)
        except CleanerError:
            return None  # perhaps why it was refused


def _needs_recovery(look: DirLook) -> bool:
    return look.needs_recovery and look.facts.condition is DirCondition.ONLINE
