"""
Values by key, beside SQLite, LMDB and RocksDB, each in a process of its own:

    .venv/bin/pip install .[bench]
    .venv/bin/python -m benchmarks.table [--runs 3] [--scale 1] [--scratch DIR]

Five million updates of 500 000 keys, of 100 bytes, go into each store, a thousand a transaction or append, without
waiting for the disk until the end; then single ones, each waited for; then all values into a dict, before and after a
compaction; then values of random keys, by a store that was opened anew. All is in the page cache. The others replace a
value by its key (SQLite in a table `WITHOUT ROWID` with a write-ahead log), so they have no log to compact, except
RocksDB. A store whose package is not installed is left out, and said to be. Disk is what the files take after all
that, ours with the table's index. Memory is by how much anonymous memory (`RssAnon`) grew from the opening on.

With `--large` also ours alone with a hundred million keys of 12 bytes, values of 20: how long the first lookup takes,
which makes the index. It needs 15 GB of disk and, to be in the page cache, as much memory.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import multiprocessing
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import cleaner
from benchmarks.stores import SEGMENT_BYTES, Sample, sample
from benchmarks.tables import table
from cleaner import LogManager, Record, RecordColumns

UPDATES, KEYS, RECORD_BYTES = 5_000_000, 500_000, 100
MANY_KEYS = 100_000_000
SINGLE, GETS, MANY = 1000, 200_000, 1000
_MAP_BYTES = 16 << 30
Figures = dict[str, float]


class Store(Protocol):
    """What is measured of a store that is open."""

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        """Put some, without waiting for the disk."""

    def put_durably(self, key: bytes, value: bytes) -> object:
        """Put one and wait until it is on disk."""

    def flush(self) -> object:
        """Wait until all of it is on disk."""

    def to_dict(self) -> dict[bytes, bytes]:
        """Return all values."""

    def get(self, key: bytes) -> bytes | None:
        """Return one."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return several."""

    def compact(self) -> None:
        """Give back what replaced values take, where there is something to do."""


class _Ours:
    def __init__(self, directory: Path, manager: cleaner.LogManager) -> None:
        self._directory, self._manager, self._log = directory, manager, manager.log("records")
        self._table: cleaner.Table | None = None
        self.flush = self._log.flush

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        self._log.append(RecordColumns(values, keys))

    def put_durably(self, key: bytes, value: bytes) -> None:
        self._log.append([Record(key, value)]).durable.result()

    def to_dict(self) -> dict[bytes, bytes]:
        with self._log.latest() as latest:
            return latest.to_dict()

    @property
    def table(self) -> cleaner.Table:
        if self._table is None:
            self._table = self._log.table()
        return self._table

    def get(self, key: bytes) -> bytes | None:
        return self.table.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return self.table.get_many(keys)

    def compact(self) -> None:
        self._log.roll()
        self._manager.upkeep.note_high_watermarks()
        assert cleaner.clean(self._directory / "log", "records-0").rounds

    def close(self) -> None:
        if self._table is not None:
            self._table.close()


@contextlib.contextmanager
def _ours(directory: Path) -> Iterator[Store]:
    settings = {"segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "compact", "file.delete.delay.ms": "0"}
    settings["preallocate"] = "true"  # for single writes
    with LogManager(directory / "log", create=True, cleaner=False) as manager:
        if "records" not in manager.topics():
            manager.create_topic("records", 1, settings)
        store = _Ours(directory, manager)
        try:
            yield store
        finally:
            store.close()


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._run_many = connection.executemany
        self._is_durable = False

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        self._sync("OFF", durable=False)
        self._run("BEGIN IMMEDIATE")
        self._run_many("REPLACE INTO state VALUES (?, ?)", zip(keys, values, strict=True))
        self._run("COMMIT")

    def _sync(self, synchronous: str, *, durable: bool) -> None:
        if self._is_durable != durable:
            self._run(f"PRAGMA synchronous={synchronous}")
            self._is_durable = durable

    def put_durably(self, key: bytes, value: bytes) -> None:
        self._sync("FULL", durable=True)
        self._run("REPLACE INTO state VALUES (?, ?)", (key, value))

    def flush(self) -> None:
        self._sync("FULL", durable=True)
        self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def to_dict(self) -> dict[bytes, bytes]:
        return dict(self._run("SELECT key, value FROM state"))

    def get(self, key: bytes) -> bytes | None:
        row = self._run("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        marks = ",".join("?" * len(keys))
        found = dict(self._run(f"SELECT key, value FROM state WHERE key IN ({marks})", keys))  # noqa: S608 - marks only
        return [found.get(key) for key in keys]

    def compact(self) -> None:
        """Nothing: values are replaced in place."""


@contextlib.contextmanager
def _sqlite(directory: Path) -> Iterator[Store]:
    with contextlib.closing(sqlite3.connect(directory / "state.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        yield _Sqlite(connection)


class _Lmdb:
    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(list(zip(keys, values, strict=True)))

    def put_durably(self, key: bytes, value: bytes) -> None:
        self.put([key], [value])
        self._environment.sync(True)

    def flush(self) -> None:
        self._environment.sync(True)

    def to_dict(self) -> dict[bytes, bytes]:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return dict(cursor)

    def get(self, key: bytes) -> bytes | None:
        with self._environment.begin() as transaction:
            found: bytes | None = transaction.get(key)
        return found

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._environment.begin() as transaction:
            return list(map(transaction.get, keys))

    def compact(self) -> None:
        """Nothing: values are replaced, and their pages used again."""


@contextlib.contextmanager
def _lmdb(directory: Path) -> Iterator[Store]:
    lmdb: Any = importlib.import_module("lmdb")
    with lmdb.open(str(directory / "lmdb"), map_size=_MAP_BYTES, sync=False) as environment:
        yield _Lmdb(environment)


class _Rocks:
    def __init__(self, database: Any, durable: Any, new_batch: Callable[[], Any]) -> None:
        self._database, self._durable, self._new_batch = database, durable, new_batch

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        batch = self._new_batch()
        for key, value in zip(keys, values, strict=True):
            batch.put(key, value)
        self._database.write(batch)

    def put_durably(self, key: bytes, value: bytes) -> None:
        self._database.put(key, value, self._durable)

    def flush(self) -> None:
        self._database.flush_wal(sync=True)

    def to_dict(self) -> dict[bytes, bytes]:
        return dict(self._database.items())

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._database.get(key)
        return found

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = self._database.get(keys)
        return found

    def compact(self) -> None:
        self._database.compact_range(None, None)


@contextlib.contextmanager
def _rocksdb(directory: Path) -> Iterator[Store]:
    rocksdict: Any = importlib.import_module("rocksdict")
    durable = rocksdict.WriteOptions()
    durable.sync = True
    database = rocksdict.Rdict(str(directory / "rocks"), rocksdict.Options(raw_mode=True))
    try:
        yield _Rocks(database, durable, lambda: rocksdict.WriteBatch(raw_mode=True))
    finally:
        database.close()


_OPENERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Store]]] = {
    "ours": _ours,
    "SQLite": _sqlite,
    "LMDB": _lmdb,
    "RocksDB": _rocksdb,
}
_PACKAGES = {"LMDB": "lmdb", "RocksDB": "rocksdict"}


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _disk_bytes(directory: Path) -> int:
    return sum(512 * path.stat().st_blocks for path in directory.rglob("*") if path.is_file())


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _fill(store: Store, records: Sample) -> None:
    for keys, values in records.batches():
        store.put(keys, values)
    store.flush()


def _measure(name: str, directory: Path, scale: float) -> Figures:
    """Measure one store in this process."""
    cleaner.warm()
    records = sample(int(UPDATES * scale), RECORD_BYTES, int(KEYS * scale))
    state = dict(zip(records.keys, records.values, strict=True))
    figures: Figures = {}
    with _OPENERS[name](directory) as store:
        figures["writes/s"] = len(records) / _seconds(lambda: _fill(store, records))
        singles = list(state.items())[:SINGLE]
        figures["durable/s"] = SINGLE / _seconds(lambda: [store.put_durably(*each) for each in singles])
        for when in ("restore, s", "compacted, s"):
            taken = time.perf_counter()
            found = store.to_dict()
            figures[when] = time.perf_counter() - taken
            assert found == state, f"{name} has another state"
            del found
            if when == "restore, s":
                store.compact()
    drawn = random.Random(1).choices(list(state), k=GETS)
    before = _anonymous_bytes()
    with _OPENERS[name](directory) as store:
        assert store.get_many(drawn[:MANY]) == [state[key] for key in drawn[:MANY]]
        figures["get/s"] = GETS / _seconds(lambda: [store.get(key) for key in drawn])
        parts = [drawn[first : first + MANY] for first in range(0, GETS, MANY)]
        figures["get_many/s"] = GETS / _seconds(lambda: [store.get_many(part) for part in parts])
        figures["memory, MB"] = (_anonymous_bytes() - before) / 1e6
    figures["disk, MB"] = _disk_bytes(directory) / 1e6
    return figures


def _median(name: str, runs: int, scratch: Path, scale: float) -> Figures:
    measured: list[Figures] = []
    for _ in range(runs):
        apart = multiprocessing.get_context("spawn")
        with tempfile.TemporaryDirectory(dir=scratch) as directory, apart.Pool(1) as pool:
            measured.append(pool.apply(_measure, (name, Path(directory), scale)))
    return {what: statistics.median(each[what] for each in measured) for what in measured[0]}


def _many_key(number: int) -> bytes:
    return b"k%011d" % (number * 2_654_435_761 % 10**11)


def _measure_many(directory: Path, count: int) -> Figures:
    """Measure a table of so many keys in this process."""
    cleaner.warm()
    figures: Figures = {}
    drawn = [_many_key(number) for number in random.Random(1).choices(range(count), k=GETS)]
    with LogManager(directory / "log", create=True, cleaner=False) as manager:
        manager.create_topic("records", 1, {"cleanup.policy": "compact"})
        log = manager.log("records")
        for first in range(0, count, 10 * MANY):
            keys = [_many_key(number) for number in range(first, min(count, first + 10 * MANY))]
            log.append(RecordColumns([b"v" * 20] * len(keys), keys))
        log.flush()
        before = _anonymous_bytes()
        taken = time.perf_counter()
        with log.table() as lookups:
            assert lookups.get(drawn[0]) is not None
            figures["index made, s"] = time.perf_counter() - taken
            figures["memory, MB"] = (_anonymous_bytes() - before) / 1e6
            figures["get/s"] = GETS / _seconds(lambda: list(map(lookups.get, drawn)))
            parts = [drawn[first : first + MANY] for first in range(0, GETS, MANY)]
            figures["get_many/s"] = GETS / _seconds(lambda: list(map(lookups.get_many, parts)))
            figures["index, MB"] = _disk_bytes(directory / "log.tables") / 1e6
    return figures


def many_keys_table(scratch: Path, count: int = MANY_KEYS) -> str:
    """Measure a large table and lay out."""
    apart = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=scratch) as directory, apart.Pool(1) as pool:
        figures = pool.apply(_measure_many, (Path(directory), count))
    return table(f"Values by key, {count:,} keys", list(figures), [[f"{value:,.1f}" for value in figures.values()]])


def table_table(runs: int, scratch: Path, scale: float = 1.0) -> str:
    """Measure and lay out."""
    missing = [name for name, package in _PACKAGES.items() if importlib.util.find_spec(package) is None]
    figures = {name: _median(name, runs, scratch, scale) for name in _OPENERS if name not in missing}
    rows = [
        [what, *(f"{each[what]:.2f}" if each[what] < 10 else f"{each[what]:,.0f}" for each in figures.values())]
        for what in next(iter(figures.values()))
    ]
    left_out = f"; not installed: {', '.join(missing)}" if missing else ""
    return table(f"Values by key, {int(UPDATES * scale):,} updates{left_out}", ["", *figures], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times lookups and writes by key, beside other stores.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="how many updates and keys")
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-table-", dir=options.scratch) as scratch:
        print(table_table(options.runs, Path(scratch), options.scale))


if __name__ == "__main__":
    main()
