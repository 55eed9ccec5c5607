"""The sections of docs/operations.md on undoing and on damage, every command of them run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.log_dirs import contents, flip_bit, keyed_log, offsets
from tests.integration.test_recover_command import unclean
from tests.support.log_builder import write_log_dir

ROOT = Path(__file__).resolve().parents[2]


def commands(title: str) -> list[str]:
    """Return a section's commands in order."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^ {4}(\S.*)$", section, flags=re.MULTILINE)


def run_command(command: str, places: dict[str, Path], programs: Path) -> subprocess.CompletedProcess[str]:
    """Run a command by the shell, with the places it names."""
    program = programs / "cleaner"
    if not program.exists():
        programs.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cleaner "$@"\n')
        program.chmod(0o755)
    environment = os.environ | {name: str(path) for name, path in places.items()}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


def test_commands_of_the_section_do_what_it_says(tmp_path: Path) -> None:
    """The cleaned log is proven, the undone one equals the original byte for byte, and the cut bytes are kept."""
    places = {name: tmp_path / name for name in ("LOG_DIR", "BEFORE", "KEPT", "TORN_LOG_DIR", "CUTS", "CONFIG")}
    places["LOG_DIR"].mkdir()
    places["TORN_LOG_DIR"].mkdir()
    write_log_dir(places["LOG_DIR"], keyed_log("prices-0"))
    unclean(places["TORN_LOG_DIR"], keyed_log("prices-0"))
    flip_bit(places["TORN_LOG_DIR"] / "prices-0" / "00000000000000000040.log", 200)
    places["CONFIG"].write_text("cleanup.policy=compact\n")
    before = contents(places["LOG_DIR"])
    run = []
    for command in commands("A way back"):
        done = run_command(command, places, tmp_path / "bin")
        run.append(command.split()[1])
        if run[-1] == "clean":
            assert contents(places["LOG_DIR"]) != before
        if run[-1] == "verify":
            assert "prices-0: proven" in done.stdout

    assert run == ["-al", "clean", "verify", "undo", "recover"]
    assert contents(places["LOG_DIR"]) == before
    cut = sorted((places["CUTS"] / "prices-0").iterdir())
    assert [path.name[:20] for path in cut] == ["00000000000000000040", "00000000000000000060"]


def test_command_after_a_power_cut_believes_no_marker(tmp_path: Path) -> None:
    """The torn end is cut though there is a marker, which is there again."""
    places = {"UNTRUSTED_LOG_DIR": tmp_path / "logs"}
    write_log_dir(places["UNTRUSTED_LOG_DIR"], keyed_log("prices-0"))
    last = max((places["UNTRUSTED_LOG_DIR"] / "prices-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    (command,) = commands("A power cut after a stop that looked clean")
    done = run_command(command, places, tmp_path / "bin")
    assert "the log dir has a clean-shutdown marker" in done.stderr
    assert offsets(places["UNTRUSTED_LOG_DIR"], "recovery-point") == {"prices-0": 79}


def test_command_against_a_damaged_batch_cleans_around_it(tmp_path: Path) -> None:
    """It is reported, and the rest is cleaned."""
    places = {name: tmp_path / name for name in ("DAMAGED_LOG_DIR", "CONFIG")}
    places["DAMAGED_LOG_DIR"].mkdir()
    write_log_dir(places["DAMAGED_LOG_DIR"], keyed_log("prices-0"))
    flip_bit(places["DAMAGED_LOG_DIR"] / "prices-0" / "00000000000000000020.log", 60)
    places["CONFIG"].write_text("cleanup.policy=compact\n")
    (command,) = commands("One damaged batch")
    done = run_command(command, places, tmp_path / "bin")
    assert "offsets 20 to 20 are kept as they are" in done.stderr
    assert "prices-0" in done.stdout
