"""Settings of a process read as one, and what a reload makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.app.configuration import Loaded, load_settings, take_over
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.errors import ConfigError
from cleaner.settings.sources import SetOption


def _load(tmp_path: Path, text: str, environment: dict[str, str] | None = None, *sets: str) -> Loaded:
    file = tmp_path / "cleaner.properties"
    file.write_text(text)
    options = [SetOption(None, *word.split("=", 1)) for word in sets]
    return load_settings(file, options, environment or {})


def test_every_setting_has_a_value_and_an_origin(tmp_path: Path) -> None:
    """Command line before environment before file before default, for the process and for topics."""
    text = "log.cleaner.threads=1\nlog.cleaner.backoff.ms=01\nlog.roll.hours=1\ncleaner.job.history=7\n"
    environment = {
        "CLEANER_LOG_CLEANER_BACKOFF_MS": "2",
        "CLEANER_LOG_CLEANER_THREADS": "2",
        "CLEANER_PREALLOCATE": "TRUE",
    }
    loaded = _load(tmp_path, text, environment, "log.cleaner.threads=3")
    assert set(loaded.values) == {*BROKER_SETTINGS, *TOPIC_SETTINGS}
    assert len(loaded.values) == len(BROKER_SETTINGS) + len(TOPIC_SETTINGS)
    assert loaded.values["log.cleaner.threads"] == ("3", "--set")
    assert loaded.values["log.cleaner.backoff.ms"] == ("2", "environment (CLEANER_LOG_CLEANER_BACKOFF_MS)")
    assert loaded.values["cleaner.job.history"] == ("7", "--config")
    assert loaded.values["cleaner.stuck.ms"] == ("300000", "default")
    assert loaded.values["segment.ms"] == ("3600000", "--config (broker settings)")
    assert loaded.values["preallocate"] == ("true", "environment")
    assert (loaded.config.threads, loaded.config.backoff_ms, loaded.config.job_history) == (3, 2, 7)
    assert loaded.rows()[0] == ("broker.id", "", "default")


def test_all_mistakes_of_file_environment_and_command_line_are_reported_together(tmp_path: Path) -> None:
    """Also of windows, directories, and of topic settings that do not go together."""
    text = f"log.cleaner.threads=x\nlog.dirs={tmp_path}\ncleaner.state.dir={tmp_path}/state\ncleaner.windows=9-10\n"
    text += "min.compaction.lag.ms=5\nmax.compaction.lag.ms=4\ncleaner.topics.dir=/nowhere\n"
    text += "cleaner.windows.time.zone=Nowhere/Town\n"
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text, {"CLEANER_NONSENSE": "1"}, "segment.ms=-1")
    assert {mistake.key for mistake in caught.value.mistakes} == {
        "log.cleaner.threads",
        "cleaner.state.dir",
        "min.compaction.lag.ms",
        "cleaner.topics.dir",
        "CLEANER_NONSENSE",
        "segment.ms",
        "cleaner.windows",
        "cleaner.windows.time.zone",
    }
    with pytest.raises(ConfigError, match="no such file"):
        load_settings(tmp_path / "absent", [], {})


def test_state_dir_in_a_log_dir_of_the_command_line_is_refused(tmp_path: Path) -> None:
    """The log dirs a command names count instead of those of the settings."""
    sets = [
        SetOption(None, "cleaner.state.dir", str(tmp_path / "a" / "state")),
        SetOption(None, "log.dirs", "/nowhere"),
    ]
    with pytest.raises(ConfigError, match="must not be inside the log dir"):
        load_settings(None, sets, {}, log_dirs=[tmp_path / "b", tmp_path / "a"])
    assert load_settings(None, sets, {}, log_dirs=[tmp_path / "b"]).file is None


def test_reload_takes_over_what_can_change_and_names_the_rest(tmp_path: Path) -> None:
    """A setting that needs a restart does not change with any reload; topics' settings are dynamic."""
    running = _load(tmp_path, "log.cleaner.threads=1\ncleaner.http.listen=127.0.0.1:1\nlog.retention.ms=5\n")
    new = _load(
        tmp_path, "log.cleaner.threads=2\ncleaner.state.dir=/s\ncleaner.windows=22:00-06:00\nlog.retention.ms=6\n"
    )
    for _ in range(2):
        reloaded = take_over(running, new)
        assert reloaded.needs_restart == ("cleaner.http.listen", "cleaner.state.dir")
        in_force = reloaded.loaded
        assert (in_force.config.threads, in_force.config.http_listen) == (2, "127.0.0.1:1")
        assert in_force.config.state_dir == "/var/lib/cleaner"
        assert in_force.values["cleaner.http.listen"] == ("127.0.0.1:1", "--config")
        assert in_force.config.windows == "22:00-06:00"
        assert in_force.sources.config["log.retention.ms"] == "6"
        running = in_force
    assert take_over(running, new).changed == ()


def test_reload_names_changed_settings_by_value_not_by_text(tmp_path: Path) -> None:
    """Another way to write the same, or another place to say it, is no change."""
    running = _load(tmp_path, "log.cleaner.threads=2\nlog.retention.hours=1\ncleaner.windows.hard=true\n")
    new = _load(
        tmp_path, "log.retention.ms=3600000\ncleaner.windows.hard=TRUE\n", {"CLEANER_LOG_CLEANER_THREADS": "02"}
    )
    assert take_over(running, new).changed == ()
    newer = _load(tmp_path, "log.cleaner.threads=2\nlog.retention.ms=7\n")
    assert take_over(running, newer).changed == ("cleaner.windows.hard", "retention.ms")
