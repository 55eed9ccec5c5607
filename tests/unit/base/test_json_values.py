"""Snapshots come out of JSON as they went in, and a later release's are read as far as they can be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from cleaner.base.json_values import JsonValue, WrongValueError, format_json, from_json, json_value, parse_json
from cleaner.daemon.snapshot import JobView, LogDirView, LogView, ServiceSnapshot
from tests.support import sample_daemons
from tests.support.snapshots import job, log, log_dir


def sent(value: object) -> dict[str, JsonValue]:
    """Return what arrives of a value."""
    return parse_json(format_json(cast(dict[str, object], json_value(value))).encode("ascii"))


@pytest.mark.parametrize("name", ["at_work", "in_trouble", "hostile", "with_many_logs"])
def test_snapshot_arrives_as_it_was_sent(name: str) -> None:
    """Every field of every kind of daemon."""
    shown = getattr(sample_daemons, name)()
    assert from_json(ServiceSnapshot, sent(shown)) == shown


def test_path_that_is_no_text_arrives_as_it_was_sent() -> None:
    """A log dir's name may be any bytes."""
    odd = log_dir("/mnt/\udcff\u202e")
    assert from_json(LogDirView, sent(odd)) == odd


def test_field_of_a_later_release_is_passed_over() -> None:
    """At every depth."""
    values = sent(log())
    values["mood"] = {"deep": [1]}
    cast(dict[str, JsonValue], values["sections"])["colour"] = "blue"
    assert from_json(LogView, values) == log()


def test_field_that_is_not_there_has_its_default() -> None:
    """As from an earlier release."""
    values = sent(log())
    del values["warnings"], values["error"]
    assert from_json(LogView, values) == log()


def test_reason_of_a_later_release_leaves_the_words() -> None:
    """The log has no verdict then, and says all the same why it waits."""
    values = sent(log(why="waits for the moon"))
    cast(dict[str, JsonValue], values["verdict"])["reason"] = "moon"
    assert from_json(LogView, values) == log(verdict=None, why="waits for the moon")


def test_condition_of_a_later_release_cannot_be_passed_over() -> None:
    """Nothing may be claimed of such a log dir."""
    with pytest.raises(WrongValueError, match="condition"):
        from_json(LogDirView, {**sent(log_dir()), "condition": "haunted"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", True),
        ("id", "1"),
        ("id", None),
        ("partition", "orders"),
        ("partition", "orders-٣"),
        ("partition", "orders--"),
        ("partition", 5),
        ("progress", "1"),
        ("ended_ms", [1]),
        ("state", {}),
    ],
)
def test_field_of_another_type_is_refused_by_name(field: str, value: JsonValue) -> None:
    """What reads a value may rely on its types."""
    with pytest.raises(WrongValueError, match=f"^{field}: "):
        from_json(JobView, {**sent(job()), field: value})


def test_whole_number_is_read_where_a_fraction_may_be() -> None:
    """Other writers than ours leave `.0` out."""
    assert from_json(JobView, {**sent(job()), "progress": 1}) == replace(job(), progress=1.0)


def test_number_without_end_arrives_as_it_was_sent() -> None:
    """JSON has no word for it."""
    assert from_json(JobView, sent(job(progress=math.inf))) == job(progress=math.inf)


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_refused(value: JsonValue) -> None:
    """Where one should be."""
    with pytest.raises(WrongValueError, match="not an object"):
        from_json(JobView, value)


def test_missing_field_without_a_default_is_named() -> None:
    """Nobody guesses a partition."""
    values = sent(job())
    del values["partition"]
    with pytest.raises(WrongValueError, match="partition is missing"):
        from_json(JobView, values)
