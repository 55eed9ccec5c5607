"""
How fast records are read, as numpy columns and as objects, beside a plain file and SQLite:

    .venv/bin/python -m benchmarks.read [--runs 5] [--scratch DIR]

All records from the first on, out of the page cache; ours verifies every checksum on the way. Of columns the sizes of
keys and values are added up and no object is made. Objects are `Record`s, with offset and time; SQLite gives tuples of
the same, the plain file key and value alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.stores import PlainFile, Sample, Table, open_log, sample
from benchmarks.tables import HELD_TO, Bounds, table
from benchmarks.turns import Way, take_turns
from cleaner import LogReader, RecordColumns, open_reader

COLUMNS, OBJECTS = "ours, columns", "ours, records"
BOUNDS = {(1024, COLUMNS): (Bounds(1000), " MB/s"), (1024, OBJECTS): (Bounds(300), " k/s")}
NONE_LEFT = 0


def write_all(records: Sample, directory: Path) -> None:
    """Write the records to each store."""
    with (
        open_log(directory / "logs") as log,
        PlainFile(directory / "records") as file,
        Table(directory / "records.db", "OFF") as rows,
    ):
        for keys, values in records.batches():
            log.append(RecordColumns(values, keys))
            file.append(keys, values)
            rows.append(keys, values)


def _add_up(reader: LogReader) -> int:
    return sum(int(some.key_sizes.sum() + some.value_sizes.sum()) for some in reader.columns(0))


def _go_through(records: Iterable[object]) -> None:
    deque(records, maxlen=NONE_LEFT)


def ways_to_read(records: Sample, directory: Path) -> dict[str, Way]:
    """Return what is measured: each reads all records of a store."""

    def timed(read: Callable[[], object]) -> Way:
        def way(_: Path) -> float:
            began = time.perf_counter()
            read()
            return time.perf_counter() - began

        return way

    def columns() -> None:
        with open_reader(directory / "logs", "records") as reader:
            assert _add_up(reader) == records.size_bytes

    def objects() -> None:
        with open_reader(directory / "logs", "records") as reader:
            _go_through(reader.read(0))

    def plain() -> None:
        with PlainFile(directory / "records") as file:
            _go_through(file.read())

    def sqlite() -> None:
        with Table(directory / "records.db", "OFF") as rows:
            _go_through(rows.read())

    ways = {COLUMNS: columns, OBJECTS: objects, "plain file": plain, "SQLite": sqlite}
    return {name: timed(way) for name, way in ways.items()}


def read_table(records: Sample, runs: int, scratch: Path) -> str:
    """Measure and lay out."""
    rows = []
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        write_all(records, Path(directory))
        for name, seconds in take_turns(ways_to_read(records, Path(directory)), runs, scratch).items():
            speeds = {" MB/s": records.size_bytes / 1e6 / seconds, " k/s": len(records) / 1e3 / seconds}
            cells = [""] * len(HELD_TO)
            if (records.record_bytes, name) in BOUNDS:
                bounds, unit = BOUNDS[records.record_bytes, name]
                cells = bounds.cells(speeds[unit], unit)[1:]
            rows.append([name, f"{seconds:.3f} s", *(f"{speed:.0f}" for speed in speeds.values()), *cells])
    title = f"Reading {len(records)} records of {records.record_bytes} bytes"
    return table(title, ["", "median", "MB/s", "thousand/s", *HELD_TO], rows)


def read_tables(runs: int, scratch: Path, scale: float = 1.0) -> str:
    """Measure records of both sizes."""
    large, small = (int(count * scale) for count in (300_000, 1_000_000))
    return "\n".join(read_table(sample(*each), runs, scratch) for each in ((large, 1024), (small, 100)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times reading beside a plain file and SQLite.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how many records")
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-read-", dir=options.scratch) as scratch:
        print(read_tables(options.runs, Path(scratch), options.scale))


if __name__ == "__main__":
    main()
