"""How commands are found in a document, run, and compared with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.tutorial import CommandFailed, Shell, commands, matches, steps


def test_steps_are_commands_with_their_answers() -> None:
    """In `console` blocks alone; a backslash goes on."""
    text = "# A\n```console\n$ a \\\n  b\nx\n\ny\n$ c\n```\n$ d\n```\n$ e\n```\n"
    assert [(step.heading, step.line_number, step.command, step.answer) for step in steps(text)] == [
        ("A", 3, "a \\\n  b", ("x", "", "y")),
        ("A", 8, "c", ()),
    ]


def test_commands_are_found_where_they_stand_indented() -> None:
    """With and without a dollar, over lines, without the words behind them; drawings are none."""
    text = """# A
    cleaner a   what it does
    $ VARIABLE=1 cleaner b  # why
        cleaner answer
    log dir -> b
```
    cleaner drawn
```
## B
    install c \\
        d    # e
    .venv/bin/f
```console
$ g
h
```
"""
    assert [(step.heading, step.line_number, step.command, step.answer) for step in commands(text)] == [
        ("A", 2, "cleaner a", None),
        ("A", 3, "VARIABLE=1 cleaner b  # why", None),
        ("B", 10, "install c \\\n        d    # e", None),
        ("B", 12, ".venv/bin/f", None),
        ("B", 14, "g", ("h",)),
    ]


@pytest.mark.parametrize(
    ("expected", "actual", "is_match"),
    [
        ([], [], True),
        ([], ["a"], False),
        (["a"], [], False),
        (["a...c"], ["abbc"], True),
        (["a...c"], ["ab", "c"], False),
        (["..."], [], True),
        (["...", "b"], ["a", "a", "b"], True),
        (["a.c"], ["abc"], False),
    ],
)
def test_three_dots_stand_for_anything(expected: list[str], actual: list[str], is_match: bool) -> None:
    """Within a line, or for lines."""
    assert matches(expected, actual) == is_match


def test_shell_goes_on_in_its_directory_and_tells_of_failures(tmp_path: Path) -> None:
    """As the shell of a reader does."""
    with Shell(tmp_path) as shell:
        assert shell.run("mkdir a; cd a; x=1") == []
        assert shell.run("echo $x; pwd; echo b >&2") == ["1", str(tmp_path / "a"), "b"]
        assert shell.run("cat; printf c") == ["c"]
        with pytest.raises(CommandFailed, match="status 3"):
            shell.run("(exit 3)")


def test_shell_ends_a_command_that_takes_too_long(tmp_path: Path) -> None:
    """And says how long it waited; the demo waits longer, for the kernels."""
    with Shell(tmp_path, patience_seconds=0.2) as shell, pytest.raises(CommandFailed, match="did not end"):
        shell.run("sleep 60")
