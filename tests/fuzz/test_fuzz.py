"""A sample of the fuzzer's cases, the same ones each time; `make fuzz` runs many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = 6


@pytest.mark.parametrize("seed", [1, 1_000_000])
def test_hostile_files_never_crash_a_step(seed: int) -> None:
    """In its own process, so that a crash or a hang is reported too."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--cases", str(CASES)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases, 0 bad" in done.stderr
