"""The journal, read back by command."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest

from cleaner.cli.history import parse_moment
from cleaner.cli.main import main
from cleaner.state.journal import Journal
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import START_MS, ManualClock

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state directory with a journal of four entries, an hour apart."""
    clock = ManualClock()
    journal = Journal(FileSystem(), tmp_path, clock)
    journal.append(
        "round",
        "orders-0",
        {"result": "done", "bytes_read": 5 << 20, "map_bytes_read": 3 << 19, "removed": {"superseded": 7}},
    )
    clock.move_on(3600)
    journal.append("pause", "orders", {"uid": 1001, "bytes_per_second": 5242880.0})
    clock.move_on(3600)
    journal.append("round", "prices-3", {"result": "retry", "detail": "evil\x1b[2J\n"})
    clock.move_on(3600)
    journal.append("reload", None, {"uid": 0})
    return tmp_path


def kinds(state: Path, capsys: Capture, *options: str) -> list[str]:
    """Return the kinds of the entries that options choose."""
    assert main(["history", "--state-dir", str(state), "--format", "json", *options]) == 0
    return [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], ["round", "pause", "round", "reload"]),
        (["--last", "2"], ["round", "reload"]),
        (["--last", "all", "--kind", "pause", "--kind", "reload"], ["pause", "reload"]),
        (["--partition", "orders"], ["round", "pause"]),
        (["--partition", "orders-0"], ["round"]),
        (["--partition", "nothing"], []),
        (["--since", "2023-11-14T23:00:00+00:00"], ["pause", "round", "reload"]),
        (["--since", "1h"], []),
        (["--last", "0"], []),
    ],
)
def test_history_is_chosen_and_the_newest_comes_last(
    state: Path, options: list[str], chosen: list[str], capsys: Capture
) -> None:
    """As a terminal is read."""
    assert kinds(state, capsys, *options) == chosen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--partition", "prics"], "the journal has nothing of prics; did you mean prices?"),
        (["--partition", "order-0"], "the journal has nothing of order-0; did you mean orders-0?"),
        (["--partition", "orders", "--kind", "release"], "no entry of the journal matches"),
        (["--since", "1h"], "no entry of the journal matches"),
        (["--last", "0"], ""),
        ([], ""),
    ],
)
def test_history_of_nothing_says_why(state: Path, options: list[str], said: str, capsys: Capture) -> None:
    """A slip in a name is not a partition that nothing was done to."""
    assert main(["history", "--state-dir", str(state), *options]) == 0
    out, err = capsys.readouterr()
    assert err == (f"cleaner: {said}\n" if said else "")
    assert (out == "") is (options != [])


def test_history_of_a_directory_without_a_journal_says_so(tmp_path: Path, capsys: Capture) -> None:
    """A log dir, say."""
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert main(["history", "--state-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert (out, "no journal in it" in err) == ("", True)


def test_history_as_a_table_is_readable_and_harmless(state: Path, capsys: Capture) -> None:
    """Bytes in units, nested numbers by name, terminal codes made visible."""
    assert main(["history", "--state-dir", str(state)]) == 0
    out = capsys.readouterr().out
    assert "bytes_read=5.0 MiB  map_bytes_read=1.5 MiB  removed={superseded=7}" in out
    assert "pause   orders    uid=1001  bytes_per_second=5.0 MiB" in out
    assert "evil\\x1b[2J\\n" in out
    assert "\x1b" not in out


def test_history_of_no_daemon_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    """A slip in the path is not an empty journal."""
    assert main(["history", "--state-dir", str(tmp_path / "gone")]) == 1
    assert "gone: No such file" in capsys.readouterr().err


def test_damaged_lines_are_counted(state: Path, capsys: Capture) -> None:
    """And passed over."""
    with next(state.glob("journal*")).open("a") as file:
        file.write("half a li\n")
    assert len(kinds(state, capsys)) == 4
    main(["history", "--state-dir", str(state)])
    assert "1 lines of the journal are damaged" in capsys.readouterr().err


def test_moments_are_ages_and_dates() -> None:
    """An age counts from now, a date without an offset is local."""
    assert abs(parse_moment("2h") - (time.time() - 7200) * 1000) < 5000
    assert parse_moment("2023-11-14T22:13:20+00:00") == START_MS
    assert parse_moment("2023-11-14") == round(time.mktime((2023, 11, 14, 0, 0, 0, 0, 0, -1)) * 1000)


@pytest.mark.parametrize("text", ["", "2 h", "-5m", "yesterday", "5y", "٣h", "99999999999h", "2023-13-01"])
def test_moments_that_are_none_are_refused(text: str) -> None:
    """Not taken for all of time."""
    with pytest.raises(argparse.ArgumentTypeError):
        parse_moment(text)
