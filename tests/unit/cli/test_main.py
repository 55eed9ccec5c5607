"""The command line: how it is read, and what it answers to what it does not understand."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner.cli import arguments
from cleaner.cli.fitting import table
from cleaner.cli.main import _COMMANDS as COMMANDS
from cleaner.cli.main import main, make_parser
from cleaner.cli.output import print_error


@pytest.mark.parametrize(
    ("line", "word"),
    [
        pytest.param(["clean"], "LOG_DIR", id="no-log-dir"),
        pytest.param(["scrub", "x"], "scrub", id="unknown-command"),
        pytest.param(["clean", "x", "--al"], "--al", id="abbreviated-option"),
        pytest.param(["recover", "x", "--who"], "--who", id="option-of-another-command"),
        pytest.param(["clean", "x", "--all", "--rounds", "0"], "at least one", id="no-rounds"),
        pytest.param(["clean", "x", "--all", "--now", "yesterday"], "yesterday", id="now-in-words"),
        pytest.param(["clean", "x", "--all", "--high-watermark", "-1"], "high-watermark", id="negative-offset"),
        pytest.param(["clean", "x", "--all", "--max-seconds", "nan"], "nan", id="seconds-not-a-number"),
    ],
)
def test_bad_command_line_ends_with_2(line: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With one message that names what was not understood."""
    with pytest.raises(SystemExit) as raised:
        main(line)
    assert raised.value.code == 2
    assert word in capsys.readouterr().err


def test_partitions_may_stand_behind_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`clean DIR --now 5 topic-0`: argparse alone would not take the name."""
    assert main(["clean", str(tmp_path / "nowhere"), "--now", "5", "topic-0"]) == 2
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "threads"), [(None, "1"), ("3", "3")])
def test_process_starts_no_threads_for_matrices(asked: str | None, threads: str) -> None:
    """numpy's library for them would start one a core; who wants them, gets them."""
    program = "import os\nfrom cleaner.cli import main\n"
    program += "main.main = lambda: print(os.environ['OPENBLAS_NUM_THREADS']) or 0\nmain.run()"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if asked is None else {"OPENBLAS_NUM_THREADS": asked}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{threads}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it does, every option explained, examples, exit codes."""
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert raised.value.code == 0
    assert "examples:" in text
    assert "exit status:" in text
    commands = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for action in commands.choices[command]._actions:
        assert action.help, action.option_strings
    whole = re.sub(r"\\\n +", "", text)
    for example in re.findall(rf"^  cleaner {command} (.*?)(?:  .*)?$", whole, re.MULTILINE):
        commands.choices[command].parse_known_args(example.partition("|")[0].split())


@pytest.mark.parametrize(("text", "value"), [("checkpoint", "checkpoint"), ("end", "end"), ("17", 17), ("0", 0)])
def test_high_watermark_is_a_word_or_an_offset(text: str, value: str | int) -> None:
    """`--high-watermark checkpoint|end|N`."""
    assert arguments.parse_high_watermark(text) == value


def test_error_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Names from a hostile directory do not reach the terminal as they are."""
    print_error("a\nb\x1b[2J\u202ec é")
    assert capsys.readouterr().err == "cleaner: a\\nb\\x1b[2J\\u202ec é\n"


def test_table_aligns_words_left_and_numbers_right() -> None:
    """Columns are as wide as their widest cell."""
    assert table(("name", "n"), [("a", "1"), ("bcdef", "1000")]) == "name      n\na         1\nbcdef  1000"


def test_error_of_a_wide_command_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--wide is for `grep` and `less -S`: an error that ends the command is not folded either."""
    monkeypatch.setenv("COLUMNS", "60")
    path = "/nonexistent-directory/with/a/long/path/that/is/very/long"
    assert main(["recover", "--wide", path]) == 2
    assert f"{path}: no such directory\n" in capsys.readouterr().err
