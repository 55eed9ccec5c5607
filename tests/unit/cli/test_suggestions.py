"""What was mistyped is reported with what was probably meant: options, commands, values, partitions and topics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.cli.history import KINDS
from cleaner.cli.main import main, make_parser
from cleaner.cli.parser import Parser
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    write_log_dir(tmp_path / "logs", keyed_log("orders-0"), keyed_log("payments.eu-3"))
    return tmp_path / "logs"


def said(capsys: Capture, *words: str | Path) -> tuple[int, str]:
    """Run a command line; returns its exit code and what it said of it, folded or not."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, " ".join(capsys.readouterr().err.split())


def _all_parsers(parser: Parser, *name: str) -> Iterator[tuple[tuple[str, ...], Parser]]:
    for word, below in parser.commands().items():
        yield (*name, word), below
        yield from _all_parsers(below, *name, word)


PARSERS = dict(_all_parsers(make_parser()))


@pytest.mark.parametrize("command", PARSERS, ids=" ".join)
def test_slip_in_an_option_of_any_command_names_the_option(command: tuple[str, ...], capsys: Capture) -> None:
    """Also where other arguments are missing, which argparse finds first."""
    own = [option for option in PARSERS[command].options() if re.fullmatch(r"--[a-z-]{5,}", option)]
    for option in own:
        slip = option[:4] + option[5:] + "x"
        code, err = said(capsys, *command, slip)
        assert code == 2
        assert f"there is no {slip}: did you mean --" in err, (slip, err)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["claen", "/d"], "did you mean clean?"),
        (["config", "shwo"], "did you mean show?"),
        (["topics", "creat"], "did you mean create?"),
        (["history", "--kind", "rounds"], "did you mean round?"),
        (["history", "--kind", "Puase"], "did you mean pause?"),
        (["status", "--probe", "raedy"], "did you mean ready?"),
        (["plan", "/d", "--format", "jsno"], "did you mean json?"),
        (["status", "--watchdog-of-everything"], "there is no --watchdog-of-everything"),
        (["clean", "/d", "orders"], "such as orders-0"),
    ],
)
def test_slip_in_a_word_of_a_command_line_names_what_was_meant(
    words: list[str], meant: str, tmp_path: Path, capsys: Capture
) -> None:
    """Commands, actions, kinds, formats, and a topic where a partition is wanted."""
    code, err = said(capsys, *[str(tmp_path) if word == "/d" else word for word in words])
    assert code == 2
    assert meant in err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["clean", "LOG_DIR", "ordres-0"], "did you mean orders-0?"),
        (["clean", "LOG_DIR", "payments-3", "--dry-run"], "did you mean payments.eu-3?"),
        (["recover", "LOG_DIR", "orders-1"], "did you mean orders-0?"),
        (["explain", "LOG_DIR", "order-0"], "did you mean orders-0?"),
        (["gaps", "LOG_DIR", "order-0"], "did you mean orders-0?"),
        (["export", "LOG_DIR", "order", "--to", "x"], "did you mean orders?"),
        (["verify", "LOG_DIR", "LOG_DIR", "order-0"], "did you mean orders-0?"),
        (["topics", "describe", "--log-dir", "LOG_DIR", "--topic", "order"], "did you mean orders?"),
        (["consume", "--log-dir", "LOG_DIR", "--topic", "Orders"], "did you mean orders?"),
        (["produce", "--log-dir", "LOG_DIR", "--topic", "payments-eu"], "did you mean payments.eu?"),
    ],
)
def test_typo_in_a_name_on_disk_suggests_an_existing_one(
    words: list[str], meant: str, log_dir: Path, capsys: Capture
) -> None:
    """Partitions and topics of the log dir that was given."""
    code, err = said(capsys, *[log_dir if word == "LOG_DIR" else word for word in words])
    assert code != 0
    assert meant in err


def test_kinds_are_those_that_are_written() -> None:
    """What the daemon enters in its journal, found in its sources: a kind that is added is one to ask for."""
    root = Path(cleaner.__file__).parent
    written = {
        call.args[0].value
        for path in root.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and (call.func.attr == "note_command" or ast.unparse(call.func).endswith("journal.append"))
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert written == set(KINDS)


def test_path_that_is_nothing_is_refused(capsys: Capture) -> None:
    """`cleaner clean "$LOG_DIR"` without the variable would be the current directory."""
    for line in (["clean", "", "--all"], ["recover", ""], ["doctor", ""], ["run", "--config", ""], ["undo", ""]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 2
        assert "a path is empty" in capsys.readouterr().err
