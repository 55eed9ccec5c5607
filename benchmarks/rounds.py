"""
One cleaning round: ours, Kafka's with a warm JVM, and `cp -r` with `sync`, on copies of the same log: `make bench`.

They take turns, so that what else the machine does falls on all of them; each figure is the median over the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import cleaner
from tests.kafka.rig import GENERATE_LOG, WARM_BENCH, Rig, cache_root

PARTITION = "bench-0"
NOW_MS = 1_700_003_600_000
# Two rounds warm the JVM up, the third is the one that counts.
WARM_ROUNDS = 3


@dataclass
class Measured:
    """Seconds of each run on one input."""

    size_bytes: int
    records: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, seconds: float) -> None:
        """Note one run."""
        self.seconds.setdefault(what, []).append(seconds)

    def median(self, what: str) -> float:
        """Return the median of one row."""
        return statistics.median(self.seconds[what])


def input_log(kafka: Rig, shape: str, scale: float, codec: str) -> Path:
    """Return a generated log dir, written once and kept in the cache."""
    log_dir = cache_root() / f"bench-{shape}-{scale:g}-{codec}-{kafka.classes.name if kafka.classes else ''}"
    if not (log_dir / ".kafka_cleanshutdown").exists():
        shutil.rmtree(log_dir, ignore_errors=True)
        kafka.java(GENERATE_LOG, log_dir, shape, "scale", scale, "codec", codec)
    return log_dir


def copy(source: Path, target: Path) -> Path:
    """Copy a log dir with its times and wait for the disk; nothing of the copying falls into what is measured after."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)
    os.sync()
    return target


def ours(source: Path, scratch: Path, measured: Measured) -> None:
    """One round with loading and closing, in this process: kernels are compiled, the page cache is warm."""
    log_dir = copy(source, scratch / "ours")
    began = time.perf_counter()
    report = cleaner.clean(log_dir, PARTITION, {"cleanup.policy": "compact"}, now_ms=NOW_MS)
    measured.add("ours", time.perf_counter() - began)
    measured.add("ours: map", report.map_seconds)
    measured.add("ours: copy", report.copy_seconds)
    measured.records = report.messages_read


def kafkas(kafka: Rig, source: Path, scratch: Path, measured: Measured) -> None:
    """Kafka's third round in one JVM, with loading and closing like ours."""
    copies = [copy(source, scratch / f"kafka{i}") for i in range(WARM_ROUNDS)]
    rounds = [json.loads(line) for line in kafka.java(WARM_BENCH, *copies, heap="1g").splitlines()]
    warm = rounds[-1]
    measured.add("Kafka", warm["load_seconds"] + warm["total_seconds"] + warm["close_seconds"])
    measured.add("Kafka: map", warm["map_seconds"])
    measured.add("Kafka: copy", warm["total_seconds"] - warm["map_seconds"])


def plain_copy(source: Path, scratch: Path, measured: Measured) -> None:
    """What only reading and writing all bytes takes."""
    target = scratch / "cp"
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    began = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    os.sync()
    measured.add("cp -r; sync", time.perf_counter() - began)


def measure(kafka: Rig, source: Path, scratch: Path, runs: int) -> Measured:
    """Take turns `runs` times."""
    segments = list((source / PARTITION).glob("*.log"))
    measured = Measured(sum(segment.stat().st_size for segment in segments), 0)
    ours(source, scratch, Measured(0, 0))  # loads the kernels
    for _ in range(runs):
        kafkas(kafka, source, scratch, measured)
        ours(source, scratch, measured)
        plain_copy(source, scratch, measured)
    return measured


def table(name: str, measured: Measured) -> str:
    """Lay out one input's figures; rates are of the bytes and records of the whole log."""
    lines = [
        f"{name}: {measured.size_bytes / 1e6:.0f} MB, {measured.records / 1e6:.2f} million records",
        f"  {'':14}{'median s':>10}{'min s':>8}{'max s':>8}{'MB/s':>8}{'Mrec/s':>8}",
    ]
    for what, seconds in measured.seconds.items():
        middle = max(statistics.median(seconds), 1e-9)
        rates = f"{measured.size_bytes / 1e6 / middle:8.0f}{measured.records / 1e6 / middle:8.2f}"
        lines.append(f"  {what:14}{middle:10.2f}{min(seconds):8.2f}{max(seconds):8.2f}{rates}")
    lines.append(
        f"  Kafka's warm cleaner takes {measured.median('Kafka') / measured.median('ours'):.1f} times as long as ours"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure the inputs asked for and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="1: about 500 MB each")
    parser.add_argument("--codec", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--shape", action="append", choices=["W1", "W2"], help="default: both")
    parser.add_argument("--scratch", type=Path, default=None, help="a directory on the disk to be measured")
    options = parser.parse_args()
    kafka = Rig.load("4.3")
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{os.cpu_count()} processors, load {load}, {options.runs} runs, compression {options.codec}")
    for shape in options.shape or ["W1", "W2"]:
        source = input_log(kafka, shape, options.scale, options.codec)
        with tempfile.TemporaryDirectory(prefix="cleaner-bench-", dir=options.scratch) as scratch:
            print(table(shape, measure(kafka, source, Path(scratch), options.runs)), flush=True)


if __name__ == "__main__":
    main()
