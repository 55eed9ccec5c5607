"""
How long it takes to have the last value of every key in a dict, beside SQLite and a plain file:

    .venv/bin/python -m benchmarks.restore [--runs 5] [--scratch DIR]

Four million records of 100 bytes with a million keys are appended, rolled and compacted by one round; `latest()` makes
a dict of what is left, and of the same log as it was written, with four records a key. Of that one the records are also
read one by one, each taking the place of the one before. SQLite has the state in a table by key (`SELECT key, value`),
the plain file one behind the other. All is in the page cache, and the dicts are equal.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cleaner
from benchmarks.stores import PlainFile, Table, open_log, sample
from benchmarks.tables import HELD_TO, Bounds, table
from benchmarks.turns import Way, take_turns
from cleaner import RecordColumns, open_reader

RECORDS, KEYS, RECORD_BYTES = 4_000_000, 1_000_000, 100
COMPACTED, AS_WRITTEN = "compacted", "as written"
TO_SQLITE = Bounds(1)
State = dict[bytes, bytes]


def write_all(directory: Path, scale: float) -> State:
    """Write and compact the log, and the same state to the other stores; returns it."""
    records = sample(int(RECORDS * scale), RECORD_BYTES, int(KEYS * scale))
    for name in (COMPACTED, AS_WRITTEN):
        with open_log(directory / name, {"cleanup.policy": "compact"}) as log:
            for keys, values in records.batches():
                log.append(RecordColumns(values, keys))
            log.roll()
    cleaner.clean(directory / COMPACTED, "records-0")
    state = dict(zip(records.keys, records.values, strict=True))
    with PlainFile(directory / "records") as file, Table(directory / "records.db", "OFF") as rows:
        file.append(list(state), list(state.values()))
        rows.connection.execute("CREATE TABLE state (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        rows.connection.execute("BEGIN")
        rows.connection.executemany("INSERT INTO state VALUES (?, ?)", state.items())
        rows.connection.execute("COMMIT")
    return state


def ways_to_restore(directory: Path, expected: State) -> dict[str, Way]:
    """Return what is measured: each makes the dict."""

    def timed(make: Callable[[], State]) -> Way:
        def way(_: Path) -> float:
            gc.collect()
            began = time.perf_counter()
            state = make()
            seconds = time.perf_counter() - began
            assert state == expected, "another state than was written"
            return seconds

        return way

    def ours(name: str) -> State:
        with open_reader(directory / name, "records") as reader, reader.latest() as latest:
            return latest.to_dict()

    def by_record() -> State:
        with open_reader(directory / AS_WRITTEN, "records") as reader:
            return {record.key: record.value for record in reader.read(0)}  # type: ignore[misc]  # both are there

    def sqlite() -> State:
        with Table(directory / "records.db", "OFF") as rows:
            return dict(rows.connection.execute("SELECT key, value FROM state"))

    def plain() -> State:
        with PlainFile(directory / "records") as file:
            return dict(file.read())

    return {
        "ours": timed(lambda: ours(COMPACTED)),
        AS_WRITTEN: timed(lambda: ours(AS_WRITTEN)),
        "record by record": timed(by_record),
        "SQLite": timed(sqlite),
        "plain file": timed(plain),
    }


def restore_table(runs: int, scratch: Path, scale: float = 1.0) -> str:
    """Measure and lay out."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        state = write_all(Path(directory), scale)
        seconds = take_turns(ways_to_restore(Path(directory), state), runs, scratch)
    cells = TO_SQLITE.cells(seconds["SQLite"] / seconds["ours"], " x")
    row = [f"{len(state) / 1e6:.2f} million keys", *(f"{each:.2f} s" for each in seconds.values()), *cells]
    return table("State restored to a dict", ["", *seconds, "SQLite to ours", *HELD_TO], [row])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times restoring state, beside SQLite and a plain file.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how many records")
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-restore-", dir=options.scratch) as scratch:
        print(restore_table(options.runs, Path(scratch), options.scale))


if __name__ == "__main__":
    main()
