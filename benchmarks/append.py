"""
How fast records are appended without waiting for the disk, beside a plain file and SQLite:

    .venv/bin/python -m benchmarks.append [--runs 5] [--scratch DIR]

From the first call to the last one's return, a thousand records a call. Nothing is closed or forced, but segments of
100 MiB are rolled, which forces them. Keys and values are different ones in each call. *columns* are `RecordColumns`,
*records* lists of `Record`, both made beforehand; *and making them* is the same with each list made just before it is
appended. SQLite has a transaction a call (`executemany`), the plain file a write.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.stores import PlainFile, Sample, Synchronous, Table, open_log, sample
from benchmarks.tables import HELD_TO, Bounds, table
from benchmarks.turns import Way, take_turns
from cleaner import Record, RecordColumns

BOUNDS = {1024: Bounds(300), 100: Bounds(1000)}  # MB/s of the large ones, thousands of records/s of the small ones
OURS = ("ours, columns", "ours, records", "ours, records, and making them")

Batch = TypeVar("Batch")


def _seconds(append: Callable[[Batch], object], batches: Sequence[Batch]) -> float:
    began = time.perf_counter()
    for batch in batches:
        append(batch)
    return time.perf_counter() - began


def ways_to_append(records: Sample) -> dict[str, Way]:
    """Return what is measured: each appends all records to an empty store."""
    batches = list(records.batches())
    columns = [RecordColumns(values, keys) for keys, values in batches]
    objects = [list(map(Record, *batch)) for batch in batches]

    def as_columns(directory: Path) -> float:
        with open_log(directory / "logs") as log:
            return _seconds(log.append, columns)

    def as_objects(directory: Path) -> float:
        with open_log(directory / "logs") as log:
            return _seconds(log.append, objects)

    def as_new_objects(directory: Path) -> float:
        with open_log(directory / "logs") as log:
            return _seconds(lambda batch: log.append(list(map(Record, *batch))), batches)

    def plain(directory: Path) -> float:
        with PlainFile(directory / "records") as file:
            return _seconds(lambda batch: file.append(*batch), batches)

    def sqlite(synchronous: Synchronous) -> Way:
        def way(directory: Path) -> float:
            with Table(directory / "records.db", synchronous) as rows:
                return _seconds(lambda batch: rows.append(*batch), batches)

        return way

    theirs = {"plain file": plain, "SQLite, NORMAL": sqlite("NORMAL"), "SQLite, OFF": sqlite("OFF")}
    return dict(zip(OURS, (as_columns, as_objects, as_new_objects), strict=True)) | theirs


def append_table(records: Sample, runs: int, scratch: Path) -> str:
    """Measure and lay out."""
    bounds = BOUNDS[records.record_bytes]
    rows = []
    for name, seconds in take_turns(ways_to_append(records), runs, scratch).items():
        speeds = {"MB/s": records.size_bytes / 1e6 / seconds, "k/s": len(records) / 1e3 / seconds}
        held_to = "MB/s" if records.record_bytes == max(BOUNDS) else "k/s"
        cells = bounds.cells(speeds[held_to], f" {held_to}")[1:] if name in OURS else [""] * len(HELD_TO)
        rows.append([name, f"{seconds:.2f} s", *(f"{speed:.0f}" for speed in speeds.values()), *cells])
    title = f"Appending {len(records)} records of {records.record_bytes} bytes"
    return table(title, ["", "median", "MB/s", "thousand/s", *HELD_TO], rows)


def append_tables(runs: int, scratch: Path, scale: float = 1.0) -> str:
    """Measure records of both sizes."""
    large, small = (int(count * scale) for count in (300_000, 1_000_000))
    return "\n".join(append_table(sample(*each), runs, scratch) for each in ((large, 1024), (small, 100)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times appends beside a plain file and SQLite.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how many records")
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-append-", dir=options.scratch) as scratch:
        print(append_tables(options.runs, Path(scratch), options.scale))


if __name__ == "__main__":
    main()
