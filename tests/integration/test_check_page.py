"""docs/check.md and docs/dump.md: every command of them does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cleaner.check.findings import Kind
from tools.tutorial import Shell, matches, steps

DOCUMENT = Path(__file__).parents[2] / "docs" / "check.md"


@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT.with_name("dump.md")], ids=lambda path: path.name)
def test_each_command_of_a_page_answers_as_it_says(tmp_path: Path, document: Path) -> None:
    """In one shell, from the first to the last."""
    found = list(steps(document.read_text()))
    assert len(found) > 6
    with Shell(tmp_path) as shell:
        shell.run("cleaner warm")
        for step in found:
            answer = shell.run(step.command)
            assert matches(step.answer, answer), f"line {step.line_number}: {step.command}\n" + "\n".join(answer)


def test_page_lists_every_kind_of_finding() -> None:
    """And no other."""
    table = DOCUMENT.read_text().partition("| kind | what |")[2]
    cells = [row.split("|")[1] for row in table.splitlines() if row.count("|") > 2]
    assert {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)} == {kind.value for kind in Kind}
