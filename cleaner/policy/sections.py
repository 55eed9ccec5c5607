"""The sections of a log for a diagram: clean, dirty, uncleanable, and where tombstones have passed their retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cleaner.policy.cleanable import Cleanable
from cleaner.policy.log_views import LogExtent, SizedSegment


class DatedSegment(SizedSegment, Protocol):
    """What this module needs of a segment."""

    @property
    def mtime_ms(self) -> int:
        """Modification time of the `.log` file, milliseconds."""


@dataclass(frozen=True, slots=True)
class Sections:
    """
    The sections of a log. Offsets are exclusive ends; bytes are those of `.log` files.

    In this order: clean section, dirty section, uncleanable part, active segment. A log that is not compacted has only
    `uncleanable_bytes` and `active_bytes`.

    Attributes:
        log_start_offset, log_end_offset: the offsets a reader may request. The end is as of the last inspection; while
            another process appends, it is only known to be at least the active segment's base offset.
        delete_retention_offset: below it, tombstones have passed their retention; None if nothing is clean yet.
        first_dirty_offset, first_uncleanable_offset, active_base_offset: where the parts end.
        delete_retention_bytes: how much of the clean section lies below the delete retention point.
        clean_bytes, dirty_bytes, uncleanable_bytes, active_bytes: the parts.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("total_bytes",)

    log_start_offset: int
    log_end_offset: int
    delete_retention_offset: int | None
    first_dirty_offset: int
    first_uncleanable_offset: int
    active_base_offset: int
    delete_retention_bytes: int
    clean_bytes: int
    dirty_bytes: int
    uncleanable_bytes: int
    active_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole log."""
        return self.clean_bytes + self.dirty_bytes + self.uncleanable_bytes + self.active_bytes


def sections_of(log: LogExtent[DatedSegment], found: Cleanable | None, delete_retention_ms: int) -> Sections:
    """
    Divide a log into its sections.

    Whole segments are counted: one that contains the first dirty offset is dirty, as a round reads all of it. So every
    byte is in exactly one section, unlike in the ratio (R-409).

    Args:
        log: as inspected.
        found: its cleanable range; None for a log that is not compacted.
        delete_retention_ms: the topic's `delete.retention.ms`.
    """
    active = log.segments[-1]
    inactive = log.segments[:-1]
    if found is None:
        clean_end = dirty_end = 0
        first_dirty = first_uncleanable = log.log_start_offset
    else:
        first_dirty = found.first_dirty_offset
        first_uncleanable = max(first_dirty, found.first_uncleanable_offset)
        # A segment ends where the next one begins.
        ends = [segment.base_offset for segment in log.segments[1:]]
        clean_end = sum(end <= first_dirty for end in ends)
        dirty_end = max(clean_end, sum(s.base_offset < found.first_uncleanable_offset for s in inactive))
    expired = _count_past_retention(inactive[:clean_end], delete_retention_ms)
    delete_retention_offset = None
    if clean_end:
        delete_retention_offset = log.segments[expired].base_offset if expired else log.log_start_offset
    return Sections(
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        delete_retention_offset=delete_retention_offset,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        active_base_offset=active.base_offset,
        delete_retention_bytes=_bytes(inactive[:expired]),
        clean_bytes=_bytes(inactive[:clean_end]),
        dirty_bytes=_bytes(inactive[clean_end:dirty_end]),
        uncleanable_bytes=_bytes(inactive[dirty_end:]),
        active_bytes=active.size,
    )


def shared(sizes: Sequence[int], width: int, least: int = 1) -> list[int]:
    """
    Share a drawing's width out by size, all of it.

    Args:
        sizes: bytes.
        width: of the drawing, in characters or pixels; at least `least` for each size that is not 0.
        least: the least share of a size that is not 0.
    """
    total = sum(sizes)
    if not total:
        return [0] * len(sizes)
    ideal = [size * width / total for size in sizes]
    found = [max(least, int(exact)) if size else 0 for size, exact in zip(sizes, ideal, strict=True)]
    while sum(found) > width:
        found[found.index(max(found))] -= 1
    while sum(found) < width:
        missing = [exact - given if given else -1.0 for exact, given in zip(ideal, found, strict=True)]
        found[missing.index(max(missing))] += 1
    return found


def legacy_delete_horizon_ms(last_clean_segment_mtime_ms: int | None, delete_retention_ms: int) -> int:
    """
    Return the file time up to which tombstones of magic 0 and 1 are old enough to be removed (R-502).

    Args:
        last_clean_segment_mtime_ms: of the last segment of the clean section; None without one.
        delete_retention_ms: the topic's `delete.retention.ms`.
    """
    return 0 if last_clean_segment_mtime_ms is None else last_clean_segment_mtime_ms - delete_retention_ms


def _count_past_retention(clean: Sequence[DatedSegment], delete_retention_ms: int) -> int:
    """
    Count the clean segments up to the last one whose tombstones may be removed by the age of its file (R-502).

    Batches of magic 2 have their own horizons, which give about the same result one round later.
    """
    if not clean:
        return 0
    horizon_ms = legacy_delete_horizon_ms(clean[-1].mtime_ms, delete_retention_ms)
    return max((row + 1 for row, segment in enumerate(clean) if segment.mtime_ms <= horizon_ms), default=0)


def _bytes(segments: Sequence[DatedSegment]) -> int:
    return sum(segment.size for segment in segments)
