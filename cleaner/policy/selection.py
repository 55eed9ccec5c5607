"""
Decides which log is cleaned next, and why every other one is not.

    kafka      the highest ratio among the logs that are due, overdue or not (R-421, R-422)
    deadline   overdue logs first, the longest overdue at the head; then the others by ratio

In both, a requested log comes first, one that only needs its checkpoint corrected comes last, and of equals the first
one given (R-422 leaves that open; Kafka takes the first of its map). A log dir that is offline, locked or has all its
workers busy holds up only its own logs.

With `deadline`, a log with a maximum lag does not wait behind ever new, dirtier logs: a log that becomes overdue later
always comes after it. For this, a log's waiting time counts from its last round, successful or not, if that was after
its deadline: a log that gets records dated years ago is overdue again at once, and a log that fails stays overdue, but
both have waited only since they last had a worker. So an overdue log waits for at most one round of each log ahead.

Source: rules R-410, R-420 to R-422, R-433, R-452.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from cleaner.base.model import TopicPartition
from cleaner.policy.cleaning_status import CleaningStatus
from cleaner.policy.due import judge, overdue_at_ms, overdue_ms
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry
from cleaner.policy.selection_context import DirCondition, LogDirFacts, LogFacts, SelectionContext
from cleaner.policy.states import IDLE, PartitionState, Phase
from cleaner.policy.unread import NO_HORIZON

_Key = TypeVar("_Key")


class Order(enum.Enum):
    """The values of `cleaner.selection`."""

    KAFKA = "kafka"
    DEADLINE = "deadline"


class Basis(NamedTuple):
    """The parts of the context on which results depend; copies, as the context may change."""

    now_ms: int
    states: Mapping[TopicPartition, PartitionState]
    quarantined: Mapping[TopicPartition, str]
    retries: Mapping[TopicPartition, Retry]
    requested: Mapping[TopicPartition, int]
    log_dirs: Mapping[str, LogDirFacts]
    of_all: tuple[bool, bool, int | None]

    @staticmethod
    def of(context: SelectionContext) -> Basis:
        """Copy the parts from a context."""
        # The number of workers in a log dir is irrelevant without a limit.
        log_dirs = {
            path: facts if facts.max_workers is not None else replace(facts, workers=0)
            for path, facts in context.log_dirs.items()
        }
        of_all = (context.is_enabled, context.is_paused, context.opens_at_ms)
        return Basis(
            context.now_ms,
            *(dict(context.states), dict(context.quarantined), dict(context.retries), dict(context.requested)),
            *(log_dirs, of_all),
        )


@dataclass(frozen=True)
class Survey:
    """
    The result for all logs.

    Attributes:
        queue: the logs that only wait for a worker, in the order in which they should get one.
        verdicts: one a log, in the order the logs were given; those of an earlier survey have its time, see
            `CleaningStatus.at`.
        logs, basis: the input.
    """

    queue: tuple[LogFacts, ...]
    verdicts: tuple[CleaningStatus, ...]
    logs: tuple[LogFacts, ...]
    basis: Basis


def survey(logs: Sequence[LogFacts], context: SelectionContext, order: Order, before: Survey | None = None) -> Survey:
    """
    Judge every log and order those that are due and free; see the module's docstring.

    Args:
        logs: all logs.
        context: everything else that matters.
        order: of the queue.
        before: an earlier survey. Its result for a log is reused if its input has not changed, so that of thousands of
            logs only a few are judged. The outcome is the same as without, except for the moment that its times are
            counted from.
    """
    basis = Basis.of(context)
    kept = {} if before is None else _unchanged_verdicts(before, basis)
    if before is not None and len(kept) == len(logs) == len(before.logs) and all(map(operator.is_, logs, before.logs)):
        return before
    # Most logs keep their places, so a new verdict begins with the place of the old one.
    places = {} if before is None else {verdict.partition: verdict.place for verdict in before.verdicts}
    verdicts = [kept.get(id(log)) or _judge(log, context, places.get(log.partition)) for log in logs]
    queue = [row for row, verdict in enumerate(verdicts) if verdict.reason.is_due_and_free]
    # A stable sort keeps equals in the given order.
    queue.sort(key=lambda row: _rank(logs[row], verdicts[row], context.requested, order))
    for number, row in enumerate(queue, start=1):
        if verdicts[row].place != number:
            verdicts[row] = replace(verdicts[row], place=number)
    return Survey(tuple(logs[row] for row in queue), tuple(verdicts), tuple(logs), basis)


def _unchanged_verdicts(before: Survey, basis: Basis) -> dict[int, CleaningStatus]:
    """Return the results that neither time nor context has changed, by the `id` of the log's facts."""
    then = before.basis
    # After the clock was set back, past times lie in the future again.
    if then.of_all != basis.of_all or then.now_ms > basis.now_ms:
        return {}
    moved = (
        _changed(then.states, basis.states)
        | _changed(then.quarantined, basis.quarantined)
        | _changed(then.retries, basis.retries)
        | _changed(then.requested, basis.requested)
    )
    moved_dirs = _changed(then.log_dirs, basis.log_dirs)
    return {
        id(log): verdict
        for log, verdict in zip(before.logs, before.verdicts, strict=True)
        if ((changes_at_ms := verdict.changes_at_ms) is None or basis.now_ms < changes_at_ms)
        and log.partition not in moved
        and log.log_dir not in moved_dirs
    }


def deletable(logs: Sequence[LogFacts], context: SelectionContext) -> list[LogFacts]:
    """
    Return the logs that a retention pass may take now: they have expired segments, and no worker (R-433).

    Windows, ratios, busy workers and `log.cleaner.enable` do not matter for it, nor do retries: a log whose rounds find
    no room needs its expired segments deleted all the more.
    """
    return [
        log
        for log in logs
        if log.has_segments_to_delete
        and log.partition not in context.states
        and log.partition not in context.quarantined
        and not context.is_paused
        and _dir_obstacle(log, context) is None
        and _lock_remaining_ms(log, context) == 0
    ]


def _changed(then: Mapping[_Key, object], now: Mapping[_Key, object]) -> set[_Key]:
    return {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}


def _judge(log: LogFacts, context: SelectionContext, place: int | None) -> CleaningStatus:
    delay_ms = overdue_ms(log.earliest_dirty_timestamp_ms, log.max_compaction_lag_ms, context.now_ms)
    dueness = judge(log.cleanable, delay_ms, log.min_cleanable_dirty_ratio)
    reason = _reason(log, dueness, context)
    verdict = CleaningStatus(
        log.partition,
        reason,
        dueness,
        log.cleanable,
        log.min_cleanable_dirty_ratio,
        overdue_ms=delay_ms,
        overdue_in_ms=_overdue_in_ms(log, context.now_ms) if delay_ms == 0 else None,
        place=place if reason.is_due_and_free else None,
        as_of_ms=context.now_ms,
    )
    return _with_figures(verdict, log, context)


def _reason(log: LogFacts, dueness: Reason, context: SelectionContext) -> Reason:
    """Return the first applicable value of `Reason`."""
    lasting = _lasting_obstacle(log, context)
    if lasting is not None:
        return lasting
    # a checkpoint outside the log is corrected, and an interrupted swap is settled, even if there is
    # nothing to clean. Kafka does the first at each turn and the second when it starts.
    is_odd = log.cleanable.force_checkpoint or bool(log.unfinished_swap) or _has_horizon_passed(log, dueness, context)
    if dueness is Reason.NOTHING_TO_CLEAN and not is_odd:
        return Reason.NO_HIGH_WATERMARK if log.lacks_high_watermark else Reason.NOTHING_TO_CLEAN
    is_requested = log.partition in context.requested
    if not is_requested:
        if dueness is Reason.UNDER_RATIO and not is_odd:
            return Reason.UNDER_RATIO
        if context.opens_at_ms is not None:
            return Reason.WINDOW_CLOSED
        if _retry_remaining_ms(log, context) > 0:
            return Reason.RETRY_LATER
    if _lock_remaining_ms(log, context) > 0:
        return Reason.LOG_DIR_LOCKED
    log_dir = context.log_dirs.get(log.log_dir)
    if log_dir is not None and log_dir.max_workers is not None and log_dir.workers >= log_dir.max_workers:
        return Reason.LOG_DIR_BUSY
    if is_requested:
        return Reason.REQUESTED
    if dueness is Reason.OVERDUE:
        return Reason.OVERDUE
    if dueness is Reason.OVER_RATIO:
        return Reason.OVER_RATIO
    if log.cleanable.force_checkpoint:
        return Reason.CHECKPOINT_RESET
    return Reason.UNFINISHED_SWAP if log.unfinished_swap else Reason.HORIZON_PASSED


def _has_horizon_passed(log: LogFacts, dueness: Reason, context: SelectionContext) -> bool:
    """Tell whether a log without anything dirty has tombstones or markers that may go, as far as is known."""
    next_ms = log.next_horizon_ms
    return dueness is Reason.NOTHING_TO_CLEAN and next_ms is not None and next_ms <= context.now_ms


def _lasting_obstacle(log: LogFacts, context: SelectionContext) -> Reason | None:
    """Return the obstacle that holds a log whatever its numbers are, if any."""
    phase = context.states.get(log.partition, IDLE).phase
    if phase is Phase.IN_PROGRESS:
        return Reason.IN_PROGRESS
    if phase is Phase.ABORTED:
        return Reason.ABORTED
    if not log.is_compacted:
        return Reason.NOT_COMPACTED
    if log.partition in context.quarantined:
        return Reason.QUARANTINED
    by_dir = _dir_obstacle(log, context)
    if by_dir is not None:
        return by_dir
    if phase is Phase.PAUSED:
        return Reason.PAUSED
    if context.is_paused:
        return Reason.ALL_PAUSED
    return None if context.is_enabled else Reason.DISABLED


def _dir_obstacle(log: LogFacts, context: SelectionContext) -> Reason | None:
    log_dir = context.log_dirs.get(log.log_dir)
    if log_dir is None:
        return None
    if log_dir.condition is DirCondition.OFFLINE:
        return Reason.LOG_DIR_OFFLINE
    return Reason.LOG_DIR_NEEDS_RECOVERY if log_dir.condition is DirCondition.NEEDS_RECOVERY else None


def _with_figures(verdict: CleaningStatus, log: LogFacts, context: SelectionContext) -> CleaningStatus:
    """Add the numbers and texts that belong to the reason."""
    reason, log_dir = verdict.reason, context.log_dirs.get(log.log_dir, LogDirFacts())
    if reason in (Reason.IN_PROGRESS, Reason.ABORTED):
        return replace(verdict, detail=context.states[log.partition].holder or "")
    if reason is Reason.PAUSED:
        return replace(verdict, count=context.states[log.partition].pauses)
    if reason is Reason.QUARANTINED:
        return replace(verdict, detail=context.quarantined[log.partition])
    if reason in (Reason.LOG_DIR_OFFLINE, Reason.LOG_DIR_NEEDS_RECOVERY):
        return replace(verdict, detail=log_dir.detail)
    if reason is Reason.NOTHING_TO_CLEAN and log.next_horizon_ms is not None and log.next_horizon_ms < NO_HORIZON:
        return replace(verdict, wait_ms=log.next_horizon_ms - context.now_ms)
    if reason is Reason.WINDOW_CLOSED and context.opens_at_ms is not None:
        return replace(verdict, wait_ms=max(0, context.opens_at_ms - context.now_ms))
    if reason is Reason.UNFINISHED_SWAP:
        return replace(verdict, detail=log.unfinished_swap)
    if reason is Reason.RETRY_LATER:
        retry = context.retries[log.partition]
        return replace(verdict, count=retry.failures, wait_ms=retry.remaining_ms(context.now_ms), detail=retry.cause)
    if reason is Reason.LOG_DIR_LOCKED:
        return replace(verdict, wait_ms=_lock_remaining_ms(log, context), detail=log_dir.detail)
    return replace(verdict, count=log_dir.workers) if reason is Reason.LOG_DIR_BUSY else verdict


def _retry_remaining_ms(log: LogFacts, context: SelectionContext) -> int:
    retry = context.retries.get(log.partition)
    return 0 if retry is None else retry.remaining_ms(context.now_ms)


def _lock_remaining_ms(log: LogFacts, context: SelectionContext) -> int:
    log_dir = context.log_dirs.get(log.log_dir)
    if log_dir is None or log_dir.condition is not DirCondition.LOCKED:
        return 0
    return max(0, log_dir.not_before_ms - context.now_ms)


def _overdue_in_ms(log: LogFacts, now_ms: int) -> int | None:
    """Return how long until the log is over its maximum lag."""
    moment_ms = overdue_at_ms(log.earliest_dirty_timestamp_ms, log.max_compaction_lag_ms)
    return None if moment_ms is None else moment_ms - now_ms


def _rank(
    log: LogFacts, verdict: CleaningStatus, requested: Mapping[TopicPartition, int], order: Order
) -> tuple[int, int, float]:
    """Return the queue's sort key, ascending; it does not depend on the time, so a kept verdict has the same key."""
    if verdict.reason is Reason.REQUESTED:
        return (0, requested[log.partition], 0.0)
    if order is Order.DEADLINE and verdict.reason is Reason.OVERDUE:
        since_ms = verdict.as_of_ms - verdict.overdue_ms
        # After the clock was set back the last round may be in the future; the order is still that of the last rounds.
        return (1, since_ms if log.last_round_ms is None else max(since_ms, log.last_round_ms), -log.cleanable.ratio)
    return (2 if verdict.dueness.is_due else 3, 0, -log.cleanable.ratio)
