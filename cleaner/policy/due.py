"""Whether a log should be cleaned now, and if not, why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleaner.policy.cleanable import Cleanable, LogView, non_active_from

if TYPE_CHECKING:
    from cleaner.config import TopicConfig


@dataclass(frozen=True)
class Due:
    """
    The answer for one log.

    Attributes:
        is_due: Kafka's cleaner would consider it now.
        reason: why, or why not, in a few words for the operator.
        compaction_delay_ms: by how much the oldest dirty segment is over `max.compaction.lag.ms`; 0: it is not.
    """

    is_due: bool
    reason: str
    compaction_delay_ms: int


def compaction_delay_ms(log: LogView, first_dirty_offset: int, max_lag_ms: int, now_ms: int) -> int:
    """
    Return by how many ms the oldest dirty segment is over the maximum compaction lag (R-415).

    All non-active segments from the first dirty offset count, also those above the cleanable range. A segment's time is
    that of its first batch; one without a positive time does not count.
    """
    timestamps = (s.first_batch_timestamp() for s in non_active_from(log.segments, first_dirty_offset))
    earliest = min((t for t in timestamps if t > 0), default=None)
    if earliest is None:
        return 0
    return max(0, now_ms - max(0, max_lag_ms) - earliest)


def due(log: LogView, cleanable: Cleanable, topic: TopicConfig, now_ms: int) -> Due:
    """
    Tell whether a compacted log is due: over the dirty ratio, or forced by the maximum lag (R-421).

    The ratio must be *above* the setting, so 1.0 means that only the lag forces a round, and 0 still takes one byte.
    """
    delay_ms = compaction_delay_ms(log, cleanable.first_dirty_offset, topic.max_compaction_lag_ms, now_ms)
    if cleanable.cleanable_bytes == 0:
        return Due(False, f"nothing to clean: the range ends at the {_bound_words(cleanable.bounded_by)}", delay_ms)
    if delay_ms > 0:
        return Due(True, f"over max.compaction.lag.ms by {delay_ms} ms", delay_ms)
    ratio, limit = cleanable.ratio, topic.min_cleanable_dirty_ratio
    if ratio > limit:
        return Due(True, f"ratio {ratio:.3f} above {limit:g}", delay_ms)
    return Due(False, f"ratio {ratio:.3f} not above {limit:g}", delay_ms)


def _bound_words(bounded_by: str) -> str:
    return f"bound of {bounded_by}" if bounded_by.endswith(".ms") else bounded_by
