"""Batches that unpack to hundreds of megabytes are refused in the memory a cleaner has anyway."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.scenario import Step, steps
from tests.peak_memory import run_measured

BOMBS = [step for step in steps() if "bomb" in step.scenario]
# The command takes about 200 MiB with its kernels loaded; the smallest bomb unpacks to 128 MiB in one buffer, the
# others to 512 and 1024.
MAX_RESIDENT_BYTES = 320 << 20


@pytest.mark.parametrize("step", BOMBS, ids=str)
def test_bomb_is_refused_without_unpacking_it(step: Step, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """The command ends with 1, names the batch and stays small."""
    work = step.prepare(unpacked(step.scenario), tmp_path / "logs")
    config = tmp_path / "settings.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in step.settings.items()))
    command = [sys.executable, "-m", "cleaner", "clean", str(work), step.partition]
    command += ["--config", str(config), "--now", str(step.now_ms)]
    finished = run_measured(command)

    assert finished.status == 1
    assert ".log" in finished.errors
    assert "Traceback" not in finished.errors
    assert finished.peak_bytes < MAX_RESIDENT_BYTES
