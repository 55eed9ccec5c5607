"""The tutorial: every command of it does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.tutorial import CommandFailed, Shell, matches, steps

DOCUMENT = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_each_command_of_the_tutorial_answers_as_it_says(tmp_path: Path) -> None:
    """In one shell, from the first to the last."""
    found = list(steps(DOCUMENT.read_text()))
    assert len(found) > 15
    with Shell(tmp_path) as shell:
        for step in found:
            answer = shell.run(step.command)
            assert matches(step.answer, answer), f"line {step.line_number}: {step.command}\n" + "\n".join(answer)


def test_steps_are_commands_with_their_answers() -> None:
    """In `console` blocks alone; a backslash goes on."""
    text = "# A\n```console\n$ a \\\n  b\nx\n\ny\n$ c\n```\n$ d\n```\n$ e\n```\n"
    assert [(step.heading, step.line_number, step.command, step.answer) for step in steps(text)] == [
        ("A", 3, "a \\\n  b", ("x", "", "y")),
        ("A", 8, "c", ()),
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
