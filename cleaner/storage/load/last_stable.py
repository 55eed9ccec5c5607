"""
Where the stable part of a log ends (R-407), for a loaded log and for one that is inspected from outside.

    which transactions are open, or decided and not replicated    `ProducerState`, as of the log's end
    where they begin in the log                                   here

Source: `UnifiedLog.java` (maybeIncrementFirstUnstableOffset, lastStableOffset), `LocalLog.java` (read).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol, TypeVar


class SearchedSegment(Protocol):
    """What this module needs of a segment."""

    @property
    def base_offset(self) -> int:
        """Lower bound of its offsets."""

    def batch_at(self, offset: int) -> int | None:
        """Return the base offset of the batch that holds an offset, or of the next one; None beyond the last."""


Searched = TypeVar("Searched", bound=SearchedSegment)


def last_stable_offset(
    segments: Sequence[Searched],
    first_unstable_offset: int | None,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> int:
    """
    Return the last stable offset: the first unstable one, looked up in the log as Kafka does, or the high watermark.

    If a batch contains the log start offset, the result can lie below it. If the transaction's first batches are gone,
    the result is the next batch above, or the log end.

    Args:
        segments: the log's, ascending.
        first_unstable_offset: see `ProducerState.first_unstable_offset`; None: everything is stable.
        log_start_offset, log_end_offset, high_watermark: the log's; the end is exclusive.
    """
    if first_unstable_offset is None:
        return high_watermark
    wanted = max(first_unstable_offset, log_start_offset)
    if wanted < log_end_offset:
        row = bisect_right(segments, wanted, key=lambda segment: segment.base_offset) - 1
        found = (segment.batch_at(wanted) for segment in segments[max(0, row) :])
        wanted = next((base_offset for base_offset in found if base_offset is not None), log_end_offset)
    return min(high_watermark, wanted)
