"""A sample of the fuzzer's cases, the same ones each time; `make fuzz` runs many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = 6


@pytest.mark.parametrize("seed", [1, 1_000_000])
def test_hostile_files_are_an_answer_and_no_more(seed: int) -> None:
    """In a process of its own, so that a crash or a hang is told of, too."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--cases", str(CASES)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases, 0 bad" in done.stderr
