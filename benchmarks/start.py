"""
How long the commands take on a small log dir, from the start of the process to its end:

    .venv/bin/python -m benchmarks.start [--runs 10]

The commands take turns, so that what else the machine does falls on all of them. The median is held to the bounds; the
minimum is what a command needs, and processor time, which other processes change less, stands beside it. Kernels are
compiled before, in the usual cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir

COMMAND = (sys.executable, "-m", "cleaner")
COMPACT = ("--set", "topic:cleanup.policy=compact")
PARTITIONS = 5
SECONDS = {
    "cleaner --help": Bounds(0.15, at_most=True),
    "cleaner plan": Bounds(0.4, at_most=True),
    "cleaner clean": Bounds(0.9, at_most=True),
}


class Run(NamedTuple):
    """Seconds of one run: by the clock, and of the processor."""

    elapsed: float
    processor: float


def write_small_log_dir(path: Path) -> Path:
    """Write some partitions of three segments with 600 batches of one record each."""
    logs = []
    for partition in range(PARTITIONS):
        log = LogBuilder(TopicPartition("topic", partition))
        for segment in range(3):
            if segment:
                log.roll()
            for number in range(200):
                log.append((f"k{number % 50}", "v" * 100), producer=Producer(5, 0, 200 * segment + number))
        logs.append(log)
    return write_log_dir(path, *logs)


def run(*words: str | Path) -> Run:
    """Run one command to its end."""
    before = os.times()
    began = time.perf_counter()
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    elapsed = time.perf_counter() - began
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(elapsed, processor)


def run_clean(source: Path, scratch: Path) -> Run:
    """Clean one partition of a fresh copy."""
    work = scratch / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work)
    return run("clean", work, "topic-0", *COMPACT)


def measure(runs: int) -> dict[str, list[Run]]:
    """Take turns `runs` times."""
    found: dict[str, list[Run]] = {name: [] for name in SECONDS}
    with tempfile.TemporaryDirectory() as directory:
        source = write_small_log_dir(Path(directory) / "logs")
        run_clean(source, Path(directory))  # compiles the kernels, if need be
        for _ in range(runs):
            found["cleaner --help"].append(run("--help"))
            found["cleaner plan"].append(run("plan", source, *COMPACT))
            found["cleaner clean"].append(run_clean(source, Path(directory)))
    return found


def start_table(runs: int) -> str:
    """Measure and lay out."""
    rows = []
    for name, each in measure(runs).items():
        elapsed = [run.elapsed for run in each]
        processor = f"{min(run.processor for run in each):.2f}"
        rows.append([name, f"{min(elapsed):.2f}", processor, *SECONDS[name].cells(statistics.median(elapsed), " s")])
    return table("Start, on a small log dir", ["command", "least s", "processor s", "median", *HELD_TO], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times the start of the commands.")
    parser.add_argument("--runs", type=int, default=10)
    print(start_table(parser.parse_args().runs))


if __name__ == "__main__":
    main()
