"""Files an operator writes settings into, and `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import ConfigError, LogDirOfflineError, UsageError
from cleaner.settings.files import read_cleaner_topics, read_config_file, read_topic_file
from cleaner.settings.sources import SetOption
from cleaner.storage.fs.file_system import FileSystem

FS = FileSystem()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", (None, "a", "1")),
        ("t:a=1", ("t", "a", "1")),
        ("my.topic-1_x:cleanup.policy=compact,delete", ("my.topic-1_x", "cleanup.policy", "compact,delete")),
        (" a = b=c ", (None, "a", " b=c ")),
        ("a=x:y", (None, "a", "x:y")),
        ("a=", (None, "a", "")),
    ],
)
def test_set_option_has_topic_key_and_value(text: str, expected: tuple[str | None, str, str]) -> None:
    """A colon before the equals sign ends the topic; the value is all behind the sign."""
    assert SetOption(*expected) == SetOption.parse(text)


@pytest.mark.parametrize("text", ["a", "=1", "t:=1", ":a=1", "bad topic:a=1", "a:b:c=1"])
def test_set_option_that_is_none_is_a_usage_error(text: str) -> None:
    """What cannot be understood shows the form expected or the bad topic, exit code 2."""
    with pytest.raises(UsageError, match="--set") as caught:
        SetOption.parse(text)
    assert caught.value.exit_code == 2


def test_config_file_may_be_a_link(tmp_path: Path) -> None:
    """A mounted ConfigMap is made of links."""
    (tmp_path / "real").write_bytes(b"a=1\n")
    (tmp_path / "link").symlink_to("real")
    assert read_config_file(FS, tmp_path / "link") == {"a": "1"}
    (tmp_path / "t.properties").symlink_to("real")
    assert read_topic_file(FS, tmp_path, "t") == {"a": "1"}
    assert read_topic_file(FS, tmp_path, "other") is None


def test_config_file_that_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    """The path is named, exit code 78."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match=f"^{path}: "):
            read_config_file(FS, path)


@pytest.mark.parametrize(
    ("line", "topics", "expected"),
    [
        pytest.param("a.b.retention.ms=1", {"a.b"}, {"a.b": {"retention.ms": "1"}}, id="dotted-topic"),
        pytest.param("a.delete.retention.ms=1", {"a"}, {"a": {"delete.retention.ms": "1"}}, id="dotted-key"),
        pytest.param("a.delete.retention.ms=1", {"a.delete"}, {"a.delete": {"retention.ms": "1"}}, id="topic-here"),
        pytest.param("a.delete.retention.ms=1", set(), {"a": {"delete.retention.ms": "1"}}, id="longest-key"),
        pytest.param("a.log.retention.hours=1", {"a"}, {"a": {"log.retention.hours": "1"}}, id="broker-name"),
    ],
)
def test_cleaner_topics_line_is_split_by_the_existing_topics(
    tmp_path: Path, line: str, topics: set[str], expected: dict[str, dict[str, str]]
) -> None:
    """Topic and key both hold dots; the topic that is in the log dir is meant."""
    (tmp_path / "cleaner-topics.properties").write_text(line + "\n")
    warnings: list[str] = []
    assert expected == read_cleaner_topics(FS, tmp_path, topics, warnings)
    assert warnings == []


def test_cleaner_topics_line_that_fits_two_topics_warns(tmp_path: Path) -> None:
    """Between two topics that are there the longer key counts, and that is said."""
    (tmp_path / "cleaner-topics.properties").write_text("a.delete.retention.ms=1\n")
    warnings: list[str] = []
    found = read_cleaner_topics(FS, tmp_path, {"a", "a.delete"}, warnings)
    assert found == {"a": {"delete.retention.ms": "1"}}
    assert len(warnings) == 1


def test_cleaner_topics_with_slip_is_refused_and_with_unknown_key_warns(tmp_path: Path) -> None:
    """A misspelt key of a topic that is there is an error, a foreign line a warning."""
    path = tmp_path / "cleaner-topics.properties"
    path.write_text("a.b.cleanup.polcy=compact\n")
    with pytest.raises(ConfigError, match=r"did you mean cleanup\.policy"):
        read_cleaner_topics(FS, tmp_path, {"a.b"}, [])
    path.write_text("a.colour=red\n")
    warnings: list[str] = []
    assert read_cleaner_topics(FS, tmp_path, {"a"}, warnings) == {}
    assert len(warnings) == 1


def test_cleaner_topics_through_a_link_is_refused(tmp_path: Path) -> None:
    """Inside the log dir no link is followed: its writers must not choose what is read."""
    (tmp_path / "elsewhere").write_text("a.retention.ms=1\n")
    (tmp_path / "cleaner-topics.properties").symlink_to("elsewhere")
    with pytest.raises(LogDirOfflineError):
        read_cleaner_topics(FS, tmp_path, set(), [])


def test_cleaner_topics_with_only_unknown_names_is_refused(tmp_path: Path) -> None:
    """It would be a warning a line, each after a search for what was meant."""
    (tmp_path / "cleaner-topics.properties").write_text("".join(f"a.colour{number}=red\n" for number in range(2000)))
    with pytest.raises(ConfigError, match="more than 1000 unknown settings"):
        read_cleaner_topics(FS, tmp_path, {"a"}, [])


def test_cleaner_topics_key_of_dots_is_passed_over_and_shortened(tmp_path: Path) -> None:
    """Each dot may end a topic's name, but not behind the longest one: half a million dots are no work."""
    (tmp_path / "cleaner-topics.properties").write_text("a." * 500_000 + "=1\n")
    warnings: list[str] = []
    assert read_cleaner_topics(FS, tmp_path, {"a"}, warnings) == {}
    assert [len(warning) < 200 for warning in warnings] == [True]
