"""
Whether a topic's cleanup policy allows cleaning it.

Compacting a topic that is not meant to be compacted destroys it, and a log dir does not record the policies of its
topics. So a policy that is only a default is not trusted: the operator must name the partition, or confirm that the
default is right. A `--set cleanup.policy=compact` without a topic counts as a default when all topics are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.config.values import TopicConfig
from cleaner.policy.reasons import Reason
from cleaner.settings import ResolvedTopic


@dataclass(frozen=True)
class PolicyStanding:
    """
    Whether the policy allows cleaning a topic.

    Attributes:
        why: why it may not be cleaned; None: it may.
        refuses_keyless: but not if its range has a record without a key.
        reason: `why` in words for the operator.
    """

    why: Reason | None = None
    refuses_keyless: bool = False
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether it may be cleaned."""
        return self.why is None


def standing(resolved: ResolvedTopic, *, is_named: bool, trust_default: bool) -> PolicyStanding:
    """
    Judge a topic.

    Args:
        resolved: its settings and where they come from.
        is_named: the operator named the partition.
        trust_default: the operator trusts the defaults.
    """
    origin = origin_of_policy(resolved)
    if not resolved.config.compact:
        policy = policy_words(resolved.config) or "empty"
        return PolicyStanding(
            Reason.NOT_COMPACTED,
            reason=f"cleanup.policy is {policy} ({origin}), so it is not compacted; if it should be, "
            "set it for this topic",
        )
    if is_named or resolved.policy_trusted:
        return PolicyStanding()
    if is_trusted(resolved, trust_default=trust_default):
        return PolicyStanding(refuses_keyless=True)
    why = Reason.POLICY_NOT_TRUSTED
    return PolicyStanding(why, reason=why.words.line.format(detail=origin))


def is_trusted(resolved: ResolvedTopic, *, trust_default: bool) -> bool:
    """Tell whether a topic's policy may be followed, be it to compact or to delete, though no partition was named."""
    return resolved.policy_trusted or (trust_default and not resolved.policy_is_unscoped_set)


def policy_words(topic: TopicConfig) -> str:
    """Return the policy as Kafka writes it: `compact,delete`."""
    return ",".join(sorted(topic.cleanup_policy))


def origin_of_policy(resolved: ResolvedTopic) -> str:
    """Return where the policy comes from, in words."""
    return resolved.in_force("cleanup.policy").origin


def replication_warning(resolved: ResolvedTopic) -> str:
    """Return the warning for a compacted topic with more replicas than this one (D-13); empty for other topics."""
    if not resolved.config.compact or resolved.replicas is None or resolved.replicas <= 1:
        return ""
    return (
        f"{resolved.replicas} replicas ({resolved.replicas_origin}): tombstones and markers past their delete horizon "
        "are removed, and a follower that is behind by more than delete.retention.ms keeps the deleted records; "
        "clean --keep-tombstones removes none, clean --safe-tombstones only those that all have seen"
    )
