"""The risk for other replicas of a log if one is cleaned apart from them (D-13)."""

from __future__ import annotations

from cleaner.settings import ResolvedTopic


def replication_warning(resolved: ResolvedTopic) -> str:
    """Return the warning for a compacted topic with more replicas than this one; empty for other topics."""
    if not resolved.config.compact or resolved.replicas is None or resolved.replicas <= 1:
        return ""
    return (
        f"{resolved.replicas} replicas ({resolved.replicas_origin}): tombstones and markers past their delete horizon "
        "are removed, and a follower that is behind by more than delete.retention.ms keeps the deleted records; "
        "clean --keep-tombstones removes none"
    )
