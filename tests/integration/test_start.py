"""What a command loads before it begins: the kernels only where records are read, and numba only to compile them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner.kernels.baseline import baseline_target, numba_is_as_always
from tests.integration.log_dirs import contents, keyed_log
from tests.support.batch_builder import Producer, Record
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


def log_of_all_kinds() -> LogBuilder:
    """A log that keeps every kernel busy: all codecs, transactions, old batches, tombstones, odd headers."""
    log = LogBuilder(index_interval_bytes=0)
    for i in range(40):
        codec = ("none", "gzip", "zstd", "snappy", "lz4")[i % 5]
        log.append(("a", "v"), Record(b"b%d" % i, None, headers=((b"\xff", b"x"),)), codec=codec)
        log.append(("c", "v"), producer=Producer(1, 0, i, True))
        log.end_transaction(1, 0, commit=i % 2 == 0)
        log.append(("c", "v"), ("d", "old"), magic=i % 2, codec=("none", "gzip", "snappy", "lz4")[i % 4])
        if i % 10 == 9:
            log.roll()
    return log


@pytest.fixture(scope="module")
def _warm() -> None:
    """Have all kernels compiled, in the usual place."""
    subprocess.run([sys.executable, "-m", "cleaner", "warm"], check=True, capture_output=True)


@pytest.mark.usefixtures("_warm")
def test_clean_after_warm_loads_no_numba_and_writes_the_same(tmp_path: Path) -> None:
    """What numba has compiled runs without it, on every kind of batch; with it the files are the same to the byte."""
    assert baseline_target() is not None
    assert numba_is_as_always()
    alone = write_log_dir(tmp_path / "alone", log_of_all_kinds())
    by_numba = Path(shutil.copytree(alone, tmp_path / "by-numba"))
    before = contents(alone)
    words = ("topic-0", "--set", "topic:cleanup.policy=compact", "--now", "1700003600000")
    loaded = loaded_by("clean", alone, *words)
    assert {"cleaner.kernels.ready", "cleaner.cleaning.round.round"} <= loaded
    assert not loaded & {"numba", "cleaner.kernels.compile", "cleaner.kernels.retain", "importlib.metadata"}
    # numba's own default, so that it finds its cache; but a wish, with which nothing but numba is trusted
    assert "numba" in loaded_by("clean", by_numba, *words, NUMBA_OPT="3")
    assert contents(alone) == contents(by_numba) != before


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
    assert not loaded & {"numba", "llvmlite", "cleaner.format.batch", "cleaner.kernels.compile", "cleaner.engine"}
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
