"""Flags and properties of Kafka's console tools."""

from __future__ import annotations

import argparse

import pytest

from cleaner.cli.kafka_flags import add_ignored, add_properties, assignments_of, note_ignored, properties_of
from cleaner.errors import UsageError


def _parsed(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_properties(parser, ("--property", "--reader-property"), ("parse.key",))
    add_ignored(parser, ("--bootstrap-server", "--group"), ("--new-consumer",))
    return parser.parse_args(line.split())


def test_flags_of_a_network_are_named_in_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, with its value or without."""
    line = "--bootstrap-server localhost:9092 --new-consumer --group=g --bootstrap-server other:9092"
    note_ignored(_parsed(line))
    note = capsys.readouterr().err
    assert note.count("\n") == 1
    assert note.rstrip().endswith("--bootstrap-server, --new-consumer, --group")


def test_without_such_flags_there_is_no_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of nothing."""
    note_ignored(_parsed(""))
    assert capsys.readouterr().err == ""


def test_properties_may_come_by_either_flag() -> None:
    """The older and the newer name of it; a value may hold the sign."""
    given = _parsed("--property parse.key=true --reader-property key.separator==").properties
    assert properties_of(given, {"parse.key": "", "key.separator": ""}) == {"parse.key": "true", "key.separator": "="}


def test_unknown_property_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka passes it over in silence, and so keys were never parsed."""
    assert properties_of(["parse.keys=true"], {"parse.key": "false"}) == {"parse.keys": "true"}
    assert "parse.keys" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["parse.key", "=true", ""])
def test_property_without_a_name_or_sign_is_refused(text: str) -> None:
    """It says what was given."""
    with pytest.raises(UsageError, match="name=value"):
        properties_of([text], {})


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        pytest.param(["a=1"], {"a": "1"}, id="one"),
        pytest.param(["a=1", "b=2"], {"a": "1", "b": "2"}, id="repeated"),
        pytest.param(["a=1,b=2"], {"a": "1", "b": "2"}, id="with-a-comma"),
        pytest.param(["a=[x,y],b=2"], {"a": "x,y", "b": "2"}, id="brackets"),
        pytest.param(
            ["cleanup.policy=compact,delete"], {"cleanup.policy": "compact,delete"}, id="list-without-brackets"
        ),
        pytest.param(["cleanup.policy=compact,delete,b=2"], {"cleanup.policy": "compact,delete", "b": "2"}, id="mixed"),
        pytest.param(["a="], {"a": ""}, id="empty-value"),
    ],
)
def test_settings_are_read_as_kafka_topics_and_kafka_configs_do(given: list[str], settings: dict[str, str]) -> None:
    """`--config` takes one whose value may have commas, `--add-config` several."""
    assert assignments_of(given) == settings


@pytest.mark.parametrize("text", ["a", "=1", "a=[1", "a=1]"])
def test_setting_that_is_none_is_refused(text: str) -> None:
    """It names the flag."""
    with pytest.raises(UsageError, match="--config"):
        assignments_of([text])
