"""What a command loads before it begins: kernels, and numba with them, only if it reads records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.log_dirs import contents, keyed_log
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir

# Runs the command in a fresh process; its last line on standard error lists what it has loaded.
_PROGRAM = """
import sys
from cleaner.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def loaded_by(*words: str | Path, **environment: str) -> set[str]:
    """Run a command; returns the modules it has loaded."""
    command = [sys.executable, "-c", _PROGRAM, *map(str, words)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def transactional_log() -> LogBuilder:
    """A log with an open transaction and, below it, one that was aborted."""
    log = LogBuilder()
    log.append(("a", "1"), producer=Producer(7, 0, 0, True))
    log.end_transaction(7, 0, commit=False)
    log.roll()
    log.append(("b", "1"), producer=Producer(7, 0, 1, True))
    log.append(("c", "1"), codec="gzip")
    return log


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["clean", "--help"], ["plan", "--help"]])
def test_help_loads_nothing_that_takes_time(words: list[str]) -> None:
    """It answers in a tenth of a second."""
    loaded = loaded_by(*words)
    assert "cleaner.cli.main" in loaded
    assert not loaded & {"numba", "llvmlite", "numpy", "structlog", "cleaner.storage.load.loader"}


def test_plan_loads_no_kernels(tmp_path: Path) -> None:
    """Neither for a keyed log nor for transactions, whose producers' snapshots have checksums."""
    write_log_dir(tmp_path, keyed_log("topic-1"), transactional_log())
    before = contents(tmp_path)
    loaded = loaded_by("plan", tmp_path, "--set", "topic:cleanup.policy=compact")
    assert {"cleaner.storage.load.loader", "cleaner.format.headers"} <= loaded
    assert not loaded & {
        "numba",
        "llvmlite",
        "cleaner.format.batch",
        "cleaner.kernels.compile",
        "cleaner.cleaning.offset_map",
    }
    assert contents(tmp_path) == before


def test_plan_reads_the_tail_behind_an_older_snapshot_without_kernels(tmp_path: Path) -> None:
    """R-652: the batches since are replayed, markers included."""
    write_log_dir(tmp_path, transactional_log())
    max((tmp_path / "topic-0").glob("*.snapshot")).unlink()
    loaded = loaded_by("plan", tmp_path, "--set", "topic:cleanup.policy=compact")
    assert "cleaner.format.headers" in loaded
    assert "numba" not in loaded


def test_preview_of_a_clean_loads_no_kernels(tmp_path: Path) -> None:
    """`clean --dry-run` is a plan."""
    write_log_dir(tmp_path, keyed_log())
    loaded = loaded_by("clean", tmp_path, "topic-0", "--dry-run", "--set", "topic:cleanup.policy=compact")
    assert "numba" not in loaded


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "LOG_DIR", "topic-0", "--set", "topic:cleanup.policy=compact"],
        ["topics", "list", "--log-dir", "LOG_DIR"],
        ["topics", "describe", "--log-dir", "LOG_DIR"],
        ["dump", "LOG_DIR/topic-0/00000000000000000000.index", "LOG_DIR/cleaner-offset-checkpoint"],
        ["config", "check"],
        ["config", "show"],
        ["history"],
        ["quarantine"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_command_that_only_looks_loads_no_kernels(tmp_path: Path, words: list[str]) -> None:
    """Importing numba takes longer than all their work."""
    log_dir = write_log_dir(tmp_path / "logs", keyed_log())
    (tmp_path / "state").mkdir(mode=0o700)
    loaded = loaded_by(
        *(word.replace("LOG_DIR", str(log_dir)) for word in words), CLEANER_STATE_DIR=str(tmp_path / "state")
    )
    assert "cleaner.cli.main" in loaded
    assert not loaded & {"numba", "llvmlite"}


def test_daemon_loads_no_kernels_before_it_has_work() -> None:
    """Its looks check small files without them: they are 45 MB and a third of a second."""
    program = "import sys, cleaner.cli.run, cleaner.daemon.service; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "cleaner.daemon.round_task" in loaded
    assert not loaded & {"numba", "llvmlite"}
