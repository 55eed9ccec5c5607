"""Decides whether a log should be cleaned now, and if not, why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleaner.base.segments import non_active_from
from cleaner.base.sizes import duration
from cleaner.config.table import LONG_MAX
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.log_views import CleanableLog
from cleaner.policy.reasons import Reason

if TYPE_CHECKING:
    from cleaner.config.values import TopicConfig


@dataclass(frozen=True)
class Due:
    """
    The result for one log.

    Attributes:
        is_due: Kafka's cleaner would consider it now.
        reason: why, or why not, in a few words for the operator.
    """

    is_due: bool
    reason: str


def earliest_dirty_timestamp_ms(log: CleanableLog, first_dirty_offset: int) -> int | None:
    """
    Return the time of the oldest dirty segment; None if no dirty segment has one (R-415, R-416).

    All non-active segments from the first dirty offset on count, also those above the cleanable range. A segment's time
    is that of its first batch; a segment without a positive time does not count.
    """
    timestamps = (s.first_batch_timestamp() for s in non_active_from(log.segments, first_dirty_offset))
    return min((t for t in timestamps if t > 0), default=None)


def overdue_ms(earliest_dirty_timestamp_ms: int | None, max_lag_ms: int, now_ms: int) -> int:
    """Return by how many ms a time is over the maximum compaction lag; 0: it is not, or there is no time (R-415)."""
    if earliest_dirty_timestamp_ms is None:
        return 0
    return max(0, now_ms - max(0, max_lag_ms) - earliest_dirty_timestamp_ms)


def overdue_at_ms(earliest_dirty_timestamp_ms: int | None, max_lag_ms: int) -> int | None:
    """Return the first moment at which a time is over the maximum compaction lag; None: never, or there is no time."""
    if earliest_dirty_timestamp_ms is None or max_lag_ms == LONG_MAX:
        return None
    return earliest_dirty_timestamp_ms + max(0, max_lag_ms) + 1


def compaction_delay_ms(log: CleanableLog, first_dirty_offset: int, max_lag_ms: int, now_ms: int) -> int:
    """Return by how many ms the oldest dirty segment is over the maximum compaction lag (R-415)."""
    if max_lag_ms >= now_ms:
        return 0  # for example the default: no record is so old, and reading each segment's time opens a file
    return overdue_ms(earliest_dirty_timestamp_ms(log, first_dirty_offset), max_lag_ms, now_ms)


def judge(cleanable: Cleanable, delay_ms: int, min_ratio: float) -> Reason:
    """
    Judge a log by its numbers, whatever else may stand in its way (R-421).

    The ratio must be *above* the setting, so 1.0 means that only the lag forces a round, and 0 still needs one byte.

    Args:
        cleanable: its range and bytes.
        delay_ms: see `compaction_delay_ms`.
        min_ratio: `min.cleanable.dirty.ratio`.
    """
    if cleanable.cleanable_bytes == 0:
        return Reason.NOTHING_TO_CLEAN
    if delay_ms > 0:
        return Reason.OVERDUE
    return Reason.OVER_RATIO if cleanable.ratio > min_ratio else Reason.UNDER_RATIO


def due(log: CleanableLog, cleanable: Cleanable, topic: TopicConfig, now_ms: int) -> Due:
    """Tell whether a compacted log is due: over the dirty ratio, or forced by the maximum lag (R-421)."""
    delay_ms = compaction_delay_ms(log, cleanable.first_dirty_offset, topic.max_compaction_lag_ms, now_ms)
    dueness = judge(cleanable, delay_ms, topic.min_cleanable_dirty_ratio)
    return Due(dueness.is_due, due_words(dueness, cleanable, delay_ms, topic.min_cleanable_dirty_ratio))


def watches_time(*, quiet_cleaning: bool, expires_after_ms: int | None, takes_whole_log: bool) -> bool:
    """
    Tell whether a log without anything dirty is due once a delete horizon or a record's age has come (D-16, D-19).

    Never where a round takes the whole log: what a tombstone deletes may still be there, under another writing of its
    key or with a lesser number.

    Args:
        quiet_cleaning: `cleaner.quiet.cleaning`.
        expires_after_ms, takes_whole_log: of `TopicConfig`.
    """
    return (quiet_cleaning or expires_after_ms is not None) and not takes_whole_log


def due_words(dueness: Reason, cleanable: Cleanable, delay_ms: int, min_ratio: float) -> str:
    """Describe a result of `judge` with its numbers; the arguments are those of `judge`."""
    if dueness is Reason.NOTHING_TO_CLEAN:
        what = "bound of " if cleanable.bounded_by.endswith(".ms") else ""
        return f"nothing to clean: the range ends at the {what}{cleanable.bounded_by}"
    if dueness is Reason.OVERDUE:
        return f"over max.compaction.lag.ms by {duration(delay_ms)}"
    comparison = "above" if dueness is Reason.OVER_RATIO else "not above"
    return f"ratio {cleanable.ratio:.3f} {comparison} {min_ratio:g}"
