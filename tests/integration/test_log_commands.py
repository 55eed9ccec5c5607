"""`cleaner topics`, `produce` and `consume`, as processes of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cleaner_run import wait_until
from tests.forked import cleaner_command

CLEANER = str(Path(sys.executable).parent / "cleaner")
KEYED = ("--property", "parse.key=true", "--property", "key.separator=:")
SHOWN = ("--from-beginning", "--property", "print.key=true", "--property", "key.separator=:")


def run(*arguments: object, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command; its exit code must be the expected one."""
    done = cleaner_command([str(argument) for argument in arguments], stdin)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def create(log_dir: Path, topic: str = "prices", *settings: str, partitions: int = 1) -> None:
    """Create a topic."""
    given = [word for setting in settings for word in ("--config", setting)]
    run("topics", "create", "--log-dir", log_dir, "--topic", topic, "--partitions", partitions, *given)


def produce(log_dir: Path, lines: Sequence[str], *options: object, status: int = 0) -> str:
    """Append lines; returns the output."""
    text = "".join(f"{line}\n" for line in lines)
    return run("produce", "--log-dir", log_dir, "--topic", "prices", *options, stdin=text, status=status).stderr


def consume(log_dir: Path, *options: object) -> list[str]:
    """Read lines."""
    return run("consume", "--log-dir", log_dir, "--topic", "prices", *options).stdout.splitlines()


# ---- topics --------------------------------------------------------------------------------------------------------


def test_topic_goes_through_its_life(tmp_path: Path) -> None:
    """Created with settings, altered, grown, deleted; a broker's flags are noted and left alone."""
    log_dir = tmp_path / "logs"
    wanted = "IvGBsEpRQHy0e2ZFbihfbw"
    made = run(
        *("topics", "--create", "--log-dir", log_dir, "--topic", "prices", "--topic-id", wanted),
        *("--config", "cleanup.policy=compact,delete", "--config", "segment.ms=100"),
        *("--bootstrap-server", "localhost:9092", "--replication-factor", "1"),
    )
    assert made.stdout == "Created topic prices.\n"
    assert made.stderr.count("\n") == 1
    assert "--bootstrap-server, --replication-factor" in made.stderr

    alter = ("topics", "alter", "--log-dir", log_dir, "--topic", "prices")
    run(*alter, "--partitions", 3, "--add-config", "retention.ms=5,cleanup.policy=[compact]")
    run(*alter, "--delete-config", "segment.ms")
    described = run("topics", "describe", "--log-dir", log_dir, "--topic", "pri.*", "--format", "json")
    assert json.loads(described.stdout) == {
        "format": "cleaner-topic",
        "format_version": 1,
        "topic": "prices",
        "topic_id": wanted,
        "partitions": [0, 1, 2],
        "settings": {"cleanup.policy": "compact", "retention.ms": "5"},
    }
    shown = run("topics", "describe", "--log-dir", log_dir).stdout.splitlines()
    assert shown[0].split("\t")[1:4] == [f"TopicId: {wanted}", "PartitionCount: 3", "ReplicationFactor: 1"]
    assert len(shown) == 4

    run("topics", "delete", "--log-dir", log_dir, "--topic", "prices")
    assert run("topics", "list", "--log-dir", log_dir).stdout == ""
    assert [path.name for path in log_dir.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("line", "status", "word"),
    [
        pytest.param(["create", "--topic", "prices"], 1, "there already", id="create-one-that-is-there"),
        pytest.param(["create", "--topic", "a b"], 1, "letters and digits", id="create-bad-name"),
        pytest.param(
            ["create", "--topic", "b", "--config", "clean.policy=x"], 78, "clean.policy", id="unknown-setting"
        ),
        pytest.param(["create", "--topic", "b", "--config", "segment.ms=x"], 78, "segment.ms", id="bad-value"),
        pytest.param(["create", "--topic", "b", "--topic-id", "x"], 2, "topic-id", id="bad-id"),
        pytest.param(["create", "--partitions", "2"], 2, "--topic", id="no-topic"),
        pytest.param(["create", "--alter", "--topic", "b"], 2, "one action", id="two-actions"),
        pytest.param(["--topic", "b"], 2, "one action", id="no-action"),
        pytest.param(["list", "--partitions", "2"], 2, "--partitions cannot be used with list", id="flag-of-another"),
        pytest.param(["alter", "--topic", "prices", "--partitions", "1"], 1, "only become more", id="fewer-partitions"),
        pytest.param(["alter", "--topic", "prices"], 2, "needs", id="alter-nothing"),
        pytest.param(["alter", "--topic", "b", "--partitions", "4"], 1, "no such topic", id="alter-unknown"),
        pytest.param(["delete", "--topic", "b"], 1, "no such topic", id="delete-unknown"),
        pytest.param(["describe", "--topic", "b"], 1, "no such topic", id="describe-unknown"),
        pytest.param(["describe", "--topic", "b("], 2, "regular expression", id="describe-bad-pattern"),
        pytest.param(["create", "--topic", "prices", "--if-not-exists"], 0, "", id="create-if-not-exists"),
        pytest.param(["delete", "--topic", "b", "--if-exists"], 0, "", id="delete-if-exists"),
        pytest.param(["alter", "--topic", "b", "--partitions", "4", "--if-exists"], 0, "", id="alter-if-exists"),
        pytest.param(["describe", "--topic", "b", "--if-exists"], 0, "", id="describe-if-exists"),
    ],
)
def test_topic_command_that_cannot_be_is_refused(tmp_path: Path, line: list[str], status: int, word: str) -> None:
    """One line names the error, maybe a second one the next step; the existing topic stays unchanged."""
    create(tmp_path / "logs")
    done = run("topics", *line, "--log-dir", tmp_path / "logs", status=status)
    assert word in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("  next: ")]
    assert len(said) == (1 if word else 0)
    assert run("topics", "list", "--log-dir", tmp_path / "logs").stdout == "prices\n"


# ---- produce and consume -------------------------------------------------------------------------------------------


def test_what_is_produced_is_consumed(tmp_path: Path) -> None:
    """In order, with keys, tombstones and headers."""
    create(tmp_path)
    produce(tmp_path, ["a:1\tp3:10", "NULL\tp5:NULL"], *KEYED, *_HEADERS)
    shown = ("--property", "print.headers=true", "--property", "print.offset=true")
    assert consume(tmp_path, *SHOWN, *shown) == ["Offset:0:a:1:p3:10", "Offset:1:NO_HEADERS:p5:null"]


_HEADERS = ("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL")


def test_json_goes_from_topic_to_topic(tmp_path: Path) -> None:
    """Each command reads what the other prints: bytes, headers, times; with any number of partitions."""
    for name in ("a", "b"):
        run("topics", "create", "--log-dir", tmp_path, "--topic", name, "--partitions", 3)
    rows = [
        {"key": f"k{number}", "value": {"base64": "/w=="}, "headers": [["h", None]], "timestamp": 1000 + number}
        for number in range(50)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    run("produce", "--log-dir", tmp_path, "--topic", "a", "--format", "json", stdin=text)
    read = ("consume", "--log-dir", tmp_path, "--from-beginning", "--format", "json", "--topic")
    first = run(*read, "a").stdout
    run("produce", "--log-dir", tmp_path, "--topic", "b", "--format", "json", stdin=first)
    second = [json.loads(line) | {"topic": "a"} for line in run(*read, "b").stdout.splitlines()]
    assert second == [json.loads(line) for line in first.splitlines()]
    assert sorted(row["timestamp"] for row in second) == [row["timestamp"] for row in rows]
    assert {row["partition"] for row in second} == {0, 1, 2}


def test_reading_begins_and_ends_where_asked(tmp_path: Path) -> None:
    """From an offset, a number of records, one partition, or from the end, with a note about that."""
    create(tmp_path, partitions=2)
    produce(tmp_path, [f"k:{number}" for number in range(10)], *KEYED, "--partition", 1)
    assert consume(tmp_path, "--partition", 1, "--offset", 4, "--max-messages", 3) == ["4", "5", "6"]
    assert consume(tmp_path, "--partition", 0, "--from-beginning") == []
    assert len(consume(tmp_path, "--offset", "earliest")) == 10
    done = run("consume", "--log-dir", tmp_path, "--topic", "prices")
    assert done.stdout == ""
    assert "--from-beginning" in done.stderr


def test_transactions_are_committed_or_aborted(tmp_path: Path) -> None:
    """Readers of committed records see those that are; others see all."""
    create(tmp_path)
    ids = ("--transactional-id", "loader")
    produce(tmp_path, ["k:1", "k:2", "k:3"], *KEYED, *ids, "--transaction-records", 2)
    produce(tmp_path, ["k:4", "k:5"], *KEYED, *ids, "--abort")
    produce(tmp_path, ["k:6", "oops", "k:7"], *KEYED, *ids, status=1)
    produce(tmp_path, ["k:8"], *KEYED, *ids)
    committed = consume(tmp_path, "--from-beginning", "--isolation-level", "read_committed")
    assert committed == ["1", "2", "3", "8"]
    assert consume(tmp_path, "--from-beginning") == ["1", "2", "3", "4", "5", "6", "8"]


@pytest.mark.parametrize(
    ("lines", "options", "status", "word"),
    [
        pytest.param(["k:1", "oops"], KEYED, 1, "line 2: no key separator", id="no-separator"),
        pytest.param(["1", "2"], (), 1, "lines 1 to 2", id="no-key"),
        pytest.param(["1"], ("--format", "json", *KEYED), 2, "--property is for lines", id="property-of-lines"),
        pytest.param(["k:1"], (*KEYED, "--partition", "4"), 1, "line 1: there is no partition 4", id="no-partition"),
        pytest.param(["k:1"], (*KEYED, "--abort"), 2, "--transactional-id", id="abort-of-nothing"),
        pytest.param([], ("--file", "nowhere"), 1, "nowhere: No such file", id="no-file"),
        pytest.param([], ("--line-reader", "com.example.Reader"), 2, "com.example.Reader", id="own-reader"),
        pytest.param([], ("--rate", "0"), 2, "rate", id="no-rate"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, lines: list[str], options: list[str], status: int, word: str) -> None:
    """In one line with its place; the log dir is closed in order all the same."""
    create(tmp_path, "prices", "cleanup.policy=compact")
    assert word in produce(tmp_path, lines, *options, status=status)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("options", "status", "word"),
    [
        pytest.param(("--partition", "7"), 2, "no partition 7", id="no-partition"),
        pytest.param(("--offset", "7"), 1, "7", id="offset-out-of-range"),
        pytest.param(("--offset", "-1"), 2, "offset", id="negative-offset"),
        pytest.param(("--offset", "0", "--from-beginning"), 2, "not allowed with", id="two-beginnings"),
        pytest.param(("--timeout-ms", "5"), 2, "--follow", id="timeout-without-follow"),
        pytest.param(("--formatter", "com.example.Formatter"), 2, "com.example.Formatter", id="own-formatter"),
        pytest.param(("--value-deserializer", "PriceDeserializer"), 2, "PriceDeserializer", id="own-deserializer"),
    ],
)
def test_bad_question_is_refused(tmp_path: Path, options: list[str], status: int, word: str) -> None:
    """With what is wrong with it."""
    create(tmp_path)
    done = run("consume", "--log-dir", tmp_path, "--topic", "prices", *options, status=status)
    assert word in done.stderr


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_missing_topic_is_not_created(tmp_path: Path, command: str) -> None:
    """For example after a typing error."""
    create(tmp_path)
    assert "'price'" in run(command, "--log-dir", tmp_path, "--topic", "price", status=1).stderr
    assert "nowhere" in run(command, "--log-dir", tmp_path / "nowhere", "--topic", "price", status=2).stderr


def test_second_writer_is_refused_and_a_reader_follows(tmp_path: Path) -> None:
    """There is one writer at a time; followers see its records at once, and end in order."""
    create(tmp_path)
    log_dir = ("--log-dir", str(tmp_path), "--topic", "prices")
    printed = tmp_path.parent / "printed"
    with printed.open("wb") as out:
        following = subprocess.Popen([CLEANER, "consume", *log_dir, "--from-beginning", "--follow"], stdout=out)
    writing = subprocess.Popen([CLEANER, "produce", *log_dir], stdin=subprocess.PIPE)
    assert writing.stdin is not None
    try:
        for text in (b"a\n", b"a\nb\n"):
            writing.stdin.write(text[-2:])
            writing.stdin.flush()
            wait_until(lambda text=text: printed.read_bytes() == text, "the record is printed")  # type: ignore[misc]
        refused = run("topics", "create", *log_dir[:2], "--topic", "other", status=75)
        assert str(tmp_path) in refused.stderr
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0
        writing.stdin.close()
        assert writing.wait(60) == 0
    finally:
        following.kill()
        writing.kill()
        following.wait()
        writing.wait()


def test_what_was_read_before_a_stop_is_written(tmp_path: Path) -> None:
    """SIGTERM ends it in order, with the count; a transaction is aborted."""
    create(tmp_path)
    command = [CLEANER, "produce", "--log-dir", str(tmp_path), "--topic", "prices"]
    writing = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writing.stdin is not None
    writing.stdin.write(b"a\nb\n")
    writing.stdin.flush()
    log = tmp_path / "prices-0" / f"{0:020}.log"
    wait_until(lambda: log.stat().st_size > 0, "the records are appended")
    writing.send_signal(signal.SIGTERM)
    _, said = writing.communicate(timeout=60)
    assert (writing.returncode, b"2 records" in said) == (1, True), said
    assert consume(tmp_path, "--from-beginning") == ["a", "b"]


def test_who_types_is_prompted_and_may_make_mistakes(tmp_path: Path) -> None:
    """A prompt for each line; a line that is no record is reported, and the next one counts."""
    create(tmp_path)
    master, terminal = pty.openpty()
    command = [CLEANER, "produce", "--log-dir", str(tmp_path), "--topic", "prices", *KEYED]
    typing = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(terminal)
    try:
        os.write(master, b"p3:10\noops\np5:7\n\x04")
        out, said = typing.communicate(timeout=60)
    finally:
        os.close(master)
    assert (typing.returncode, out) == (0, b">>>>")
    assert said == b"cleaner: line 2: no key separator ':' in 'oops'\n"
    assert consume(tmp_path, *SHOWN) == ["p3:10", "p5:7"]
