"""The output of `--format json` is what docs/json.md says, for every command."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleaner.base.clock import SystemClock
from cleaner.cli.main import main, make_parser
from cleaner.daemon.control.server import ControlServer
from cleaner.state.journal import Journal
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.log_dirs import NOW, keyed_log
from tests.integration.two_dirs import PRICES, TOPIC_ID, write_brokers, write_ours
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.log_builder import CLEAN_SHUTDOWN, write_log_dir
from tests.support.manual_clock import ManualClock

DOCUMENT = (Path(__file__).parents[2] / "docs" / "json.md").read_text("utf-8")
COMPACT = ("--set", "topic:cleanup.policy=compact", "--now", str(NOW))
RECORDS = {("produce",), ("consume",)}
"""These commands read and print records, as the document says."""

REFUSED = {"format", "format_version", "partition", "error", "next"}

Capture = pytest.CaptureFixture[str]


def commands_with_json(parser: argparse.ArgumentParser, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return every command that has `--format json`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from commands_with_json(below, (*name, word))
        elif "--format" in action.option_strings and "json" in (action.choices or ()):
            yield name


def lines_of(places: dict[str, Path]) -> dict[tuple[str, ...], list[list[str]]]:
    """Return for each command lines that print something; one that is not named is given a log dir."""
    logs, kept = str(places["logs"]), str(places["kept"])
    topic_id = ("--topic-id", f"{PRICES}={format_uuid(TOPIC_ID)}")
    segment = f"{logs}/topic-0/00000000000000000000.log"
    named = {
        ("clean",): [["clean", logs, "topic-0", *COMPACT]],
        ("bulk",): [["bulk", logs, "topic-0", "--dry-run", *COMPACT]],
        ("plan",): [["plan", logs, *COMPACT], ["plan", logs, "--estimate", *COMPACT]],
        ("dump",): [["dump", segment, "--print-data-log"]],
        ("recover",): [["recover", str(places["torn"])]],
        ("verify",): [["verify", str(places["before"]), str(places["after"]), "topic-0", *COMPACT]],
        ("erase",): [["erase", logs, "topic", "--key-prefix", "k", "--dry-run"]],
        ("check",): [["check", logs], ["check", "--replicas", logs, str(places["after"])]],
        ("prove-erased",): [
            ["prove-erased", "--key-prefix", "key", logs],
            ["prove-erased", "--key-prefix", "key", logs, "--certificate", f"{kept}.json"],
            ["prove-erased", "--check", f"{kept}.json"],
        ],
        ("undo",): [["undo", kept]],
        ("handover",): [
            ["handover", "--from", str(places["ours"]), "--to", str(places["brokers"]), *topic_id, "--dry-run"]
        ],
        ("config", "show"): [["config", "show"], ["config", "show", "--topic", "topic"]],
        ("status",): [["status", "--logs", "all"]],
        ("explain",): [["explain", "orders-1"], ["explain", "sessions-0"], ["explain", logs, "topic-0", *COMPACT]],
        ("now",): [["now", "orders-0"], ["now", "--cancel", "5"]],
        ("jobs",): [["jobs"]],
        ("pause",): [["pause", "orders"]],
        ("resume",): [["resume", "orders"]],
        ("throttle",): [["throttle", "50M"]],
        ("quarantine",): [["quarantine"]],
        ("release",): [["release", "ledger-2"]],
        ("reload",): [["reload"]],
        ("history",): [["history"]],
        ("topics",): [["topics", "list", "--log-dir", logs], ["topics", "describe", "--log-dir", logs]],
    }
    return {name: named.get(name, [[*name, logs]]) for name in commands_with_json(make_parser())}


def documented(form: str) -> set[str]:
    """Return the fields that the first column of a format's table names."""
    found = re.search(rf"^## {form}$(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)
    assert found is not None, form
    rows = re.findall(r"^\| (`.*?) \|", found[1], re.M)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


@pytest.fixture
def places(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Log dirs of all kinds, and a daemon in trouble at the place where commands look for one."""
    names = ("logs", "torn", "before", "after", "state")
    found = {name: tmp_path / name for name in names} | {"kept": tmp_path / "kept"}
    for name in ("logs", "torn", "before"):
        found[name].mkdir()
        write_log_dir(found[name], keyed_log())
    write_ours(tmp_path / "ours")
    write_brokers(tmp_path / "brokers")
    found |= {name: tmp_path / name for name in ("ours", "brokers")}
    (found["torn"] / CLEAN_SHUTDOWN).unlink()
    shutil.copytree(found["before"], found["after"])
    assert main(["clean", str(found["after"]), "topic-0", "--keep-old", str(found["kept"]), *COMPACT]) == 0
    # `undo` and `verify` have each what they need of the one round: verify comes before undo in the parser's order.
    found["state"].mkdir(mode=0o750)
    monkeypatch.setenv("CLEANER_STATE_DIR", str(found["state"]))
    monkeypatch.delenv("CLEANER_CONTROL_SOCKET", raising=False)
    journal = Journal(
        FileSystem(), found["state"], SystemClock(), max_file_bytes=1 << 20, kept_files=2, fsync_every_ms=0
    )
    journal.append("round", "topic-0", {"bytes_read": 5})
    journal.append("pause", None, {"uid": 0})
    journal.sync()
    capsys.readouterr()
    steering = FakeSteering(sample_daemons.with_problems())

    def never(error: Exception) -> None:
        raise error

    with ControlServer(FileSystem(), found["state"] / "control.sock", steering, ManualClock(), never):
        yield found


def test_every_command_prints_objects_that_say_what_they_are(places: dict[str, Path], capsys: Capture) -> None:
    """Each has `format` and `format_version` first; formats and fields are those of the document, all of them."""
    seen: dict[str, set[str]] = {}
    for name, lines in lines_of(places).items():
        if name in RECORDS:
            continue
        for line in lines:
            code = main([*line, "--format", "json"])
            said = capsys.readouterr()
            printed = [json.loads(text) for text in said.out.splitlines()]
            assert printed, f"{line} ends with {code} and says {said.err}"
            for value in printed:
                assert list(value)[:2] == ["format", "format_version"], line
                assert value["format_version"] == 1
                assert isinstance(value.get("partition", ""), str | None), value
                assert f"`{value['format']}`" in DOCUMENT
                if value.keys() != REFUSED:
                    seen.setdefault(value["format"], set()).update(value)
    elsewhere = {"cleaner-check", "cleaner-verify", "cleaner-dump"}  # with documents of their own
    for form, fields in seen.items():
        if form not in elsewhere and f"## {form}\n" in DOCUMENT:
            assert fields - {"format", "format_version"} == documented(form), form
    assert {"cleaner-job", "cleaner-quarantine", "cleaner-history", "cleaner-topic", "cleaner-explain"} <= seen.keys()


def test_fields_of_a_refused_partition_are_three(places: dict[str, Path], capsys: Capture) -> None:
    """Of whatever command."""
    assert main(["clean", str(places["logs"]), "topic-0", "--format", "json"]) != 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told.keys() == REFUSED


@pytest.mark.parametrize("name", ["topic_partition", "topicPartition"])
def test_partition_has_one_name_in_every_format(places: dict[str, Path], capsys: Capture, name: str) -> None:
    """Except the first name of entries of `quarantine` in the snapshot, next to their present one."""
    main(["quarantine", "--format", "json"])
    assert name not in capsys.readouterr().out
    main(["status", "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert all(entry["partition"] == entry["topic_partition"] for entry in told["quarantine"])
