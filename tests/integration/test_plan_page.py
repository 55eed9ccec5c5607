"""docs/plan.md: every command of it does what it says."""

from __future__ import annotations

from pathlib import Path

from tools.tutorial import Shell, matches, steps

DOCUMENT = Path(__file__).parents[2] / "docs" / "plan.md"


def test_each_command_of_the_page_answers_as_it_says(tmp_path: Path) -> None:
    """In one shell, from the first to the last."""
    found = list(steps(DOCUMENT.read_text()))
    assert len(found) == 6
    with Shell(tmp_path) as shell:
        shell.run("cleaner warm")
        for step in found:
            answer = shell.run(step.command)
            assert matches(step.answer, answer), f"line {step.line_number}: {step.command}\n" + "\n".join(answer)
