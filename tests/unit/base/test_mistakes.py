"""Suggestions for mistyped names."""

from __future__ import annotations

import pytest

from cleaner.base.mistakes import did_you_mean, nearest

PARTITIONS = ["orders-0", "orders-1", "payments-0", "a.long.name.of.a.topic-17"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ordrs-0", "orders-0"), ("Payments-0", "payments-0"), ("a.long.nmae.of.topic-17", "a.long.name.of.a.topic-17")],
)
def test_typo_gets_the_intended_name(typed: str, meant: str) -> None:
    """Letters left out, doubled or swapped, and the wrong case."""
    assert did_you_mean(typed, PARTITIONS) == f"; did you mean {meant}?"


@pytest.mark.parametrize("typed", ["", "x", "zookeeper", "o" * 300])
def test_dissimilar_name_has_no_suggestion(typed: str) -> None:
    """A guess would mislead."""
    assert did_you_mean(typed, PARTITIONS) == ""


def test_search_among_thousands_of_names_is_bounded() -> None:
    """A user is waiting for the error message."""
    names = (f"topic-{number:07}" for number in range(10**6))
    assert nearest("topic-0000001x", names).startswith("topic-")
    assert next(names) < "topic-0020000"
