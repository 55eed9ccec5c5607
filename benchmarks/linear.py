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
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.model import TopicPartition

PARTITION = TopicPartition("generated", 0)
GIGABYTES = (1, 4)
LARGE_GIGABYTES = 16
KEYS_A_GIGABYTE = 180_000
# The log, a copy of it, and what the round writes.
ROOM = 2.5
_WATCH_SECONDS = 0.02

# A machine is not the same for a minute; the end of a chunk may be read again with the next; an index is small.
LINEAR = Bounds(1.2, at_most=True)
TIMES_READ = Bounds(2.1, 2.0, at_most=True)
WRITTEN = Bounds(1.02, at_most=True)
PAGE_CACHE_MB = Bounds(512, at_most=True)


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

    @property
    def seconds_a_gigabyte(self) -> float:
        """Return what a gigabyte of the log took."""
        return self.seconds / self.size_bytes * 1e9

    @property
    def times_read(self) -> float:
        """Return how often the log was read, without reading back what was kept."""
        return (self.read_bytes - self.output_bytes) / self.size_bytes

    @property
    def written_share(self) -> float:
        """Return the bytes written for each byte kept; indexes are a part of them."""
        return self.written_bytes / max(self.output_bytes, 1)


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


@dataclass(frozen=True)
class Measured:
    """The median rounds on one size; `warm` is None when the log does not fit the page cache twice."""

    gigabytes: float
    warm: Cost | None
    cold: Cost
    plain_read_speed: float  # bytes a second


def row(name: str, cost: Cost, plain_read_speed: float) -> list[str]:
    """Lay out one round."""
    size = cost.size_bytes
    return [
        name,
        f"{cost.seconds:.2f}",
        f"{cost.seconds_a_gigabyte:.2f}",
        f"{cost.read_bytes / size:.2f}",
        f"{cost.output_bytes / size:.2f}",
        f"{cost.written_share:.2f}",
        f"{cost.disk_read_bytes / size:.2f}",
        f"{cost.disk_read_bytes / cost.seconds / 1e6:.0f}",
        f"{plain_read_speed / 1e6:.0f}",
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


def measure_size(gigabytes: float, scratch: Path, runs: int) -> Measured:
    """Measure one size, warm and cold in turn."""
    source = scratch / "source"
    generate(source, PARTITION, Shape(int(gigabytes * 1e9), int(gigabytes * KEYS_A_GIGABYTE)))
    size = sum(path.stat().st_size for path in (source / str(PARTITION)).glob("*.log"))
    fits = available_bytes() > 2 * size
    warm, cold, speeds = [], [], []
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
    return Measured(gigabytes, _middle(warm) if warm else None, _middle(cold), statistics.median(speeds))


def _middle(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda each: each.seconds)[len(costs) // 2]


def cost_table(found: list[Measured]) -> str:
    """Lay out what was measured."""
    rows = []
    for each in found:
        for kind, cost in (("warm", each.warm), ("cold", each.cold)):
            if cost is not None:
                rows.append(row(f"{each.gigabytes:g} GB, {kind}", cost, each.plain_read_speed))
    return table("What a gigabyte costs", COLUMNS, rows)


def held_table(found: list[Measured]) -> str:
    """Hold the largest log, from a cold page cache, to what must be."""
    first, last = found[0], found[-1]
    growth = last.cold.seconds_a_gigabyte / first.cold.seconds_a_gigabyte
    rows = [
        [f"s/GB beside {first.gigabytes:g} GB", *LINEAR.cells(growth, " x")],
        ["log read", *TIMES_READ.cells(last.cold.times_read, " x")],
        ["written/kept, with indexes", *WRITTEN.cells(last.cold.written_share, " x")],
        ["page cache grew", *PAGE_CACHE_MB.cells(last.cold.page_cache_bytes / 1e6, " MB")],
    ]
    return table(f"Cost at {last.gigabytes:g} GB, cold", ["", "figure", *HELD_TO], rows)


def linear_tables(scratch: Path, *, large: bool) -> str:
    """Measure all sizes there is room for."""
    found = []
    notes = []
    for gigabytes in (*GIGABYTES, *((LARGE_GIGABYTES,) if large else ())):
        free = shutil.disk_usage(scratch).free
        if free < gigabytes * 1e9 * ROOM:
            notes.append(f"{gigabytes} GB left out: {free / 1e9:.0f} GB free in {scratch}\n")
            continue
        found.append(measure_size(gigabytes, scratch, runs=3 if gigabytes == 1 else 1))
    return "\n".join([cost_table(found), held_table(found), *notes] if found else notes)
