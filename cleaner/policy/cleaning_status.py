"""
Why a log is next, waits, or is not to be cleaned: one reason each, with the numbers it rests on.

A log may have several reasons to wait; the one told is that which the end of the others would not remove. First what
holds a log whatever its numbers say (somebody works on it, it is paused, its disk is offline), then the numbers, and
only for a log that is due what holds it for a while (a closed window, a retry to come, a locked log dir, the queue).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cleaner.base.model import TopicPartition
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.due import Dueness, due_words


class Reason(enum.Enum):
    """Why, in the order in which reasons are looked for; the values are fit for a label or JSON."""

    IN_PROGRESS = "in_progress"
    ABORTED = "aborted"
    RETENTION = "retention"
    TO_BE_LOOKED_AT = "to_be_looked_at"
    NOT_COMPACTED = "not_compacted"
    QUARANTINED = "quarantined"
    LOG_DIR_OFFLINE = "log_dir_offline"
    LOG_DIR_NEEDS_RECOVERY = "log_dir_needs_recovery"
    PAUSED = "paused"
    ALL_PAUSED = "all_paused"
    DISABLED = "disabled"
    NOTHING_TO_CLEAN = "nothing_to_clean"
    UNDER_RATIO = "under_ratio"
    WINDOW_CLOSED = "window_closed"
    RETRY_LATER = "retry_later"
    LOG_DIR_LOCKED = "log_dir_locked"
    LOG_DIR_BUSY = "log_dir_busy"
    REQUESTED = "requested"
    OVERDUE = "overdue"
    OVER_RATIO = "over_ratio"
    CHECKPOINT_RESET = "checkpoint_reset"
    UNFINISHED_SWAP = "unfinished_swap"

    @property
    def is_due_and_free(self) -> bool:
        """Tell whether a log with this reason only waits for a worker."""
        by_numbers = self in (Reason.OVERDUE, Reason.OVER_RATIO)
        return by_numbers or self in (Reason.REQUESTED, Reason.CHECKPOINT_RESET, Reason.UNFINISHED_SWAP)

    @property
    def is_candidate(self) -> bool:
        """Tell whether Kafka would weigh such a log at all (R-420); one of an offline log dir has left it (R-722)."""
        return self not in _NO_CANDIDATES


_NO_CANDIDATES = frozenset(
    (
        Reason.IN_PROGRESS,
        Reason.ABORTED,
        Reason.RETENTION,
        Reason.TO_BE_LOOKED_AT,
        Reason.NOT_COMPACTED,
        Reason.QUARANTINED,
        Reason.LOG_DIR_OFFLINE,
        Reason.LOG_DIR_NEEDS_RECOVERY,
        Reason.PAUSED,
    )
)


@dataclass(frozen=True, slots=True)
class CleaningStatus:
    """
    What is to be said of one log.

    Attributes:
        partition: whose log.
        reason: see `Reason`.
        dueness: what its numbers say, also where something else holds it.
        cleanable: its range and bytes.
        min_ratio: its `min.cleanable.dirty.ratio`.
        overdue_ms: by how much it is over `max.compaction.lag.ms`; 0: it is not (R-415).
        overdue_in_ms: how long until it would be; None when it is, or has no dirty segment with a time.
        place: 1 for the log to clean next, 2 for the one after it; None unless due and free.
        count: outstanding pauses, failures in a row, or workers in the log dir; 0 where none is spoken of.
        wait_ms: how long the obstacle lasts (a closed window, a retry, a locked log dir); None when nobody can tell.
        detail: who works on it, why it was set aside, what failed, in words.
    """

    partition: TopicPartition
    reason: Reason
    dueness: Dueness
    cleanable: Cleanable
    min_ratio: float
    overdue_ms: int = 0
    overdue_in_ms: int | None = None
    place: int | None = None
    count: int = 0
    wait_ms: int | None = None
    detail: str = ""

    def words(self) -> str:
        """Say it to the operator, in one line."""
        numbers = due_words(self.dueness, self.cleanable, self.overdue_ms, self.min_ratio)
        if self.reason.is_due_and_free:
            why = f"asked for, {numbers}" if self.reason is Reason.REQUESTED else numbers
            if self.reason is Reason.CHECKPOINT_RESET:
                offset = self.cleanable.first_dirty_offset
                why = f"its cleaner checkpoint lies outside of the log and is set to {offset}; {numbers}"
            if self.reason is Reason.UNFINISHED_SWAP:
                why = f"an interrupted swap is to be settled; {numbers}"
            return f"next: {why}" if self.place == 1 else f"number {self.place} in the queue: {why}"
        if self.reason is Reason.NOTHING_TO_CLEAN:
            return numbers
        if self.reason is Reason.UNDER_RATIO:
            if self.overdue_in_ms is None:
                return numbers
            return f"{numbers}; over max.compaction.lag.ms in {self.overdue_in_ms} ms"
        if self.reason is Reason.TO_BE_LOOKED_AT:  # its numbers are those from before
            return self._obstacle_words()
        return f"{self._obstacle_words()}; {numbers}" if self.dueness.is_due else self._obstacle_words()

    def _obstacle_words(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        remaining = f", for {self.wait_ms} ms more" if self.wait_ms is not None else ""
        words = {
            Reason.IN_PROGRESS: f"in progress{detail}",
            Reason.ABORTED: f"asked to stop{detail}",
            Reason.RETENTION: "its expired segments are being removed",
            Reason.TO_BE_LOOKED_AT: "was just worked on, and is looked at again",
            Reason.NOT_COMPACTED: "cleanup.policy is without compact",
            Reason.QUARANTINED: f"quarantined{detail}",
            Reason.LOG_DIR_OFFLINE: f"its log dir is offline{detail}",
            Reason.LOG_DIR_NEEDS_RECOVERY: f"its log dir needs recovery{detail}",
            Reason.PAUSED: f"paused, pauses outstanding: {self.count}",
            Reason.ALL_PAUSED: "the cleaner is paused",
            Reason.DISABLED: "log.cleaner.enable is false",
            Reason.WINDOW_CLOSED: f"outside cleaner.windows{remaining}",
            Reason.RETRY_LATER: f"failed, times in a row: {self.count}{detail}; not tried{remaining}",
            Reason.LOG_DIR_LOCKED: f"its log dir is in use by another process{detail}; not tried{remaining}",
            Reason.LOG_DIR_BUSY: f"its log dir is busy, workers there: {self.count}",
        }
        return words[self.reason]
