"""The section "A way back" of docs/operations.md, every command of it run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from cleaner.testing.log_builder import write_log_dir
from tests.integration.log_dirs import contents, flip_bit, keyed_log
from tests.integration.test_recover_command import unclean

ROOT = Path(__file__).resolve().parents[2]


def commands() -> list[str]:
    """Return the section's commands in order."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("\n## A way back\n")[2].partition("\n## ")[0]
    return re.findall(r"^ {4}(\S.*)$", section, flags=re.MULTILINE)


def test_commands_of_the_section_do_what_it_says(tmp_path: Path) -> None:
    """The cleaned log is proven, the undone one is byte for byte the one from before, and what was cut is kept."""
    places = {name: tmp_path / name for name in ("LOG_DIR", "BEFORE", "KEPT", "TORN_LOG_DIR", "CUTS", "CONFIG")}
    places["LOG_DIR"].mkdir()
    places["TORN_LOG_DIR"].mkdir()
    write_log_dir(places["LOG_DIR"], keyed_log("prices-0"))
    unclean(places["TORN_LOG_DIR"], keyed_log("prices-0"))
    flip_bit(places["TORN_LOG_DIR"] / "prices-0" / "00000000000000000040.log", 200)
    places["CONFIG"].write_text("cleanup.policy=compact\n")
    program = tmp_path / "bin" / "cleaner"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cleaner "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {name: str(path) for name, path in places.items()}
    environment |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    before = contents(places["LOG_DIR"])
    run = []
    for command in commands():
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        run.append(command.split()[1])
        if run[-1] == "clean":
            assert contents(places["LOG_DIR"]) != before
        if run[-1] == "verify":
            assert "prices-0: proven" in done.stdout

    assert run == ["-al", "clean", "verify", "undo", "recover"]
    assert contents(places["LOG_DIR"]) == before
    cut = sorted((places["CUTS"] / "prices-0").iterdir())
    assert [path.name[:20] for path in cut] == ["00000000000000000040", "00000000000000000060"]
