"""What a look at one log has found: the facts for the choice, and what is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from cleaner.base.model import TopicPartition
from cleaner.config.table import LONG_MAX
from cleaner.config.values import TopicConfig
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.reasons import Reason
from cleaner.policy.sections import Sections
from cleaner.policy.selection_context import LogFacts
from cleaner.settings import ResolvedTopic


@dataclass(frozen=True, slots=True)
class LogStatus:
    """
    What a look has found out about one log.

    Attributes:
        partition, log_dir, directory: which, and where.
        policy, policy_origin: `cleanup.policy` and where it comes from; empty when unknown.
        segments: how many.
        sections: None if the log could not be read.
        facts: for the choice of the next log; None: it may not be cleaned.
        held_by: why it has no facts; None: it has.
        why: `held_by` in words for the operator.
        error: why it cannot be read; empty if it can.
        warnings: of its settings.
        topic: its settings; None if they are unknown.
        resolved: the same, with where each comes from.
        topic_id: of its topic; None if it has none.
        is_policy_trusted: the policy of this topic is set explicitly, or the operator trusts the default.
        has_segments_to_delete: retention would remove something now (also for logs that are not compacted).
        deleted_files: number of `.deleted` files awaiting removal.
    """

    partition: TopicPartition
    log_dir: str
    directory: Path
    policy: str = ""
    policy_origin: str = ""
    segments: int = 0
    sections: Sections | None = None
    facts: LogFacts | None = None
    held_by: Reason | None = None
    why: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    topic: TopicConfig | None = None
    is_policy_trusted: bool = False
    has_segments_to_delete: bool = False
    deleted_files: int = 0
    resolved: ResolvedTopic | None = None
    topic_id: UUID | None = None

    def left_alone(self, error: str, held_by: Reason = Reason.UNREADABLE) -> LogStatus:
        """Return it as that of a log that may not be cleaned because of an error."""
        held = replace(self, facts=None, held_by=held_by, why=held_by.words.line, error=error)
        return replace(held, has_segments_to_delete=False)

    def retention_facts(self) -> LogFacts:
        """Return the facts for retention; a log that is not compacted has no other facts."""
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
