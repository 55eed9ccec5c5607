"""
Whether a topic's cleanup policy allows cleaning it.

Compacting a topic that is not meant to be compacted destroys it, and a log dir does not say what its topics are meant
to be. So a policy that only a default gives is not trusted: somebody has to name the partition, or say that the default
is right. A `--set cleanup.policy=compact` without a topic is no better than a default when all topics are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.config.values import TopicConfig
from cleaner.policy.reasons import Reason
from cleaner.settings import ResolvedTopic


@dataclass(frozen=True)
class PolicyStanding:
    """
    What the policy says about cleaning a topic.

    Attributes:
        is_allowed: it may be cleaned.
        refuses_keyless: unless there is a record without a key in its range.
        reason: why not, in words for the operator.
    """

    is_allowed: bool
    refuses_keyless: bool = False
    reason: str = ""


def standing(resolved: ResolvedTopic, *, is_named: bool, trust_default: bool) -> PolicyStanding:
    """
    Judge a topic.

    Args:
        resolved: its settings and where they come from.
        is_named: the operator named the partition.
        trust_default: the operator takes the defaults for the truth.
    """
    origin = origin_of_policy(resolved)
    if not resolved.config.compact:
        policy = policy_words(resolved.config) or "empty"
        return PolicyStanding(
            False,
            reason=f"cleanup.policy is {policy} ({origin}), so it is not compacted; if it should be, "
            "say so for this topic",
        )
    if is_named or resolved.policy_trusted:
        return PolicyStanding(True)
    if trust_default and not resolved.policy_is_unscoped_set:
        return PolicyStanding(True, refuses_keyless=True)
    return PolicyStanding(False, reason=Reason.POLICY_NOT_TRUSTED.words.line.format(detail=origin))


def policy_words(topic: TopicConfig) -> str:
    """Return the policy as Kafka writes it: `compact,delete`."""
    return ",".join(sorted(topic.cleanup_policy))


def origin_of_policy(resolved: ResolvedTopic) -> str:
    """Return where the policy comes from, in words."""
    return resolved.in_force("cleanup.policy").origin
