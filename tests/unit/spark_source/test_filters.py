"""Filters that a plan applies, and those that it leaves to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from cleaner.base.model import TopicPartition
from cleaner.spark.source.filters import Pruning, follow


@dataclass(frozen=True)
class _Filter:
    attribute: tuple[str, ...]
    value: Any = None


def a_filter(kind: str, attribute: str, value: Any = None) -> Any:
    """Return a filter as Spark makes it: recognized by its class name."""
    return type(kind, (_Filter,), {})((attribute,), value)


def followed(*filters: Any, latest_per_key: bool = False) -> tuple[Pruning, list[str]]:
    """Return the pruning, and the names of the filters left to Spark."""
    pruning, unmet = follow(filters, Pruning(), latest_per_key=latest_per_key)
    return pruning, [type(each).__name__ for each in unmet]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("EqualTo", "topic", "a")], Pruning(topics=frozenset({"a"}))),
        ([("In", "topic", ("a", "b")), ("EqualTo", "topic", "b")], Pruning(topics=frozenset({"b"}))),
        ([("EqualTo", "partition", 3)], Pruning(partitions=frozenset({3}))),
        ([("In", "partition", (3, 4)), ("In", "partition", (4, 5))], Pruning(partitions=frozenset({4}))),
        ([("GreaterThan", "partition", 3), ("LessThan", "partition", 7)], Pruning(first_partition=4, end_partition=7)),
        (
            [("GreaterThanOrEqual", "offset", 3), ("LessThanOrEqual", "offset", 7)],
            Pruning(first_offset=3, end_offset=8),
        ),
        ([("EqualTo", "offset", 3)], Pruning(first_offset=3, end_offset=4)),
        ([("EqualNullSafe", "OFFSET", 3), ("GreaterThan", "offset", 1)], Pruning(first_offset=3, end_offset=4)),
    ],
)
def test_filter_on_a_place_in_the_log_is_applied(filters: list[tuple[str, str, Any]], expected: Pruning) -> None:
    """Topics, partitions and offsets; Spark need not apply it again."""
    assert followed(*(a_filter(*each) for each in filters)) == (expected, [])


@pytest.mark.parametrize(
    "each",
    [
        ("EqualTo", "key", b"k"),
        ("IsNotNull", "topic", None),
        ("StringStartsWith", "topic", "a"),
        ("In", "offset", (1, 2)),
        ("EqualTo", "offset", None),
        ("LessThan", "topic", "b"),
        ("Not", "offset", None),
    ],
)
def test_other_filters_are_left_to_spark(each: tuple[str, str, Any]) -> None:
    """They exclude nothing here."""
    assert followed(a_filter(*each)) == (Pruning(), [each[0]])


def test_filter_on_a_timestamp_skips_old_segments_and_is_applied_again() -> None:
    """With a margin of a millisecond; an upper bound skips nothing, since a batch has only its latest time."""
    moment = datetime(2023, 11, 14, 22, 13, 20, 500, tzinfo=UTC)
    for kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo"):
        pruning, unmet = followed(a_filter(kind, "timestamp", moment))
        assert (pruning, unmet) == (Pruning(min_timestamp_ms=1_699_999_999_999), [kind])
    assert followed(a_filter("LessThan", "timestamp", moment)) == (Pruning(), ["LessThan"])


def test_state_of_the_latest_is_not_narrowed_by_offset_or_time() -> None:
    """That would make another record the last of its key."""
    filters = [a_filter("LessThan", "offset", 5), a_filter("EqualTo", "topic", "a")]
    filters.append(a_filter("GreaterThan", "timestamp", datetime(2023, 1, 1, tzinfo=UTC)))
    pruning, unmet = followed(*filters, latest_per_key=True)
    assert (pruning, unmet) == (Pruning(topics=frozenset({"a"})), ["LessThan", "GreaterThan"])


def test_pruning_selects_the_remaining_partitions() -> None:
    """Every condition must hold."""
    pruning = Pruning(topics=frozenset({"a"}), first_partition=2, end_partition=4)
    names = [TopicPartition(topic, partition) for topic in "ab" for partition in range(5)]
    assert [str(name) for name in names if pruning.has(name)] == ["a-2", "a-3"]
