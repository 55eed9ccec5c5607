"""
How long it takes to open a log of 10 GB for writing that was closed in order, and to close it again:

    .venv/bin/python -m benchmarks.opening [--gigabytes 10] [--runs 5] [--scratch DIR]

The log is written by appending: records of 1 KB, a thousand keys' worth of them again and again, so that writing takes
no longer than the disk; a segment of 100 MiB has as many batches and index entries as any. *open* is `LogManager(...)`
up to a log that takes records, *append* the first record's way in after that, *close* is to the end. *warm* has the
files in the page cache, as far as the machine's memory holds them; for *cold* each run puts them out of it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.page_cache import drop
from benchmarks.stores import open_log, sample
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner import LogManager, Record, RecordColumns

OPEN_MS = Bounds(100, at_most=True)
SEGMENT_BYTES = {"1 GiB": 1 << 30, "100 MiB": 100 << 20}
RECORD_BYTES = 1024


def write_log(log_dir: Path, size_bytes: int, segment_bytes: int) -> int:
    """Append until the log is so large; returns its segments."""
    records = sample(20_000, RECORD_BYTES)
    columns = RecordColumns(records.values, records.keys)
    with open_log(log_dir, {"segment.bytes": str(segment_bytes)}) as log:
        for _ in range(size_bytes // records.size_bytes):
            log.append(columns)
        return len(list(log.directory.glob("*.log")))


def open_and_close(log_dir: Path) -> tuple[float, float, float]:
    """Return how many milliseconds it takes to open a log, to append a first record, and to close it."""
    moments = [time.perf_counter()]
    manager = LogManager(log_dir, cleaner=False, tasks=False)
    try:
        log = manager.log("records")
        moments.append(time.perf_counter())
        log.append([Record(b"key", b"value")])
        moments.append(time.perf_counter())
    finally:
        manager.close()
    moments.append(time.perf_counter())
    opened, appended, closed = ((after - before) * 1000 for before, after in pairwise(moments))
    return opened, appended, closed


def opening_table(gigabytes: float, runs: int, scratch: Path) -> str:
    """Measure and lay out."""
    ways: dict[str, Callable[[Path], None]] = {"warm": lambda _: None, "cold": drop}
    rows = []
    for name, segment_bytes in SEGMENT_BYTES.items():
        with tempfile.TemporaryDirectory(dir=scratch) as directory:
            log_dir = Path(directory) / "logs"
            segments = write_log(log_dir, int(gigabytes * 1e9), segment_bytes)
            open_and_close(log_dir)
            for way, prepare in ways.items():
                found = []
                for _ in range(runs):
                    prepare(log_dir)
                    found.append(open_and_close(log_dir))
                opened, appended, closed = (statistics.median(each) for each in zip(*found, strict=True))
                cells = OPEN_MS.cells(opened, " ms")
                rows.append([f"{segments} segments of {name}, {way}", f"{appended:.1f} ms", f"{closed:.1f} ms", *cells])
    title = f"Opening a log of {gigabytes:g} GB for writing"
    return table(title, ["", "append", "close", "open", *HELD_TO], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times opening a large log.")
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-opening-", dir=options.scratch) as scratch:
        print(opening_table(options.gigabytes, options.runs, Path(scratch)))


if __name__ == "__main__":
    main()
