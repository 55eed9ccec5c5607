"""
How many records a second can be put on disk one by one, each waited for, beside a plain file and SQLite:

    .venv/bin/python -m benchmarks.commit [--runs 5] [--scratch DIR]

Threads that each append a record of 1 KB and wait until it is on disk, again and again for two seconds. *durable* has
`flush.messages=1` and waits for `durable.result()`: another thread does the fsyncs. *flush* calls `log.flush()`, which
does them in its own; *room*: with `preallocate`. The plain file has an fsync a record, SQLite a connection a thread, a
transaction a record and `synchronous=FULL`, as NORMAL does not wait for the disk.

Then one thread alone, while so many followers in its process get each record: in a thread each, or as tasks of one
event loop. *last* is how long after the last record was on disk all of them had all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.stores import PlainFile, Table, open_log, sample
from benchmarks.tables import table
from cleaner import Follower, Record

SECONDS = 2.0
THREADS = (1, 8, 32)
RECORD_BYTES = 1024
NO_SETTINGS: Mapping[str, str] = {}

Commit = Callable[[bytes, bytes], object]
"""Puts one record on disk, by its key and value, and returns when it is there."""


ROOM = {"preallocate": "true"}


@contextmanager
def _ours(directory: Path, threads: int, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[list[Commit]]:
    with open_log(directory / "logs", {"flush.messages": "1", **settings}) as log:
        yield [lambda key, value: log.append([Record(key, value)]).durable.result()] * threads


@contextmanager
def _plain(directory: Path, threads: int) -> Iterator[list[Commit]]:
    lock = threading.Lock()
    with PlainFile(directory / "records") as file:

        def commit(key: bytes, value: bytes) -> None:
            with lock:
                file.append([key], [value])
                os.fdatasync(file.fileno())

        yield [commit] * threads


@contextmanager
def _sqlite(directory: Path, threads: int) -> Iterator[list[Commit]]:
    def commit_to(rows: Table) -> Commit:
        return lambda key, value: rows.append([key], [value])

    with ExitStack() as stack:
        tables = [stack.enter_context(Table(directory / "records.db", "FULL")) for _ in range(threads)]
        yield [commit_to(rows) for rows in tables]


@contextmanager
def _ours_by_flush(directory: Path, threads: int, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[list[Commit]]:
    with open_log(directory / "logs", settings) as log:

        def commit(key: bytes, value: bytes) -> None:
            log.append([Record(key, value)])
            log.flush()

        yield [commit] * threads


STORES: dict[str, Callable[[Path, int], AbstractContextManager[list[Commit]]]] = {
    "ours, durable": _ours,
    "ours, flush": _ours_by_flush,
    "durable, room": partial(_ours, settings=ROOM),
    "flush, room": partial(_ours_by_flush, settings=ROOM),
    "plain file": _plain,
    "SQLite, FULL": _sqlite,
}
_OURS = 4


def commits_a_second(commits: list[Commit], seconds: float) -> float:
    """Let each thread commit until the time is over."""
    records = sample(1000, RECORD_BYTES)
    counts = [0] * len(commits)
    began = time.perf_counter()

    def work(number: int) -> None:
        commit, until = commits[number], began + seconds
        while time.perf_counter() < until:
            row = counts[number] % len(records)
            commit(records.keys[row], records.values[row])
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(commits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def commit_table(runs: int, scratch: Path, seconds: float = SECONDS) -> str:
    """Measure in turns and lay out."""
    rows = []
    for threads in THREADS:
        found: dict[str, list[float]] = {name: [] for name in STORES}
        for _ in range(runs):
            for name, store in STORES.items():
                with tempfile.TemporaryDirectory(dir=scratch) as directory, store(Path(directory), threads) as commits:
                    found[name].append(commits_a_second(commits, seconds))
        medians = [statistics.median(each) for each in found.values()]
        rows.append([f"{threads}", *(f"{each:.0f}" for each in medians), f"{max(medians[:_OURS]) / medians[-1]:.2f} x"])
    title = f"Records of {RECORD_BYTES} bytes put on disk one by one, a second"
    return table(title, ["threads", *STORES, "ours to SQLite"], rows)


def _follow_in_threads(followers: list[Follower], seen: list[int]) -> list[threading.Thread]:
    def follow(number: int) -> None:
        for _ in followers[number]:
            seen[number] += 1

    return [threading.Thread(target=follow, args=(number,)) for number in range(len(followers))]


def _follow_in_a_loop(followers: list[Follower], seen: list[int]) -> list[threading.Thread]:
    async def follow(number: int) -> None:
        async for _ in followers[number]:
            seen[number] += 1

    async def follow_all() -> None:
        await asyncio.gather(*map(follow, range(len(followers))))

    return [threading.Thread(target=lambda: asyncio.run(follow_all()))]


KINDS = {"threads": _follow_in_threads, "event loop": _follow_in_a_loop}
FOLLOWERS = (1, 50, 500)


def followed(directory: Path, count: int, kind: str, seconds: float) -> tuple[float, float]:
    """Return how many records a second were put on disk, and how long after the last one everybody had all."""
    with open_log(directory / "logs") as log:
        followers, seen = [log.follow(0) for _ in range(count)], [0] * count
        threads = KINDS[kind](followers, seen)
        for thread in threads:
            thread.start()
        speed = commits_a_second([lambda key, value: log.append([Record(key, value)]).durable.result()], seconds)
        end, began = log.log_end_offset, time.perf_counter()
        while min(seen) < end:
            time.sleep(0.001)
        last = time.perf_counter() - began
        for follower in followers:
            follower.close()
        for thread in threads:
            thread.join()
    return speed, last


def followed_table(runs: int, scratch: Path, seconds: float = SECONDS) -> str:
    """Measure in turns and lay out."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for _ in range(runs):
        for count in FOLLOWERS:
            for kind in KINDS:
                with tempfile.TemporaryDirectory(dir=scratch) as directory:
                    found.setdefault((count, kind), []).append(followed(Path(directory), count, kind, seconds))
    rows = []
    for (count, kind), each in found.items():
        speed, last = (statistics.median(numbers) for numbers in zip(*each, strict=True))
        rows.append([f"{count} followers, {kind}", f"{speed:.0f}", f"{1000 * last:.0f} ms"])
    return table("The same by one thread, followed in its process", ["", "records a second", "last"], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times records that are waited for, beside a plain file and SQLite.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-commit-", dir=options.scratch) as scratch:
        print(commit_table(options.runs, Path(scratch)))
        print(followed_table(options.runs, Path(scratch)))


if __name__ == "__main__":
    main()
