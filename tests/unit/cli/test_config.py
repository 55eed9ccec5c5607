"""`cleaner config check|show|docs`."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from cleaner.cli.main import main
from cleaner.cli.settings_document import document
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from tests.support.metadata_builder import TOPIC, config_record, topic_record, write_segment

ID = UUID(int=5)


class Machine:
    """A configuration file, a directory of topic files, and a log dir with topics `t` and `u`."""

    def __init__(self, root: Path) -> None:
        self.file, self.topics_dir, self.log_dir = root / "cleaner.properties", root / "topics", root / "logs"
        self.topics_dir.mkdir()
        for name in ("t-0", "t-1", "u-0"):
            (self.log_dir / name).mkdir(parents=True)
        (self.log_dir / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n")
        self.configure("")

    def configure(self, text: str) -> None:
        self.file.write_text(f"log.dirs={self.log_dir}\ncleaner.topics.dir={self.topics_dir}\n{text}")

    def run(self, action: str, *words: str) -> int:
        return main(["config", action, "--config", str(self.file), *words])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With settings that are sound."""
    return Machine(tmp_path)


def test_check_of_sound_settings_says_what_it_checked(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with 0; what is odd is a warning."""
    (machine.topics_dir / "t.properties").write_text("cleanup.policy=compact\nretention.mss.x.y=1\n")
    assert machine.run("check", "--set", "colour=red") == 0
    out, err = capsys.readouterr()
    assert out == "the settings are sound, also for 2 topics in 1 log dir\n"
    assert "colour" in err
    assert "retention.mss.x.y is not a topic setting" in err


def test_check_names_every_mistake_on_a_line_of_its_own(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key, value, what is wrong, what is allowed, who says so; of the file, variables, options, and topic files."""
    machine.configure("log.cleaner.threads=0\ncleaner.lokc=hold\n")
    monkeypatch.setenv("CLEANER_HTTP_LISTEN", "9404")
    monkeypatch.setenv("CLEANER_HTTP_LISTN", "x\x1b[2J")
    (machine.topics_dir / "nowhere.properties").write_text("segment.ms=0\ncleanup.polcy=compact\n")
    assert machine.run("check", "--set", "cleaner.windows=late") == 78
    out, err = capsys.readouterr()
    assert out == ""
    file = machine.topics_dir / "nowhere.properties"
    listen = "must be HOST:PORT, port 0 to 65535, such as 127.0.0.1:9404; or empty"
    assert sorted(err.splitlines()) == sorted(
        [
            "cleaner: log.cleaner.threads=0: must be at least 1 (--config)",
            "cleaner: cleaner.lokc: unknown setting; did you mean cleaner.lock? (--config)",
            f"cleaner: cleaner.http.listen=9404: {listen} (environment (CLEANER_HTTP_LISTEN))",
            "cleaner: CLEANER_HTTP_LISTN: no setting has this environment variable; the nearest is CLEANER_HTTP_LISTEN",
            "cleaner: cleaner.windows=late: 'late' is not a window: windows are HH:MM-HH:MM, comma between them, "
            "00:00 to 24:00 (--set)",
            f"cleaner: segment.ms=0: must be at least 1 ({file})",
            f"cleaner: cleanup.polcy: unknown setting; did you mean cleanup.policy? ({file})",
        ]
    )


def test_check_finds_settings_of_a_topic_that_do_not_go_together(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sound one by one, from two sources, and only for this topic."""
    machine.configure("log.cleaner.max.compaction.lag.ms=5\n")
    (machine.topics_dir / "t.properties").write_text("min.compaction.lag.ms=6\n")
    assert machine.run("check") == 78
    reason = "must not be above max.compaction.lag.ms (5) (topic t)"
    assert capsys.readouterr().err == f"cleaner: min.compaction.lag.ms=6: {reason}\n"


def test_check_of_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Like any other."""
    assert main(["config", "check", "--config", str(tmp_path / "absent")]) == 78
    assert "there is no such file" in capsys.readouterr().err


def test_check_of_a_missing_log_dir_is_one_error_among_others(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip must not pass for a check, and the other log dirs are checked all the same."""
    (machine.topics_dir / "t.properties").write_text("segment.ms=0\n")
    assert machine.run("check", "--log-dir", "/nowhere", "--log-dir", str(machine.log_dir)) == 78
    err = capsys.readouterr().err
    assert "--log-dir=/nowhere: no such directory" in err
    assert "segment.ms=0" in err


@pytest.mark.parametrize(("is_waited_for", "code"), [(False, 78), (True, 0)])
def test_check_of_missing_log_dirs_says_what_a_start_would(
    machine: Machine, capsys: pytest.CaptureFixture[str], is_waited_for: bool, code: int
) -> None:
    """A mistake, unless the settings have them waited for."""
    wait = f"cleaner.log.dirs.wait={str(is_waited_for).lower()}"
    missing = machine.log_dir.parent / "disk2"
    assert machine.run("check", "--set", f"log.dirs={machine.log_dir},{missing}", "--set", wait) == code
    out, err = capsys.readouterr()
    assert f"{missing}: no such directory" in err
    assert ("the daemon waits for it" in err) == is_waited_for
    assert ("set cleaner.log.dirs.wait=true" in err) != is_waited_for
    assert ("2 topics in 1 log dir" in out) == is_waited_for


def test_check_of_a_partition_in_log_dirs_is_a_mistake_whatever_is_waited_for(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """No disk that comes later makes it a log dir."""
    place = machine.log_dir / "t-0"
    assert machine.run("check", "--set", f"log.dirs={place}", "--set", "cleaner.log.dirs.wait=true") == 78
    assert f"log.dirs={place}: the directory of a partition" in capsys.readouterr().err


def test_topic_of_a_log_dir_that_is_none_is_not_shown(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings of elsewhere would pass for its own."""
    assert machine.run("show", "--topic", "t", "--log-dir", str(machine.log_dir / "t-0")) == 2
    assert "the directory of a partition" in capsys.readouterr().err
    assert machine.run("show", "--log-dir", str(machine.log_dir / "nowhere")) == 2
    assert "no such directory" in capsys.readouterr().err


def _rows(text: str) -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in map(json.loads, text.splitlines())}


def test_show_lists_every_setting_with_value_and_source(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As JSON with what the table says of it."""
    monkeypatch.setenv("CLEANER_STUCK_MS", "6000")
    assert machine.run("show", "--format", "json", "--set", "log.cleaner.threads=2") == 0
    rows = _rows(capsys.readouterr().out)
    assert set(rows) == {*BROKER_SETTINGS, *TOPIC_SETTINGS}
    assert rows["log.cleaner.threads"] == {
        "format": "cleaner-setting",
        "format_version": 1,
        "key": "log.cleaner.threads",
        "value": "2",
        "source": "--set",
        "default": "1",
        "type": "int",
        "counts_after": "reload",
        "read_by": "every command",
    }
    stuck = rows["cleaner.stuck.ms"]
    assert (stuck["value"], stuck["source"]) == ("6000", "environment (CLEANER_STUCK_MS)")
    assert stuck["read_by"] == "daemon"
    assert rows["cleaner.state.dir"]["counts_after"] == "restart"
    assert (rows["cleaner.pipeline.threads"]["value"], rows["cleaner.pipeline.threads"]["source"]) == (None, "default")


def test_show_changed_only_leaves_defaults_out(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table; a control character in a value does not reach the terminal."""
    machine.configure("cleaner.windows.hard=true\nmetadata.log.dir=/a\\u001bb\n")
    assert machine.run("show", "--changed-only") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"KEY{'':19}VALUE{'':{len(str(machine.topics_dir)) - 3}}SOURCE",
        *(
            f"{key:<22}{value:<{len(str(machine.topics_dir)) + 2}}--config"
            for key, value in (
                ("log.dirs", str(machine.log_dir)),
                ("metadata.log.dir", "/a\\x1bb"),
                ("cleaner.topics.dir", str(machine.topics_dir)),
                ("cleaner.windows.hard", "true"),
            )
        ),
    ]


def test_show_of_a_topic_asks_all_its_sources(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file, the log dir that has it, the metadata there; a topic that is nowhere has what all have."""
    (machine.topics_dir / "t.properties").write_text("cleanup.policy=compact\n")
    records = [topic_record("t", ID), config_record(TOPIC, "t", "segment.ms", "9")]
    write_segment(machine.log_dir / "__cluster_metadata-0", 0, [records])
    assert machine.run("show", "--topic", "t", "--changed-only", "--format", "json") == 0
    shown = {key: (row["value"], row["source"]) for key, row in _rows(capsys.readouterr().out).items()}
    assert shown == {
        "cleanup.policy": ("compact", str(machine.topics_dir / "t.properties")),
        "segment.ms": ("9", "cluster metadata"),
    }
    assert machine.run("show", "--topic", "nowhere", "--set", "nowhere:segment.ms=7", "--format", "json") == 0
    rows = _rows(capsys.readouterr().out)
    assert set(rows) == set(TOPIC_SETTINGS)
    assert (rows["segment.ms"]["value"], rows["segment.ms"]["source"]) == ("7", "--set nowhere:")


def test_show_of_bad_settings_is_refused(machine: Machine) -> None:
    """There is nothing in force to show."""
    assert machine.run("show", "--set", "log.cleaner.threads=x") == 78


def test_docs_prints_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    """What `docs/settings.md` is."""
    assert main(["config", "docs"]) == 0
    assert capsys.readouterr().out == document()


def test_other_commands_read_the_environment_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And refuse a variable that is no setting."""
    monkeypatch.setenv("CLEANER_CLEANUP_POLICY", "compact")
    main(["plan", str(machine.log_dir), "--as-root", "--format", "json"])
    assert '"policy": "compact", "policy_origin": "environment"' in capsys.readouterr().out
    monkeypatch.setenv("CLEANER_CLEANUP_POLICIES", "compact")
    assert main(["plan", str(machine.log_dir), "--as-root"]) == 78
    assert "the nearest is CLEANER_CLEANUP_POLICY" in capsys.readouterr().err
