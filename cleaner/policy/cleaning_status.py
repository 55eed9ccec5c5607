"""
Why a log is next, waits, or is not cleaned: one reason for each log, with the numbers behind it.

If a log has several reasons to wait, the most lasting one is shown. First come obstacles that hold a log whatever its
numbers are (a worker has it, it is paused, its disk is offline); then the numbers; and only for a log that is due the
obstacles that pass (a closed window, a retry, a locked log dir, the queue).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cleaner.base.model import TopicPartition
from cleaner.base.sizes import duration
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.due import due_words
from cleaner.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class CleaningStatus:
    """
    The result for one log.

    Attributes:
        partition: of the log.
        reason: see `Reason`.
        dueness: the result by its numbers alone (see `due.judge`), also if something else holds it.
        cleanable: its range and bytes.
        min_ratio: its `min.cleanable.dirty.ratio`.
        overdue_ms: by how much it is over `max.compaction.lag.ms`; 0: it is not (R-415).
        overdue_in_ms: how long until it will be; None if it is, or has no dirty segment with a time.
        place: 1 for the log to clean next, 2 for the one after it; None unless due and free.
        count: outstanding pauses, failures in a row, or workers in the log dir; 0 for other reasons.
        wait_ms: how long the obstacle lasts (a closed window, a retry, a locked log dir, a delete horizon that has not
            passed); None if that is not known.
        detail: which worker has it, why it was quarantined, what failed or was interrupted, as text.
        as_of_ms: the moment that `overdue_ms`, `overdue_in_ms` and `wait_ms` are counted from; see `at`.
    """

    partition: TopicPartition
    reason: Reason
    dueness: Reason
    cleanable: Cleanable
    min_ratio: float
    overdue_ms: int = 0
    overdue_in_ms: int | None = None
    place: int | None = None
    count: int = 0
    wait_ms: int | None = None
    detail: str = ""
    as_of_ms: int = 0

    @property
    def changes_at_ms(self) -> int | None:
        """The first moment at which time alone may give it another reason; None: time alone never does."""
        if self.overdue_in_ms is None and self.wait_ms is None:
            return None
        return self.as_of_ms + min(wait for wait in (self.overdue_in_ms, self.wait_ms) if wait is not None)

    def at(self, now_ms: int) -> CleaningStatus:
        """Return it with its times counted from a later moment; it is kept for as long as nothing else changes."""
        passed_ms = now_ms - self.as_of_ms
        if not passed_ms or not (self.overdue_ms or self.overdue_in_ms is not None or self.wait_ms is not None):
            return self
        return replace(
            self,
            overdue_ms=max(1, self.overdue_ms + passed_ms) if self.overdue_ms else 0,
            overdue_in_ms=None if self.overdue_in_ms is None else max(0, self.overdue_in_ms - passed_ms),
            wait_ms=None if self.wait_ms is None else max(0, self.wait_ms - passed_ms),
            as_of_ms=now_ms,
        )

    def words(self) -> str:
        """Return the status in one line, for the operator."""
        numbers = due_words(self.dueness, self.cleanable, self.overdue_ms, self.min_ratio)
        if self.reason.is_due_and_free:
            why = f"asked for, {numbers}" if self.reason is Reason.REQUESTED else numbers
            if self.reason is Reason.CHECKPOINT_RESET:
                offset = self.cleanable.first_dirty_offset
                why = f"its cleaner checkpoint lies outside of the log and is set to {offset}; {numbers}"
            if self.reason is Reason.UNFINISHED_SWAP:
                why = f"{self.detail}; {numbers}"
            if self.reason is Reason.HORIZON_PASSED:
                why = f"{self.reason.words.line}; {numbers}"
            return f"next: {why}" if self.place == 1 else f"number {self.place} in the queue: {why}"
        if self.reason is Reason.NOTHING_TO_CLEAN:
            horizon = "" if self.wait_ms is None else f"; a delete horizon passes in {duration(self.wait_ms)}"
            return f"{numbers}{horizon}"
        if self.reason is Reason.UNDER_RATIO:
            if self.overdue_in_ms is None:
                return numbers
            return f"{numbers}; over max.compaction.lag.ms in {duration(self.overdue_in_ms)}"
        if self.reason is Reason.TO_BE_LOOKED_AT:  # its numbers are out of date
            return self._obstacle_words()
        return f"{self._obstacle_words()}; {numbers}" if self.dueness.is_due else self._obstacle_words()

    def _obstacle_words(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        remaining = f", for {duration(self.wait_ms)} more" if self.wait_ms is not None else ""
        return self.reason.words.line.format(detail=detail, count=self.count, remaining=remaining)
