"""
Filters of a query that a plan can apply, so that excluded records are never read.

Filters on topic, partition and offset are applied here completely. Filters on a timestamp only skip segments and
batches that are too old as a whole; Spark applies them to every record again. All other filters are left to Spark. With
latestPerKey the result can only be filtered once it is known: only filters on topic and partition are applied here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cleaner.base.model import TopicPartition

_NEVER = 2**63 - 1


@dataclass(frozen=True)
class Pruning:
    """
    The records that the filters select.

    Attributes:
        topics: only these; None: all.
        first_partition, end_partition, first_offset, end_offset: the ends are exclusive.
        partitions: only these; None: all.
        min_timestamp_ms: older records may be left out.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_partition: int = 0
    end_partition: int = _NEVER
    first_offset: int = 0
    end_offset: int = _NEVER
    min_timestamp_ms: int | None = None

    def has(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the filters select any records of a partition."""
        topic, partition = topic_partition
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.first_partition <= partition < self.end_partition
        )


def follow(filters: Iterable[Any], pruning: Pruning, *, latest_per_key: bool) -> tuple[Pruning, list[Any]]:
    """
    Return `pruning` narrowed by some filters, and the filters that Spark has to apply again.

    Args:
        filters: of `pyspark.sql.datasource`, each recognized by the name of its class.
    """
    unmet = []
    for each in filters:
        column = each.attribute[0].lower() if len(each.attribute) == 1 else ""
        narrowed = None
        if column == "topic":
            narrowed = _topics(each, pruning)
        elif column in ("partition", "offset") and not (latest_per_key and column == "offset"):
            narrowed = _numbers(each, pruning, column)
        elif column == "timestamp" and not latest_per_key:
            pruning = _times(each, pruning)
        if narrowed is None:
            unmet.append(each)
        else:
            pruning = narrowed
    return pruning, unmet


def _topics(each: Any, pruning: Pruning) -> Pruning | None:
    values = _values(each)
    if values is None or not all(isinstance(value, str) for value in values):
        return None
    chosen = frozenset(values)
    return replace(pruning, topics=chosen if pruning.topics is None else pruning.topics & chosen)


def _values(each: Any) -> tuple[Any, ...] | None:
    """Return the values of which a row must have one; None for another kind of filter."""
    kind = type(each).__name__
    if kind in ("EqualTo", "EqualNullSafe"):
        return (each.value,)
    return tuple(each.value) if kind == "In" else None


def _numbers(each: Any, pruning: Pruning, column: str) -> Pruning | None:
    values = _values(each)
    if values is not None:
        if not values or not all(_is_number(value) for value in values):
            return None
        if column == "partition":
            chosen = frozenset(int(value) for value in values)
            return replace(pruning, partitions=chosen if pruning.partitions is None else pruning.partitions & chosen)
        return _within(pruning, column, values[0], values[0]) if len(values) == 1 else None
    kind, number = type(each).__name__, getattr(each, "value", None)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    bounds = {
        "GreaterThan": (number + 1, _NEVER),
        "GreaterThanOrEqual": (number, _NEVER),
        "LessThan": (0, number - 1),
        "LessThanOrEqual": (0, number),
    }
    return _within(pruning, column, *bounds[kind]) if kind in bounds else None


def _within(pruning: Pruning, column: str, first: int, last: int) -> Pruning:
    first = max(first, getattr(pruning, f"first_{column}"))
    end = min(last + 1, getattr(pruning, f"end_{column}"))
    return replace(pruning, **{f"first_{column}": first, f"end_{column}": end})


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _times(each: Any, pruning: Pruning) -> Pruning:
    value = getattr(each, "value", None)
    kind = type(each).__name__
    if kind not in ("EqualTo", "GreaterThan", "GreaterThanOrEqual") or not isinstance(value, datetime):
        return pruning
    if value.tzinfo is None:
        return pruning
    # Rounded down with a margin: only records that are surely too old may be skipped; Spark filters the rest.
    least = int(value.timestamp() * 1000) - 1
    return replace(pruning, min_timestamp_ms=max(least, pruning.min_timestamp_ms or 0))
