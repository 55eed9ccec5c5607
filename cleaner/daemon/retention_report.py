"""What a retention pass is about to take from a log, and what it tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleaner.base.model import TopicPartition
from cleaner.daemon.log_status import LogStatus
from cleaner.policy.retention import Expired
from cleaner.read.summary import ListedSegment


@dataclass(frozen=True)
class RetentionReport:
    """
    What a pass did to one log.

    Attributes:
        partition, log_dir: which.
        segments, bytes: what was set aside; bytes are those of `.log` files.
        by_limit: how many segments by each limit, in the order of the passes, under the words of `Limit`.
        log_start_offset: where the log begins now.
        error: why nothing was, or the rest is left for the next pass; empty when all is well.
    """

    partition: TopicPartition
    log_dir: str
    segments: int = 0
    bytes: int = 0
    by_limit: Mapping[str, int] = field(default_factory=dict)
    log_start_offset: int | None = None
    error: str = ""

    @property
    def reason(self) -> str:
        """Say which limits were reached: `log start offset, retention.ms`."""
        return ", ".join(self.by_limit)


@dataclass(frozen=True)
class Doomed:
    """One log of a pass, and what of it is to go."""

    log: LogStatus
    segments: Sequence[ListedSegment]
    expired: Expired
    first_kept_offset: int
    log_start_offset: int

    def report(self) -> RetentionReport:
        """Return what is told once the segments are set aside."""
        return RetentionReport(
            self.log.partition,
            self.log.log_dir,
            segments=len(self.segments),
            bytes=sum(segment.size for segment in self.segments),
            by_limit={limit.value: count for limit, count in self.expired.by_limit.items()},
            log_start_offset=self.log_start_offset,
        )
