"""What a look at one log has found: what is chosen by, and what is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.config.values import TopicConfig
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.reasons import Reason
from cleaner.policy.sections import Sections
from cleaner.policy.selection_context import LogFacts
from cleaner.settings import ResolvedTopic

CANNOT_BE_LOOKED_AT = Reason.UNREADABLE.words.line
"""Why a log with an `error` may not be cleaned; what the error is stands there alone."""


@dataclass(frozen=True, slots=True)
class LogStatus:
    """
    What there is to see of one log.

    Attributes:
        partition, log_dir, directory: which, and where.
        policy, policy_origin: `cleanup.policy` and who says so; empty when it could not be told.
        segments: how many.
        sections: None where it could not be looked at.
        facts: what the choice rests on; None: it may not be cleaned, and `why` says so.
        why: why it may not be cleaned, or what is odd about its being clean; may be empty where there are facts.
        error: what keeps it from being looked at; empty when nothing does.
        warnings: of its settings.
        topic: its settings; None where they could not be told.
        resolved: the same, with who says so.
        is_policy_trusted: somebody said the policy of this topic, or that the default is right.
        has_segments_to_delete: retention would remove something now (also for logs that are not compacted).
        has_unfinished_swap: there are `.swap` or `.cleaned` files: somebody is at work, or has crashed. The next load
            settles them.
        deleted_files: `.deleted` files awaiting their removal.
        good_until_ms: when time alone will change it (a minimum lag ends, a segment expires); None: never.
    """

    partition: TopicPartition
    log_dir: str
    directory: Path
    policy: str = ""
    policy_origin: str = ""
    segments: int = 0
    sections: Sections | None = None
    facts: LogFacts | None = None
    why: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    topic: TopicConfig | None = None
    is_policy_trusted: bool = False
    has_segments_to_delete: bool = False
    has_unfinished_swap: bool = False
    deleted_files: int = 0
    good_until_ms: int | None = None
    resolved: ResolvedTopic | None = None

    def retention_facts(self) -> LogFacts:
        """Return the log as retention asks about it; one that is not compacted has no other facts."""
        if self.facts is not None:
            return replace(self.facts, has_segments_to_delete=True)
        nothing = Cleanable(0, 0, 0, 0, 0, False, "active segment")
        return LogFacts(
            self.partition,
            self.log_dir,
            nothing,
            earliest_dirty_timestamp_ms=None,
            min_cleanable_dirty_ratio=1.0,
            max_compaction_lag_ms=LONG_MAX,
            is_compacted=False,
            has_segments_to_delete=True,
        )
