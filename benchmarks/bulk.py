"""
A log with ten times the keys an offset map holds: `cleaner bulk` in one job beside `cleaner clean --rounds all`.

Both are processes of their own, from start to end, Spark's start included. The buffer is for a million keys, Spark has
1 GiB of heap and two tasks at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.cleaners import NOW_MS, RoundFailed, copy
from benchmarks.inputs import PARTITION, Input, cached, size_bytes
from benchmarks.tables import Bounds, table
from tests.kafka.rig import Rig

BUFFER_KEYS = 1_000_000
_LOAD_FACTOR = 0.9
_ENTRY_BYTES = 24

MANY_KEYS = Input("20 M records, 10 M keys", "W1", Bounds(1, 1), {"records": 20_000_000, "keys": 10_000_000})


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


def engine_run(log_dir: Path) -> Run:
    """Clean with a map for a million keys, round after round."""
    buffer_bytes = int(BUFFER_KEYS / _LOAD_FACTOR) * _ENTRY_BYTES
    buffer = f"log.cleaner.dedupe.buffer.size={buffer_bytes}"
    return _run(["clean", log_dir, PARTITION, "--rounds", "all", "--set", buffer], log_dir)


def bulk_run(log_dir: Path, work_dir: Path) -> Run:
    """Clean with Spark in one round."""
    spark = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    return _run(["bulk", log_dir, PARTITION, *spark, "--work-dir", work_dir], log_dir)


def bulk_table(rig: Rig, scratch: Path) -> str:
    """Measure both once."""
    source = cached(rig, MANY_KEYS)
    engine = engine_run(copy(source, scratch / "engine"))
    bulk = bulk_run(copy(source, scratch / "bulk"), scratch / "work")
    rows = [
        [name, str(run.rounds), f"{run.seconds:.1f}", f"{run.gigabytes_read:.1f}", f"{run.left_bytes / 1e9:.2f}"]
        for name, run in ((f"clean, {BUFFER_KEYS} keys at a time", engine), ("bulk, 1 GiB of heap", bulk))
    ]
    title = f"{MANY_KEYS.title}: {size_bytes(source) / 1e9:.2f} GB"
    return table(title, ["command", "rounds", "seconds", "GB read", "GB left"], rows)
