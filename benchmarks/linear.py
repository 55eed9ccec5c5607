"""
What a gigabyte costs in logs of 1, 4 and 16 GB, from a warm page cache and from a cold one.

A fifth of the records have keys of their own, so that the offset map grows with the log. Each round is one in a process
of its own (`one_round.py`); while it runs the machine's page cache is watched, so the machine should do nothing else.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cleaners import copy
from benchmarks.generate import Shape, generate
from benchmarks.page_cache import available_bytes, cached_bytes, drop, read_through, resident_bytes
from benchmarks.tables import table
from cleaner.model import TopicPartition

PARTITION = TopicPartition("generated", 0)
GIGABYTES = (1, 4)
LARGE_GIGABYTES = 16
KEYS_A_GIGABYTE = 180_000
# The log, a copy of it, and what the round writes.
ROOM = 2.5
_WATCH_SECONDS = 0.02


@dataclass(frozen=True)
class Cost:
    """
    What one round took.

    Attributes:
        seconds: of the round.
        size_bytes: of the log.
        output_bytes: of the records kept.
        read_bytes, written_bytes: by system calls.
        disk_read_bytes: what of it came from the disk.
        page_cache_bytes: by how much the machine's page cache grew at most while it ran.
        left_bytes: of the cleaned log that are in the page cache afterwards.
        peak_bytes: resident memory of the process.
    """

    seconds: float
    size_bytes: int
    output_bytes: int
    read_bytes: int
    written_bytes: int
    disk_read_bytes: int
    page_cache_bytes: int
    left_bytes: int
    peak_bytes: int


class PageCacheWatch:
    """Keeps the largest size of the machine's page cache inside a `with`."""

    def __enter__(self) -> PageCacheWatch:
        """Begin."""
        self._before = self._most = cached_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="page-cache-watch")
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(_WATCH_SECONDS):
            self._most = max(self._most, cached_bytes())

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    @property
    def growth_bytes(self) -> int:
        """Return by how much it grew at most."""
        return self._most - self._before


def _clean(log_dir: Path, size_bytes: int) -> Cost:
    command = [sys.executable, "-m", "benchmarks.one_round", str(log_dir), str(PARTITION)]
    with PageCacheWatch() as watch:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    moved = found["moved"]
    return Cost(
        seconds=found["seconds"],
        size_bytes=size_bytes,
        output_bytes=found["bytes_written"],
        read_bytes=moved["rchar"],
        written_bytes=moved["wchar"],
        disk_read_bytes=moved["read_bytes"],
        page_cache_bytes=watch.growth_bytes,
        left_bytes=resident_bytes(log_dir),
        peak_bytes=found["peak_bytes"],
    )


def row(name: str, costs: list[Cost], disk_speed: float) -> list[str]:
    """Lay out the median round; `disk_speed` in bytes a second."""
    cost = sorted(costs, key=lambda each: each.seconds)[len(costs) // 2]
    size = cost.size_bytes
    return [
        name,
        f"{cost.seconds:.2f}",
        f"{cost.seconds / size * 1e9:.2f}",
        f"{cost.read_bytes / size:.2f}",
        f"{cost.output_bytes / size:.2f}",
        f"{cost.written_bytes / max(cost.output_bytes, 1):.2f}",
        f"{cost.disk_read_bytes / size:.2f}",
        f"{cost.disk_read_bytes / cost.seconds / 1e6:.0f}",
        f"{disk_speed / 1e6:.0f}",
        f"{cost.page_cache_bytes / 1e6:.0f}",
        f"{cost.left_bytes / 1e6:.0f}",
        f"{cost.peak_bytes / 1e6:.0f}",
    ]


COLUMNS = (
    "log",
    "s",
    "s/GB",
    "read/log",
    "kept/log",
    "written/kept",
    "disk read/log",
    "disk MB/s",
    "plain MB/s",
    "cache grew MB",
    "cache left MB",
    "peak MB",
)


def measure_size(gigabytes: float, scratch: Path, runs: int) -> list[list[str]]:
    """Return the rows of one size: warm if the log fits the page cache twice, and cold."""
    source = scratch / "source"
    generate(source, PARTITION, Shape(int(gigabytes * 1e9), int(gigabytes * KEYS_A_GIGABYTE)))
    size = sum(path.stat().st_size for path in (source / str(PARTITION)).glob("*.log"))
    drop(source)
    speeds = [size / read_through(source)]
    warm, cold = [], []
    fits = available_bytes() > 2 * size
    for _ in range(runs):
        if fits:
            log_dir = copy(source, scratch / "copy")
            read_through(log_dir)
            warm.append(_clean(log_dir, size))
        log_dir = copy(source, scratch / "copy")
        drop(log_dir)
        cold.append(_clean(log_dir, size))
        drop(source)
        speeds.append(size / read_through(source))
    shutil.rmtree(source)
    shutil.rmtree(scratch / "copy")
    speed = statistics.median(speeds)
    return [row(f"{gigabytes:g} GB, {kind}", costs, speed) for kind, costs in (("warm", warm), ("cold", cold)) if costs]


def linear_table(scratch: Path, *, large: bool) -> str:
    """Measure all sizes there is room for."""
    rows = []
    notes = []
    for gigabytes in (*GIGABYTES, *((LARGE_GIGABYTES,) if large else ())):
        free = shutil.disk_usage(scratch).free
        if free < gigabytes * 1e9 * ROOM:
            notes.append(f"{gigabytes} GB left out: {free / 1e9:.0f} GB free in {scratch}")
            continue
        rows += measure_size(gigabytes, scratch, runs=3 if gigabytes == 1 else 1)
    return "\n".join([table("What a gigabyte costs", COLUMNS, rows), *notes])
