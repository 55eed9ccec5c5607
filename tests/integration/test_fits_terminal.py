"""The output of every command fits the terminal: help, tables, text and errors, on logs with the longest names."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main, make_parser
from cleaner.cli.parser import Parser
from cleaner.daemon.control.server import ControlServer
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.daemon.steering import ReloadResult
from cleaner.state.journal import Journal
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.log_dirs import flip_bit, keyed_log
from tests.support import sample_daemons
from tests.support.batch_builder import Producer
from tests.support.fake_steering import FakeSteering
from tests.support.log_builder import START_MS, write_log_dir
from tests.support.manual_clock import ManualClock
from tests.support.snapshots import job, log, quarantined, retry, round_of, worker

Capture = pytest.CaptureFixture[str]
WIDTHS = (60, 80)
# As long as a directory can be named: Kafka takes 249 characters of a topic, and file systems 255 bytes.
LONG = ("a.topic-" + "with_a.very-long_name." * 12)[:238] + "and_an-end1"
COMPACT = ("--set", "topic:cleanup.policy=compact", "--set", f"{LONG}:cleanup.policy=compact")
WHEN = ("--now", str(START_MS + 1_000_000))


@dataclass(frozen=True)
class Place:
    """
    What commands are run on.

    Attributes:
        root: above all of it.
        logs: sound logs; one is named `LONG`.
        damaged: a log dir with a bad batch, and without a clean-shutdown marker.
        kept: what a round has replaced, for `undo`.
        state: a daemon's state directory; it answers there.
        config: a properties file with mistakes.
    """

    root: Path
    logs: Path
    damaged: Path
    kept: Path
    state: Path
    config: Path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the original that is copied for each test."""
    # A path as long as those of some deployments.
    root = tmp_path_factory.mktemp("a-mount-of-a-container-" + "whose-name-says-much-" * 3)
    undecided = keyed_log("open-0", segments=0)
    undecided.append(("t", "v"), producer=Producer(7, 3, 0, True))
    undecided.roll()
    write_log_dir(root / "logs", keyed_log("topic-0"), keyed_log(f"{LONG}-0"), undecided)
    write_log_dir(root / "damaged", keyed_log("topic-0"), keyed_log(f"{LONG}-0"), clean_shutdown=False)
    for name in ("topic-0", f"{LONG}-0"):
        flip_bit(root / "damaged" / name / f"{0:020}.log", 300)
    (root / "state").mkdir(mode=0o750)
    clock = ManualClock()
    journal = Journal(FileSystem(), root / "state", clock)
    details = {
        "result": "done", "bytes_read": 5 << 30, "bytes_written": 1 << 30, "elapsed_seconds": 12.5,
        "removed": {"superseded": 7_000_000, "tombstones": 12, "aborted": 0, "control_batches": 3, "without_key": 1},
        "settings": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5", "segment.bytes": "1073741824"},
        "detail": "one word after the other " * 10,
    }  # fmt: skip
    journal.append("round", f"{LONG}-0", details)
    journal.append("reload", None, {"uid": 0, "errors": ["log.cleaner.threads=zero: must be a whole number (int)"]})
    (root / "bad.properties").write_text(
        "log.cleaner.treads=2\nlog.cleaner.dedupe.buffer.size=x\n" + "k" * 300 + "=1\n"
    )
    return root


@pytest.fixture
def place(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a copy, with a daemon that answers in its state directory."""
    root = tmp_path / original.name
    shutil.copytree(original, root)
    tmp_path.chmod(0o755)
    for name in ("CLEANER_CONTROL_SOCKET", "CLEANER_STATE_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLEANER_CONTROL_SOCKET", str(tmp_path / "s"))

    def never(error: Exception) -> None:
        raise error

    steering = FakeSteering(_busy_daemon(str(root / "logs")))
    steering.reloaded = ReloadResult(changed=("log.cleaner.threads",) * 9, needs_restart=("cleaner.http.listen",) * 5)
    with ControlServer(FileSystem(), tmp_path / "s", steering, ManualClock(), never):
        yield Place(root, root / "logs", root / "damaged", root / "kept", root / "state", root / "bad.properties")


def _busy_daemon(log_dir: str) -> ServiceSnapshot:
    """Return a daemon in trouble, with a log of a long name in each of its tables."""
    name = TopicPartition(LONG, 0)
    shown = sample_daemons.with_problems()
    return replace(
        shown,
        logs=(log(LONG, 0, log_dir=log_dir, why="one word after the other " * 8), *shown.logs),
        workers=(worker(0, name), *shown.workers),
        queue=(name, *shown.queue),
        pauses=("all", LONG),
        jobs=(job(7, name, detail="one word after the other " * 8), job(8, name, state="failed", ended_ms=START_MS)),
        quarantine=(quarantined(name, log_dir=log_dir, file=f"{log_dir}/{name}/{0:020}.log"), *shown.quarantine),
        retries={name: retry(cause="No space left on device " * 8)},
        rounds=(round_of(name, detail="one word after the other " * 8), *shown.rounds),
    )


def _leaves(parser: Parser, *name: str) -> Iterator[tuple[str, ...]]:
    """Yield each command without commands below it."""
    if not parser.commands():
        yield name
    for word, below in parser.commands().items():
        yield from _leaves(below, *name, word)


COMMANDS = sorted(_leaves(make_parser()))


def _on(of: Place, *words: str) -> list[str]:
    """Return a command line; LOGS, DAMAGED, ... are the directories."""
    names = {"LOGS": of.logs, "DAMAGED": of.damaged, "KEPT": of.kept, "STATE": of.state, "CONFIG": of.config}
    return [str(names.get(word, word)) for word in words]


# By command, what is run: what it shows when all is well, and what it refuses. LOGS stands for a log dir, and so on.
RUNS: dict[tuple[str, ...], list[tuple[str, ...]]] = {
    ("clean",): [
        ("LOGS", "topic-0", f"{LONG}-0", *COMPACT, *WHEN),
        ("LOGS", "topic-0", f"{LONG}-0", *WHEN),
        ("LOGS", "--all", "--set", "cleanup.policy=compact", *WHEN),
        ("LOGS", "--all", "--dry-run", *WHEN),
        ("LOGS", "nothing-0", "--keep-old", "LOGS"),
        ("DAMAGED", "--all", *COMPACT, *WHEN),
        ("DAMAGED", f"{LONG}-0", *COMPACT, "--recover", "--high-watermark", "end", *WHEN),
        ("LOGS", f"{LONG}-0", "--hihg-watermark", "end"),
    ],
    ("bulk",): [("LOGS", "topic-0", f"{LONG}-0", "--dry-run", *COMPACT, *WHEN), ("LOGS", "--conf", "x" * 200)],
    ("plan",): [
        ("LOGS", *COMPACT, *WHEN),
        ("LOGS", *COMPACT, "--estimate", *WHEN),
        ("LOGS", *COMPACT, "--who", *WHEN),
        ("DAMAGED", *COMPACT),
        ("DAMAGED", *COMPACT, "--who"),
        ("/no/such/directory" * 10,),
    ],
    ("gaps",): [("LOGS", *COMPACT), ("DAMAGED", *COMPACT), ("LOGS", "nothing-0")],
    ("export",): [("LOGS", "topic", "--to", "/no/such/directory" * 10), ("LOGS", LONG, "--to", "CONFIG")],
    ("erase",): [
        ("LOGS", "topic", "--key-prefix", "k1", "--dry-run", *WHEN),
        ("DAMAGED", LONG, "--key-prefix", "k1", *WHEN),
        ("LOGS", "nothing", "--key-prefix", "k1"),
    ],
    ("prove-erased",): [
        ("LOGS",),
        ("--key-prefix", "k", "DAMAGED", "--certificate", "/no/such/directory" * 10),
        ("--check", "CONFIG"),
    ],
    ("check",): [("LOGS",), ("DAMAGED",), ("--replicas", "LOGS", "DAMAGED"), ("DAMAGED", "--repair")],
    ("dump",): [(), ("x", "--verify-index-onyl"), ("--files", "x", "--max-message-size", "x" * 200)],
    ("recover",): [("LOGS",), ("DAMAGED",), ("DAMAGED", "--allow-truncate")],
    ("verify",): [("LOGS", "LOGS", *COMPACT, *WHEN), ("LOGS", "DAMAGED", *COMPACT, *WHEN)],
    ("undo",): [("KEPT", "LOGS"), ("LOGS", "LOGS")],
    ("doctor",): [("LOGS",), ("DAMAGED", "/no/such/directory" * 10), ("--config", "CONFIG")],
    ("handover",): [
        ("--from", "LOGS", "--to", "DAMAGED", "--topic-id", f"{LONG}=IvGBsEpRQHy0e2ZFbihfbw"),
        ("--from", "DAMAGED", "--to", "/no/such/directory" * 10, "--topic-id", "nothing=x"),
    ],
    ("run",): [("--config", "CONFIG")],
    ("serve",): [
        ("LOGS", "--listen", "192.0.2.1:9092"),
        ("/no/such/directory" * 10,),
    ],
    ("config", "check"): [(), ("--config", "CONFIG"), ("--log-dir", "LOGS")],
    ("config", "show"): [(), ("--topic", "topic", "--log-dir", "LOGS"), ("--config", "CONFIG")],
    ("config", "docs"): [()],
    ("warm",): [()],
    ("status",): [(), ("--logs", "all"), ("--socket", "/no/such/socket" * 8)],
    ("explain",): [
        (f"{LONG}-0",),
        ("accounts-1",),
        ("nothing-0",),
        ("LOGS", f"{LONG}-0", *COMPACT, *WHEN),
        ("LOGS", f"{LONG}-0", *COMPACT, "--estimate", *WHEN),
        ("LOGS", "open-0", *WHEN),
        ("DAMAGED", f"{LONG}-0", *WHEN),
    ],
    ("now",): [(f"{LONG}-0",), ("--cancel", "7"), ("nothing-0",)],
    ("jobs",): [(), ("--cancel", "99")],
    ("pause",): [(), (LONG,), ("nothing",)],
    ("resume",): [(), (LONG,), ("nothing",)],
    ("throttle",): [("50",), ("5M", "--log-dir", "/no/such/directory" * 10), ("x",)],
    ("quarantine",): [()],
    ("release",): [(f"{LONG}-0",), ("nothing-0",)],
    ("reload",): [()],
    ("history",): [("--state-dir", "STATE"), ("--kind", "rounds"), ("--since", "x" * 100)],
    ("topics",): [
        ("create", "--log-dir", "LOGS", "--topic", "n" * 200, "--config", "segment.bytes=1M,cleanup.policy=[compact]"),
        ("describe", "--log-dir", "LOGS"),
        ("list", "--log-dir", "LOGS"),
        ("alter", "--log-dir", "LOGS", "--topic", "nothing" * 20, "--partitions", "3"),
        ("delete", "--log-dir", "LOGS", "--topic", "topic", "--zookeeper", "x", "--force"),
        ("describe", "--log-dir", "LOGS", "--entity-tpye", "x"),
    ],
    ("produce",): [
        ("--log-dir", "LOGS", "--topic", "nothing", "--property", "x=y"),
        ("--log-dir", "LOGS", "--batch-sizes", "5"),
    ],
    ("consume",): [
        ("--log-dir", "LOGS", "--topic", "topic", "--offset", "x" * 200),
        ("--log-dir", "LOGS", "--topic", LONG[:100]),
    ],
}  # fmt: skip


def printed(capsys: Capture, words: list[str]) -> str:
    """Run a command line in this process; returns its output."""
    with contextlib.suppress(SystemExit):
        main(words)
    out, err = capsys.readouterr()
    return out + err


def assert_fits(text: str, width: int, words: list[str]) -> None:
    """Fail with the lines that are too long."""
    assert text, words
    assert [line for line in text.splitlines() if len(line) > width] == [], words


def test_every_command_is_run() -> None:
    """The commands of the parser and of this table are the same: add a new one here, too."""
    assert sorted(RUNS) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_output_is_no_wider_than_the_terminal(
    command: tuple[str, ...], place: Place, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output on success, on a refusal, on a typing error, and with nothing left to do."""
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        for given in RUNS[command]:
            words = [*command, *_on(place, *given)]
            assert_fits(printed(capsys, words), width, words)


@pytest.mark.parametrize("command", [(), ("config",), *COMMANDS], ids=" ".join)
def test_help_is_no_wider_than_the_terminal(
    command: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a pipe, where the width is unknown, it is 80 wide."""
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        assert_fits(printed(capsys, [*command, "--help"]), width, [*command])
    monkeypatch.delenv("COLUMNS")
    assert_fits(printed(capsys, [*command, "--help"]), 80, [*command])


def test_remark_on_an_example_stands_below_it_further_in(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the example's own depth it could be taken for a part of the command, at its old column it is cut to pieces."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed(capsys, ["clean", "--help"]).splitlines()
    for example, remark in (
        ("  cleaner clean /var/lib/kafka --all --dry-run", "what would be done, and why not"),
        ("      --set prices:cleanup.policy=compact", "a bare copy of partition directories"),
    ):
        assert lines[lines.index(f"        {remark}") - 1] == example


def test_first_lines_of_the_help_are_whole_sentences(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the source that ends with a colon was taken for a title, and broke its paragraph."""
    for command in [(), *COMMANDS]:
        parser = make_parser()
        for word in command:
            parser = parser.commands()[word]
        for text in (parser.description or "", parser.epilog or ""):
            lines = [*text.splitlines(), ""]
            broken = [line for line, after in itertools.pairwise(lines) if line.endswith(":") and after[:1].strip()]
            assert broken == [], command
    monkeypatch.setenv("COLUMNS", "80")
    assert "\nclean. Each command has its own help, such as" in printed(capsys, ["--help"])


def test_records_and_lines_of_kafka_are_never_folded(
    place: Place, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for programs: the same lines whatever the terminal, as is JSON."""
    segment = f"{place.logs}/{LONG}-0/{0:020}.log"
    for words in (
        ["dump", segment, "--print-data-log"],
        ["consume", "--log-dir", str(place.logs), "--topic", LONG, "--from-beginning", "--format", "json"],
        ["plan", str(place.logs), "--format", "json", *WHEN],
        ["status", "--format", "json"],
    ):
        monkeypatch.delenv("COLUMNS", raising=False)
        whole = printed(capsys, words)
        monkeypatch.setenv("COLUMNS", "60")
        assert max(map(len, whole.splitlines())) > 100, words
        assert printed(capsys, words) == whole


@pytest.mark.parametrize("words", [["--wide"], []], ids=["wide", "piped"])
@pytest.mark.parametrize("command", [["plan", "LOGS"], ["status"], ["jobs"], ["quarantine"], ["history"]])
def test_rows_are_one_line_with_names_in_full(
    command: list[str], words: list[str], place: Place, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--wide` on any terminal, and into a pipe: a row found by a name is complete."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("CLEANER_STATE_DIR", str(place.state))
    narrow = printed(capsys, _on(place, *command))
    assert f"{LONG}-0" not in narrow and "\u2026" in narrow
    if not words:
        monkeypatch.delenv("COLUMNS")
    rows = printed(capsys, [*_on(place, *command), *words]).splitlines()
    (row, *_) = [line for line in rows if line.lstrip().startswith(f"{LONG}-0") or f" {LONG}-0 " in line]
    assert len(row.split()) > 4


def test_width_is_the_terminals(place: Place) -> None:
    """COLUMNS is seldom exported: a terminal is asked for its width, a pipe is not."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TERM")}
    words = [sys.executable, "-m", "cleaner", "plan", str(place.logs), *WHEN]
    piped = subprocess.run(words, capture_output=True, text=True, env=environment, check=False).stdout
    assert f"{LONG}-0" in piped
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    child = subprocess.Popen(words, stdout=theirs, stderr=theirs, env=environment, close_fds=True)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # the other end was closed: Linux's end of a terminal
        pass
    finally:
        child.wait()
        os.close(ours)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r", "").splitlines()  # without colours
    assert lines and max(map(len, lines)) <= 72
    assert f"{LONG}-0" not in shown.decode()
