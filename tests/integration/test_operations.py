"""The five incidents of docs/operations.md: every command, in order, answers as the page says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools.tutorial import Shell, matches, steps

ROOT = Path(__file__).parents[2]


@pytest.mark.root
def test_each_command_of_the_incidents_answers_as_it_says(tmp_path: Path) -> None:
    """In one shell, on the directories that `tools.incidents` lays out; its small disk goes with the shell."""
    if os.geteuid() != 0:
        pytest.skip("the full disk is mounted, which takes root")
    found = list(steps((ROOT / "docs" / "operations.md").read_text()))
    assert len({step.heading for step in found}) == 5
    with Shell(tmp_path, inside=["unshare", "--mount"]) as shell:
        shell.run(f"PYTHONPATH={ROOT} {sys.executable} -m tools.incidents .")
        for step in found:
            answer = shell.run(step.command)
            assert matches(step.answer, answer), f"line {step.line_number}: {step.command}\n" + "\n".join(answer)
