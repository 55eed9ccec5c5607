"""Commands that ask a running daemon, and what they say where none is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main, make_parser
from cleaner.cli.steer import run_now
from cleaner.daemon.control.server import ControlServer
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.daemon.steering import ReloadResult
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from cleaner.present.explanations import explain_log
from cleaner.state.quarantine import Quarantine, QuarantinedLog
from cleaner.storage.fs.file_system import FileSystem
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.manual_clock import ManualClock
from tests.support.snapshots import log, log_dir, snapshot

Capture = pytest.CaptureFixture[str]
DAEMON_COMMANDS = ["status", "explain", "jobs", "now", "pause", "resume", "release", "throttle", "reload", "quarantine"]


@pytest.fixture
def steering() -> FakeSteering:
    return FakeSteering(sample_daemons.with_problems())


@pytest.fixture(autouse=True)
def daemon(tmp_path: Path, steering: FakeSteering, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a daemon run in the state directory that commands look into by default."""
    tmp_path.chmod(0o750)
    monkeypatch.setenv("CLEANER_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("CLEANER_CONTROL_SOCKET", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def never(error: Exception) -> None:
        raise error

    with ControlServer(FileSystem(), tmp_path / "control.sock", steering, ManualClock(), never):
        yield


def told(capsys: Capture) -> str:
    """Return what was printed; nothing in it may act on a terminal."""
    out = capsys.readouterr().out
    assert all(c.isprintable() for line in out.split("\n") for c in line)
    return out


def test_status_of_a_daemon_that_is_well_ends_with_0(steering: FakeSteering, capsys: Capture) -> None:
    """Says so first, then what goes on."""
    steering.shown = sample_daemons.at_work()
    assert main(["status"]) == 0
    out = told(capsys)
    assert out.splitlines()[0].endswith("running for 3 d: all is well")
    for words in ("orders-0   copy", "36%", "queue       users-0", "/var/lib/kafka/data  online", "nothing to clean"):
        assert words in out


def test_status_of_a_daemon_in_trouble_ends_with_1(capsys: Capture) -> None:
    """Everything that is wrong is at the head, with what to type."""
    assert main(["status"]) == 1
    head = told(capsys).partition("  last turn")[0]
    for words in (
        "7 not well",
        "stuck: cleaner-1 has moved nothing",
        "the last reload was refused: log.cleaner.threads=zero",
        "/mnt/disk2/kafka is offline for 20 min: Input/output error",
        "sessions-0 cannot be read: Permission denied",
        "cleaner explain sessions-0\n",
        "ledger-2 is in quarantine: CRC-32C",
        "cleaner quarantine\n",
        "accounts-1 failed 3 times in a row",
        "cleaner explain accounts-1\n",
    ):
        assert words in head


def test_status_of_logs_that_cannot_be_looked_at_ends_with_1(steering: FakeSteering, capsys: Capture) -> None:
    """By their errors, however few logs are asked for; many errors are not all named, but all logs are counted."""
    logs = [
        log("t", n, sections=None, verdict=None, why="cannot be read", error=f"error {min(n, 7)}") for n in range(9)
    ]
    steering.shown = snapshot(logs)
    assert main(["status", "--logs", "0"]) == 1
    lines = [line.strip(" !") for line in told(capsys).partition("  last turn")[0].splitlines()]
    assert lines[0].endswith("6 not well")
    assert lines[1:3] == ["t-7 and 1 more cannot be read: error 7", "cleaner explain t-7"]
    assert lines[-2:] == ["cleaner explain t-3", "3 more cannot be read"]


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        (snapshot(()), 0),
        (snapshot((), log_dirs=(log_dir(condition=DirCondition.LOCKED),)), 0),
        (snapshot((), log_dirs=(log_dir(condition=DirCondition.NEEDS_RECOVERY),)), 1),
        (snapshot((), is_progressing=False), 1),
        (snapshot((), is_ready=False, state="running"), 1),
        (snapshot((), is_ready=False, state="starting"), 0),
        (snapshot((), worker_deaths=3), 0),
        (snapshot((), anonymous_bytes=5_000_000_000), 1),
    ],
    ids=["well", "locked", "needs-recovery", "not-turning", "not-ready", "starting", "worker-died", "leaking"],
)
def test_status_fails_only_if_an_operator_is_needed(steering: FakeSteering, shown: ServiceSnapshot, code: int) -> None:
    """A broker in its own log dir and a worker that was replaced are no alarm."""
    steering.shown = shown
    assert main(["status"]) == code


PROBED: dict[str, tuple[dict[str, object], int, int]] = {
    "working": ({}, 0, 0),
    "a log in quarantine, a disk gone": ({"state": "running", "is_ready": True, "is_progressing": True}, 0, 0),
    "starting": ({"state": "starting", "is_ready": False}, 0, 1),
    "stopping": ({"state": "stopping"}, 0, 1),
    "stuck": ({"is_progressing": False}, 1, 1),
}


@pytest.mark.parametrize("case", PROBED)
def test_status_as_a_probe_prints_nothing(steering: FakeSteering, case: str, capsys: Capture) -> None:
    """Logs in trouble are no reason to restart it; who restarts and who waits get different answers."""
    changes, live, ready = PROBED[case]
    shown = sample_daemons.with_problems() if "quarantine" in case else sample_daemons.at_work()
    steering.shown = replace(shown, **changes)
    assert (main(["status", "--probe", "live"]), main(["status", "--probe", "ready"])) == (live, ready)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["status", "--logs", "al"], ["history", "--last", "al"]])
def test_number_or_all_names_both_if_it_is_neither(words: list[str], capsys: Capture) -> None:
    """The error for a mistyped `all` does not only ask for a number."""
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "'al' is not a number from 0 up, and not all" in " ".join(capsys.readouterr().err.split())


def test_status_as_json_is_the_snapshot(capsys: Capture) -> None:
    """Whole, and one object."""
    assert main(["status", "--format", "json", "--logs", "all"]) == 1
    values = json.loads(told(capsys))
    assert (values["format"], len(values["logs"]), values["config"]["values"] != []) == ("cleaner-snapshot", 10, True)


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["quarantine"], ["status", "--format", "json"]])
def test_hostile_names_do_not_reach_the_terminal(steering: FakeSteering, command: list[str], capsys: Capture) -> None:
    """Every text of a snapshot holds line ends and terminal codes."""
    steering.shown = sample_daemons.hostile()
    main(command)
    assert told(capsys)


@pytest.mark.parametrize("reason", list(Reason))
def test_explain_says_why_and_what_to_type(steering: FakeSteering, reason: Reason, capsys: Capture) -> None:
    """Each reason has words of its own; each command it names is one that can be typed."""
    steering.shown = snapshot((log("orders", 0, reason=reason, uncleanable_bytes=5),))
    view = steering.shown.logs[0]
    assert main(["explain", "orders-0"]) == 0
    out = told(capsys)
    found = explain_log(view, steering.shown)
    assert found.meaning
    assert f"why         {view.why[:40]}" in out
    assert "first uncleanable offset" in out
    assert "####" in out
    for command, _ in found.commands:
        assert command in out
        if command.startswith("cleaner "):
            make_parser().parse_args(command.split()[1:])


@pytest.mark.parametrize("bound", ["active segment", "high watermark", "last stable offset", "min.compaction.lag.ms"])
def test_explain_says_what_ends_the_cleanable_part(steering: FakeSteering, bound: str) -> None:
    """An open transaction is not the active segment."""
    view = log("orders", 0, dirty_bytes=0)
    assert view.verdict is not None
    verdict = replace(view.verdict, cleanable=replace(view.verdict.cleanable, bounded_by=bound))
    words = explain_log(replace(view, verdict=verdict), steering.shown).meaning
    key = {"active segment": "active", "last stable offset": "transaction", "min.compaction.lag.ms": "minimum lag"}
    assert key.get(bound, bound) in words


def test_explain_distinguishes_a_default_from_a_policy_without_compact(steering: FakeSteering) -> None:
    """An unconfirmed policy is not one that forbids cleaning."""
    untrusted = log("a", 0, policy="compact,delete", verdict=None, why="only a default")
    by_default = explain_log(replace(untrusted, held_by=Reason.POLICY_NOT_TRUSTED), steering.shown)
    assert "confirm" in by_default.meaning
    assert "cleaner.trust.default.policy" in by_default.settings
    assert "has no compact" in explain_log(log("a", 0, policy="delete", verdict=None, why=""), steering.shown).meaning


def test_explain_names_the_setting_and_its_value(steering: FakeSteering, capsys: Capture) -> None:
    """With who says so."""
    values = (("cleaner.windows", "22:00-06:00", "cleaner.properties"),)
    view = log("orders", 0, reason=Reason.WINDOW_CLOSED, dirty_bytes=2 << 30)
    steering.shown = snapshot((view,))
    steering.shown = replace(steering.shown, config=replace(steering.shown.config, values=values))
    main(["explain", "orders-0"])
    assert "settings    cleaner.windows=22:00-06:00 (cleaner.properties)\n" in told(capsys)


@pytest.mark.parametrize("words", ["invoices", "invoices (2)"])
def test_explain_shows_how_to_resume_a_paused_log(steering: FakeSteering, words: str, capsys: Capture) -> None:
    """The topic was paused, so the topic must be resumed."""
    steering.shown = replace(steering.shown, pauses=("all (1)", words))
    main(["explain", "invoices-0"])
    assert "cleaner resume invoices  " in told(capsys)


def test_next_command_reaches_the_same_daemon(tmp_path: Path, capsys: Capture) -> None:
    """Options by which the daemon was found are in it; a command for a log dir has none of them."""
    main(["explain", "invoices-0", "--socket", str(tmp_path / "control.sock")])
    assert f"cleaner resume invoices --socket {tmp_path}/control.sock" in told(capsys)
    main(["explain", "sessions-0", "--state-dir", str(tmp_path)])
    assert "cleaner plan /var/lib/kafka/data  " in told(capsys)


def test_explain_of_a_log_in_two_log_dirs_names_both(steering: FakeSteering, capsys: Capture) -> None:
    """A partition that is being moved."""
    steering.shown = snapshot((log("orders", 0, log_dir="/a"), log("orders", 0, log_dir="/b")))
    main(["explain", "orders-0", "--format", "json"])
    assert [json.loads(line)["log_dir"] for line in told(capsys).splitlines()] == ["/a", "/b"]


def test_explain_of_a_missing_log(capsys: Capture) -> None:
    """1, and where to look."""
    assert main(["explain", "nothing-7"]) == 1
    assert "no log nothing-7; cleaner status --logs all" in capsys.readouterr().err


def test_now_makes_a_job_and_jobs_lists_it(steering: FakeSteering, capsys: Capture) -> None:
    """By the id that cancels it."""
    assert main(["now", "orders-0", "--format", "json"]) == 0
    assert json.loads(told(capsys))["id"] == 8
    assert steering.calls == [("request", TopicPartition("orders", 0), os.getuid())]
    assert main(["jobs"]) == 0
    assert re.search(r"^ +8  orders-0 +queued", told(capsys), re.MULTILINE)
    assert main(["jobs", "--cancel", "8"]) == 0
    assert "cancelled" in told(capsys)
    assert main(["now", "--cancel", "7"]) == 0
    assert [job.state for job in steering.shown.jobs[:2]] == ["cancelled", "cancelled"]


class WorkingClock(ManualClock):
    """The daemon gets on with the job whenever the command sleeps."""

    def __init__(self, steering: FakeSteering, states: list[dict[str, object]]) -> None:
        super().__init__()
        self._steering = steering
        self._states = states

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if not self._states:
            raise KeyboardInterrupt
        self._steering.update_job(8, **self._states.pop(0))


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("failed", 1), ("cancelled", 1)])
def test_now_waits_for_the_end_of_its_job(steering: FakeSteering, state: str, code: int, capsys: Capture) -> None:
    """The exit code is that of the job."""
    working: dict[str, object] = {"state": "running", "progress": 0.5}
    end: dict[str, object] = {"state": state, "progress": 1.0, "ended_ms": 5, "detail": "the end"}
    arguments = make_parser().parse_args(["now", "orders-0", "--wait"])
    assert run_now(arguments, WorkingClock(steering, [working, working, end])) == code
    assert "the end" in told(capsys)


def test_now_that_is_interrupted_leaves_the_job_alone(steering: FakeSteering, capsys: Capture) -> None:
    """And says how to end it."""
    arguments = make_parser().parse_args(["now", "orders-0", "--wait"])
    assert run_now(arguments, WorkingClock(steering, [])) == 1
    assert "cleaner now --cancel 8" in capsys.readouterr().err
    assert steering.shown.jobs[0].state == "queued"


@pytest.mark.parametrize("line", [["now"], ["now", "a-0", "--cancel", "1"], ["now", "--cancel", "1", "--wait"]])
def test_now_wants_a_partition_or_a_job(line: list[str]) -> None:
    """Usage: 2."""
    assert main(line) == 2


def test_pause_and_resume_say_what_is_paused(steering: FakeSteering, capsys: Capture) -> None:
    """Who is asked to stop, and what is left."""
    assert main(["pause", "orders"]) == 0
    assert told(capsys) == "paused: orders; asked to stop: orders-1\n"
    assert main(["resume", "orders"]) == 0
    assert told(capsys) == "resumed: orders; still paused: invoices\n"
    assert main(["pause"]) == 0
    assert main(["resume", "--format", "json"]) == 0
    assert json.loads(told(capsys).splitlines()[1])["pauses"] == ["invoices"]
    assert [call[:2] for call in steering.calls] == [
        ("pause", "orders"),
        ("resume", "orders"),
        ("pause", None),
        ("resume", None),
    ]


@pytest.mark.parametrize(
    ("line", "rate", "words"),
    [
        (["50M"], 50.0 * (1 << 20), "throttle: 50.0 MiB/s\n"),
        (["unlimited"], None, "throttle: unlimited\n"),
        (["1g", "--log-dir", "/mnt/disk2/kafka"], 1024.0**3, "throttle: 1.0 GiB/s in /mnt/disk2/kafka\n"),
    ],
)
def test_throttle_takes_units(
    steering: FakeSteering, line: list[str], rate: float | None, words: str, capsys: Capture
) -> None:
    """As the other commands do."""
    assert main(["throttle", *line]) == 0
    assert (steering.calls[0][1], told(capsys)) == (rate, words)


def test_throttle_to_next_to_nothing_is_done_with_a_warning(steering: FakeSteering, capsys: Capture) -> None:
    """50 instead of 50M stops all cleaning: it is said what the rate would mean."""
    assert main(["throttle", "50", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert steering.calls[0][1] == 50.0
    assert "249 days" in err and "249 days" in json.loads(out)["warning"]
    assert main(["throttle", "1M"]) == 0
    assert capsys.readouterr().err == ""


def test_reload_with_mistakes_ends_with_78(steering: FakeSteering, capsys: Capture) -> None:
    """A line each; without any, what has changed and what waits for a restart."""
    steering.reloaded = ReloadResult(errors=("a=1: no", "b=2: no\x1b"))
    assert main(["reload"]) == 78
    assert capsys.readouterr().err == "cleaner: a=1: no\ncleaner: b=2: no\\x1b\n"
    steering.reloaded = ReloadResult(changed=("x", "y"), needs_restart=("z",), warnings=("a restart would fail",))
    assert main(["reload"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("changed: x, y\nonly after a restart: z\n", "cleaner: a restart would fail\n")


def test_quarantine_is_listed_and_released(capsys: Capture) -> None:
    """1 as long as anything is in it."""
    assert main(["quarantine"]) == 1
    assert re.search(r"ledger-2 .* 81788928  CRC-32C", told(capsys))
    assert main(["release", "ledger-2"]) == main(["release", "payments-7"]) == 0
    assert told(capsys) == "released: ledger-2\nreleased: payments-7\n"
    assert main(["quarantine"]) == 0
    assert main(["release", "ledger-2"]) == 1
    assert "ledger-2 is not in quarantine" in capsys.readouterr().err


def test_quarantine_is_listed_if_no_daemon_runs(tmp_path: Path, capsys: Capture) -> None:
    """From its file."""

    def never(warning: str) -> None:
        raise AssertionError(warning)

    state = tmp_path / "other"
    state.mkdir()
    quarantine = Quarantine(FileSystem(), state, never)
    assert main(["quarantine", "--state-dir", str(state)]) == 0
    quarantine.add(QuarantinedLog.of(TopicPartition("a", 0), Path("/a"), ValueError("odd\n"), 0))
    assert main(["quarantine", "--state-dir", str(state), "--format", "json"]) == 1
    assert json.loads(told(capsys))["reason"] == "odd\n"
    (state / "quarantine.json").write_text("{")
    assert main(["quarantine", "--state-dir", str(state)]) == 1
    assert "the quarantine cannot be read" in capsys.readouterr().err
    assert main(["quarantine", "--state-dir", str(tmp_path / "gone")]) == 69


def arguments_of(command: str) -> list[str]:
    return {"explain": ["orders-0"], "now": ["orders-0"], "release": ["orders-0"], "throttle": ["5"]}.get(command, [])


@pytest.mark.parametrize("command", sorted(set(DAEMON_COMMANDS) - {"quarantine"}))
def test_command_without_a_daemon_ends_with_69(tmp_path: Path, command: str, capsys: Capture) -> None:
    """And says where it looked, and which command needs none."""
    (tmp_path / "c.properties").write_text(f"cleaner.state.dir={tmp_path}/b\n")
    line = [command, *arguments_of(command)]
    assert main([*line, "--socket", str(tmp_path / "a")]) == 69
    said, what_next = capsys.readouterr().err.splitlines()
    assert said == f"cleaner: no daemon is running at {tmp_path}/a"
    assert "cleaner plan" in what_next
    assert main([*line, "--state-dir", str(tmp_path / "b")]) == 69
    assert f"cleaner: no daemon is running at {tmp_path}/b/control.sock\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "environment"),
    [
        ("cleaner.state.dir={}\n", {}),
        ("cleaner.control.socket={}/control.sock\ncleaner.state.dir=/nowhere\nlog.cleaner.threads=zero\n", {}),
        ("cleaner.state.dir=/nowhere\n", {"CLEANER_STATE_DIR": "{}"}),
        ("cleaner.control.socket=/nowhere/s\n", {"CLEANER_CONTROL_SOCKET": "{}/control.sock"}),
        (None, {"CLEANER_CONTROL_SOCKET": "{}/control.sock"}),
    ],
    ids=["state-dir", "socket-in-a-bad-file", "variable-over-file", "socket-variable-over-file", "variable-alone"],
)
def test_daemon_is_found_by_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, environment: dict[str, str]
) -> None:
    """Those of a file and of the environment; a mistake elsewhere in the file is ignored."""
    monkeypatch.delenv("CLEANER_STATE_DIR")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    line = ["jobs"]
    if content is not None:
        (tmp_path / "c.properties").write_text(content.format(tmp_path))
        line += ["--config", str(tmp_path / "c.properties")]
    assert main(line) == 0


def test_missing_config_file_is_an_error(tmp_path: Path) -> None:
    """78, and not a daemon found elsewhere."""
    assert main(["jobs", "--config", str(tmp_path / "gone")]) == 78
