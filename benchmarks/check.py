"""
`cleaner check` of W1 beside `kafka-dump-log` on the same files: whole processes in turns, the page cache warm.

The dump looks at batch headers and checksums of the `.log` files alone; the check also reads every record and holds
indexes, snapshots and checkpoints against them. The last row is the check itself, without its process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cleaners import copy
from benchmarks.inputs import W1, cached
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.app.check_log_dir import CheckOptions, check_paths
from cleaner.app.options import CallContext
from cleaner.settings.sources import Sources
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition
from cleaner.verification.check.repair import RepairedFile
from tests.kafka.rig import DUMP_LOG_SEGMENTS, Rig

GIGABYTES_A_SECOND = Bounds(1)


class _Sound:
    """Ends the measurement when something is found: W1 is sound."""

    def on_log_dir(self, _path: Path, findings: Sequence[Finding]) -> None:
        assert not findings, findings

    def on_partition(self, partition: CheckedPartition, _repaired: Sequence[RepairedFile]) -> None:
        assert not partition.findings, partition.findings


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def check_table(rig: Rig, scratch: Path, runs: int) -> str:
    """Measure and lay out."""
    log_dir = copy(cached(rig, W1), scratch / "logs")
    logs = sorted(log_dir.glob("*/*.log"))
    size = sum(path.stat().st_size for path in logs)
    dump = Rig.load_tools().command(DUMP_LOG_SEGMENTS, "--files", ",".join(map(str, logs)), heap="1g")
    command = [sys.executable, "-m", "cleaner", "check", str(log_dir)]

    def check() -> None:
        check_paths([log_dir], Sources(), CallContext(), CheckOptions(), _Sound())

    ways: dict[str, Callable[[], None]] = {
        "kafka-dump-log": lambda: _run(dump),
        "cleaner check": lambda: _run(command),
        "check alone": check,
    }
    check()
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, work in ways.items():
            measured[name].append(_seconds(work))
    rows = []
    for name, each in measured.items():
        seconds = statistics.median(each)
        speed = size / seconds / 1e9
        held = GIGABYTES_A_SECOND.cells(speed, " GB/s") if name == "check alone" else [f"{speed:.2f} GB/s", "", "", ""]
        rows.append([name, f"{seconds:.2f}", *held])
    return table(f"Check of W1, {size / 1e6:.0f} MB uncompressed", ["what", "s", "speed", *HELD_TO], rows)
