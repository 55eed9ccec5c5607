"""Snapshots survive JSON unchanged, and those of a later release are read as far as possible."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from cleaner.base.json_values import (
    JsonValue,
    NotJsonError,
    WrongValueError,
    format_json,
    from_json,
    json_value,
    parse_json,
)
from cleaner.daemon.snapshot import JobView, LogDirView, LogView, ServiceSnapshot
from tests.support import sample_daemons
from tests.support.snapshots import job, log, log_dir


def sent(value: object) -> dict[str, JsonValue]:
    """Return a value after a way through JSON."""
    return parse_json(format_json(cast(dict[str, object], json_value(value))).encode("ascii"))


@pytest.mark.parametrize("name", ["at_work", "with_problems", "hostile", "with_many_logs"])
def test_snapshot_survives_json(name: str) -> None:
    """Every field, for every kind of daemon."""
    shown = getattr(sample_daemons, name)()
    assert from_json(ServiceSnapshot, sent(shown)) == shown


def test_path_that_is_not_utf8_survives_json() -> None:
    """A log dir's name may be any bytes."""
    odd = log_dir("/mnt/\udcff\u202e")
    assert from_json(LogDirView, sent(odd)) == odd


def test_field_of_a_later_release_is_ignored() -> None:
    """At every depth."""
    values = sent(log())
    values["mood"] = {"deep": [1]}
    cast(dict[str, JsonValue], values["sections"])["colour"] = "blue"
    assert from_json(LogView, values) == log()


def test_missing_field_has_its_default() -> None:
    """As in a snapshot of an earlier release."""
    values = sent(log())
    del values["warnings"], values["error"]
    assert from_json(LogView, values) == log()


def test_unknown_reason_keeps_its_words() -> None:
    """The log then has no verdict, but still says why it waits."""
    values = sent(log(why="waits for the moon"))
    cast(dict[str, JsonValue], values["verdict"])["reason"] = "moon"
    assert from_json(LogView, values) == log(verdict=None, why="waits for the moon")


def test_unknown_condition_is_refused() -> None:
    """Nothing can be claimed about such a log dir."""
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
    """Code that reads a value may rely on its types."""
    with pytest.raises(WrongValueError, match=f"^{field}: "):
        from_json(JobView, {**sent(job()), field: value})


def test_integer_is_read_as_a_fraction() -> None:
    """Other writers leave `.0` out."""
    assert from_json(JobView, {**sent(job()), "progress": 1}) == replace(job(), progress=1.0)


def test_infinite_number_survives_json() -> None:
    """JSON itself has no infinity."""
    assert from_json(JobView, sent(job(progress=math.inf))) == job(progress=math.inf)


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_value_that_is_no_object_is_refused(value: JsonValue) -> None:
    """If an object is required."""
    with pytest.raises(WrongValueError, match="not an object"):
        from_json(JobView, value)


def test_missing_field_without_a_default_is_named() -> None:
    """No partition is guessed."""
    values = sent(job())
    del values["partition"]
    with pytest.raises(WrongValueError, match="partition is missing"):
        from_json(JobView, values)


def test_byte_order_mark_is_named() -> None:
    """An editor may have put it there; Python's own words are for programmers."""
    with pytest.raises(NotJsonError, match="a byte-order mark"):
        parse_json(b"\xef\xbb\xbf{}")
