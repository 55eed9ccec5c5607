"""
Which part of a log may be cleaned: from the first dirty offset up to the first uncleanable one.

    log start        first dirty            first uncleanable      active segment       log end
        |  clean section  |   cleanable section    |     uncleanable section     |         |

The clean section was cleaned before; its records are recopied in every round, but only the cleanable section can
supersede them. The uncleanable section begins with the first segment that is active, holds an offset that is not yet
stable (above the high watermark, or of an open transaction), or is younger than the minimum compaction lag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cleaner.base.segments import non_active_from, segments_between
from cleaner.policy.log_views import CleanableLog, SegmentView

if TYPE_CHECKING:
    from cleaner.config.values import TopicConfig

_LAST_STABLE = "last stable offset"


@dataclass(frozen=True)
class Cleanable:
    """
    The cleanable range of a log and its size.

    Attributes:
        first_dirty_offset: where the cleanable section begins.
        first_uncleanable_offset: its exclusive end, rounded down to the base of a segment (R-408).
        clean_bytes: log bytes of the segments below `first_dirty_offset`.
        cleanable_bytes: log bytes of the segments in the range. A segment that contains `first_dirty_offset` counts in
            both (R-409).
        uncleanable_bytes: log bytes from `first_uncleanable_offset` on.
        force_checkpoint: the checkpoint was outside the log and must be set to `first_dirty_offset` in any case.
        bounded_by: the bound that ends the range: `active segment`, `high watermark`, `last stable offset` (an open
            transaction) or `min.compaction.lag.ms`; of equal ones, and of those below the range, the first in the order
            of `bounds_of`, the last stable offset last.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("ratio",)

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    force_checkpoint: bool
    bounded_by: str

    @property
    def ratio(self) -> float:
        """Cleanable bytes divided by clean and cleanable bytes; 0 for a log without either (R-410)."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


@dataclass(frozen=True)
class Bound:
    """
    A bound that may end a cleanable range (R-406): its name, as in `Cleanable.bounded_by`, and its offset.

    The range ends at the lowest of them, rounded down to the base offset of a segment (R-408).
    """

    name: str
    offset: int


def cleanable(log: CleanableLog, checkpoint: int | None, topic: TopicConfig, now_ms: int) -> Cleanable:
    """
    Find the range of a log that one round may clean now.

    A checkpoint outside the log (the log was cut, or its start raised) is not an error: the range then begins at the
    log start offset and `force_checkpoint` is set. Largest timestamps are read only if the topic has a minimum lag.

    Args:
        log: needs offsets and segment sizes at least.
        checkpoint: the partition's line in `cleaner-offset-checkpoint`; None without one.
        topic: `min_compaction_lag_ms` is used.
        now_ms: the time of the round.
    Returns:
        The range, possibly empty (`cleanable_bytes` is then 0).
    Source:
        R-405, R-406, R-408, R-409.
    """
    segments = log.segments
    first_dirty_offset = log.log_start_offset if checkpoint is None else checkpoint
    force_checkpoint = not log.log_start_offset <= first_dirty_offset <= log.log_end_offset
    if force_checkpoint:
        first_dirty_offset = log.log_start_offset
    bounds = bounds_of(log, first_dirty_offset, topic.min_compaction_lag_ms, now_ms)
    # Whoever does not load the log looks for transactions only as far as the other bounds leave something dirty.
    lowest = min(bounds, key=lambda each: (max(first_dirty_offset, each.offset), each.name == _LAST_STABLE))
    bound = max(first_dirty_offset, lowest.offset)
    below_active = non_active_from(segments, bound)
    first_uncleanable_offset = (below_active[0] if below_active else segments[-1]).base_offset
    dirty = segments_between(segments, min(first_dirty_offset, first_uncleanable_offset), first_uncleanable_offset)
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable_offset,
        clean_bytes=sum(s.size for s in segments_between(segments, -1, first_dirty_offset)),
        cleanable_bytes=sum(s.size for s in dirty),
        uncleanable_bytes=sum(s.size for s in segments if s.base_offset >= first_uncleanable_offset),
        force_checkpoint=force_checkpoint,
        bounded_by=lowest.name,
    )


def may_hold_transactions(log: CleanableLog, found: Cleanable) -> bool:
    """
    Tell whether an open transaction may shorten a range that was found as if every transaction was decided.

    One that begins in the active segment never does, and none begins below the first dirty offset.
    """
    return found.first_dirty_offset < log.segments[-1].base_offset


def range_of_round(log: CleanableLog, found: Cleanable, topic: TopicConfig, now_ms: int) -> Cleanable:
    """
    Return what a round takes of a log: its cleanable range, or all below its end (`TopicConfig.takes_whole_log`).

    Args:
        log, topic, now_ms: as for `cleanable`.
        found: its cleanable range.
    """
    if not topic.takes_whole_log:
        return found
    return replace(cleanable(log, None, topic, now_ms), force_checkpoint=found.force_checkpoint)


def has_clean_section(log: CleanableLog, found: Cleanable) -> bool:
    """
    Tell whether something below a range was cleaned before, and only that.

    A checkpoint within a segment is above the end of the range, if that lies in the same segment (R-408).
    """
    end_offset = min(log.high_watermark, found.first_uncleanable_offset)
    return log.log_start_offset < found.first_dirty_offset <= end_offset


def first_young_segment(log: CleanableLog, first_dirty_offset: int, min_lag_ms: int, now_ms: int) -> SegmentView | None:
    """
    Return the first dirty segment that is too young to be cleaned; None without one or without a minimum lag (R-406).

    It is too young until `min_lag_ms` after its largest timestamp; nothing else in a range changes with time alone.
    """
    if min_lag_ms <= 0:
        return None
    segments = non_active_from(log.segments, first_dirty_offset)
    return next((segment for segment in segments if segment.largest_timestamp() > now_ms - min_lag_ms), None)


def bounds_of(log: CleanableLog, first_dirty_offset: int, min_lag_ms: int, now_ms: int) -> list[Bound]:
    """Return the bounds of R-406, not rounded; the minimum lag's only if a dirty segment is too young."""
    bounds = [
        Bound("active segment", log.segments[-1].base_offset),
        Bound("high watermark", log.high_watermark),
        Bound(_LAST_STABLE, log.last_stable_offset),
    ]
    young = first_young_segment(log, first_dirty_offset, min_lag_ms, now_ms)
    if young is not None:
        bounds.append(Bound("min.compaction.lag.ms", young.base_offset))
    return bounds
