"""Protocols for what the policies need of a log and its segments; `LoadedLog` and `LogSummary` implement them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from cleaner.base.segments import HasBaseOffset


class SizedSegment(HasBaseOffset, Protocol):
    """A segment with a size."""

    @property
    def size(self) -> int:
        """Bytes of the `.log` file."""


class RetentionSegment(SizedSegment, Protocol):
    """What retention needs of a segment."""

    def largest_timestamp(self) -> int:
        """Return the largest timestamp (ms), or the file's mtime if the segment has none (R-324)."""


class SegmentView(RetentionSegment, Protocol):
    """What the choice of a cleanable range needs of a segment."""

    def first_batch_timestamp(self) -> int:
        """Return the maximum timestamp (ms) of the first batch on disk; -1 without one (R-416)."""


SegmentT_co = TypeVar("SegmentT_co", bound=HasBaseOffset, covariant=True)


class LogExtent(Protocol[SegmentT_co]):
    """The segments of a log, with its start and end offset."""

    @property
    def segments(self) -> Sequence[SegmentT_co]:
        """All segments by base offset; the last is the active one."""

    @property
    def log_start_offset(self) -> int:
        """First offset a reader may request."""

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""


class RetentionLog(LogExtent[RetentionSegment], Protocol):
    """What retention needs of a log."""

    @property
    def high_watermark(self) -> int:
        """First offset that may not be on all in-sync replicas."""


class CleanableLog(RetentionLog, Protocol):
    """What the choice of a cleanable range needs of a log."""

    @property
    def segments(self) -> Sequence[SegmentView]:
        """All segments by base offset; the last is the active one."""

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction, at most the high watermark (R-407)."""
