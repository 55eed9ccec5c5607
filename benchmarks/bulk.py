"""
A log with ten times the keys an offset map holds: `cleaner bulk` in one job beside `cleaner clean --rounds all`.

Both are processes of their own, from start to end, Spark's start included. The buffer is for a tenth of the keys, Spark
has 1 GiB of heap and two tasks at a time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.cleaners import NOW_MS, RoundFailed, copy
from benchmarks.inputs import PARTITION, Input, cached, size_bytes
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import Rig

_LOAD_FACTOR = 0.9
_ENTRY_BYTES = 24
_RATIO = Bounds(1.5)

MILLIONS_OF_KEYS = 10
LARGE_MILLIONS_OF_KEYS = 30


class Run(NamedTuple):
    """One process: seconds, rounds, gigabytes read by both passes, bytes and records that are left."""

    seconds: float
    rounds: int
    gigabytes_read: float
    left_bytes: int
    messages_written: int


def _run(words: Sequence[object], log_dir: Path) -> Run:
    command = [sys.executable, "-m", "cleaner", *map(str, words), "--set", "cleanup.policy=compact"]
    began = time.perf_counter()
    done = subprocess.run([*command, "--now", str(NOW_MS), "--format", "json"], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RoundFailed(f"{log_dir}: {done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    if report["rounds_remaining"]:
        raise RoundFailed(f"{log_dir}: {report['note']}")
    read = report["map_bytes_read"] + report["bytes_read"]
    return Run(seconds, report["rounds"], read / 1e9, size_bytes(log_dir), report["messages_written"])


def many_keys(millions: int) -> Input:
    """Return a log of two records a key, on average."""
    shape: dict[str, object] = {"records": millions * 2_000_000, "keys": millions * 1_000_000}
    return Input(f"{2 * millions} M records, {millions} M keys", "W1", Bounds(1, 1), shape)


def engine_run(log_dir: Path, keys: int) -> Run:
    """Clean with a map for so many keys, round after round."""
    buffer_bytes = int(keys / _LOAD_FACTOR) * _ENTRY_BYTES
    buffer = f"log.cleaner.dedupe.buffer.size={buffer_bytes}"
    return _run(["clean", log_dir, PARTITION, "--rounds", "all", "--set", buffer], log_dir)


def bulk_run(log_dir: Path, work_dir: Path) -> Run:
    """Clean with Spark in one round."""
    spark = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    return _run(["bulk", log_dir, PARTITION, *spark, "--work-dir", work_dir], log_dir)


def bulk_table(rig: Rig, scratch: Path, *, large: bool) -> str:
    """Measure both once on each log."""
    sizes = [MILLIONS_OF_KEYS, *([LARGE_MILLIONS_OF_KEYS] if large else [])]
    return "\n\n".join(_table_of(rig, scratch, millions) for millions in sizes)


def _table_of(rig: Rig, scratch: Path, millions: int) -> str:
    log, buffer_keys = many_keys(millions), millions * 100_000
    source = cached(rig, log)
    engine = engine_run(copied := copy(source, scratch / "engine"), buffer_keys)
    shutil.rmtree(copied)
    bulk = bulk_run(copied := copy(source, scratch / "bulk"), scratch / "work")
    shutil.rmtree(copied)
    ratio = engine.seconds / bulk.seconds
    runs = (f"clean, {buffer_keys} keys at a time", engine, [""] * 4), ("bulk", bulk, _RATIO.cells(ratio, ""))
    rows = [
        [
            name,
            str(run.rounds),
            f"{run.seconds:.1f}",
            f"{run.gigabytes_read:.1f}",
            f"{run.left_bytes / 1e9:.2f}",
            *cells,
        ]
        for name, run, cells in runs
    ]
    title = f"{log.title}: {size_bytes(source) / 1e9:.2f} GB"
    return table(title, ["command", "rounds", "seconds", "GB read", "GB left", "ratio", *HELD_TO], rows)
