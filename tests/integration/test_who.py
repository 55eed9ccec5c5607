"""`plan --who`: what it prints of hostile keys, of damage, and that it leaves all as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cleaner
from cleaner import WhoReport
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from tests.integration.log_dirs import NOW, contents, flip_bit
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import LogBuilder, write_log_dir

Capture = pytest.CaptureFixture[str]
COMPACT = ("--set", "cleanup.policy=compact", "--now", str(NOW))
HOSTILE = [b"\x1b[31mred", b"a\nb", b"\xff\xfe\x00", "\u202ekcab".encode(), b"", b"k" * 700]
FIRST = "00000000000000000000.log"


def rows_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def hostile_log() -> LogBuilder:
    log = LogBuilder()
    for key in HOSTILE * 3:
        log.append(Record(key, b"v" * 40))
    log.roll()
    log.append(("last", "v"))
    return log


def test_hostile_keys_do_not_reach_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    """Neither as a table nor as JSON; every line of the table fits 120 columns."""
    write_log_dir(tmp_path, hostile_log())
    assert main(["plan", str(tmp_path), "--who", *COMPACT]) == 0
    text = capsys.readouterr().out
    assert all(line.isprintable() and len(line) <= 120 for line in text.splitlines())
    assert "\\x1b[31mred" in text
    assert main(["plan", str(tmp_path), "--who", "--format", "json", *COMPACT]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    names = {row["name"] for row in rows_of(text) if row["by"] == "key"}
    assert {"\x1b[31mred", "a\nb", "\\xff\\xfe\x00", "\u202ekcab", "", "k" * 512, "last"} == names


def test_damage_is_named_and_left_out_and_nothing_is_written(tmp_path: Path, capsys: Capture) -> None:
    """The rest is counted, other partitions too, and the bytes still add up."""
    log = LogBuilder(index_interval_bytes=1)
    for number in range(3000):
        log.append((f"k{number % 50}", "v" * 50))
    log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log, LogBuilder(TopicPartition("other", 0)))
    path = tmp_path / "topic-0" / FIRST
    flip_bit(path, path.stat().st_size // 2)
    before = contents(tmp_path)
    assert main(["plan", str(tmp_path), "--who", *COMPACT]) == 1
    text = capsys.readouterr().out
    assert FIRST in text
    assert "at byte" in text
    assert contents(tmp_path) == before
    report = next(each for each in cleaner.who(tmp_path) if isinstance(each, WhoReport) and each.topic == "topic")
    (damage,) = report.damage
    assert damage.path == str(path)
    row = report.rows[0]
    assert row.bytes == report.bytes == sum(each.stat().st_size for each in path.parent.glob("*.log"))
    assert 0 < row.unreadable_bytes < 40_000


def test_partition_that_cannot_be_loaded_does_not_stop_others(tmp_path: Path, capsys: Capture) -> None:
    """It is refused by name, with exit status 1."""
    write_log_dir(tmp_path, hostile_log(), LogBuilder(TopicPartition("other", 0)))
    (tmp_path / "other-0" / "partition.metadata").write_text("nonsense")
    assert main(["plan", str(tmp_path), "--who", *COMPACT]) == 1
    out, err = capsys.readouterr()
    assert "topic-0" in out
    assert "other-0" in err


def test_options_that_do_not_go_together_are_refused(tmp_path: Path, capsys: Capture) -> None:
    """With the reason."""
    write_log_dir(tmp_path, hostile_log())
    assert main(["plan", str(tmp_path), "--who", "--estimate"]) == 2
    assert main(["plan", str(tmp_path), "--top", "3"]) == 2
    assert "--top is for --who" in capsys.readouterr().err


def test_named_partitions_only(tmp_path: Path, capsys: Capture) -> None:
    """Of `plan` with and without `--who`."""
    write_log_dir(tmp_path, hostile_log(), LogBuilder(TopicPartition("other", 0)))
    for more in ([], ["--who"]):
        assert main(["plan", str(tmp_path), "other-0", "--format", "json", *more]) == 0
        assert {row.get("topic", "other") for row in rows_of(capsys.readouterr().out)} == {"other"}


def test_what_a_round_removes_is_what_was_dead(tmp_path: Path) -> None:
    """Superseded and aborted bytes of batches of one record: exactly what `clean` frees."""
    log = LogBuilder()
    for number in range(300):
        log.append((f"k{number % 20}", "v" * (number % 7)), producer=Producer(5, 0, number))
    for number in range(5):
        log.append(("x", "gone"), producer=Producer(7, 0, number, True))
    log.end_transaction(7, 0, commit=False)
    log.append(("y", "stays"))
    log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log)
    (report,) = cleaner.who(tmp_path, settings={"cleanup.policy": "compact"}, now_ms=NOW)
    assert isinstance(report, WhoReport)
    row = report.rows[0]
    done = cleaner.clean(tmp_path, "topic-0", {"cleanup.policy": "compact"}, now_ms=NOW)
    # Of producer 7 an empty batch may stay, for its sequence number.
    assert row.superseded_bytes + row.aborted_bytes - 61 <= done.bytes_read - done.bytes_written
    assert done.bytes_read - done.bytes_written <= row.superseded_bytes + row.aborted_bytes
    assert (row.aborted_bytes, row.waiting_bytes) > (0, 0)
