"""
How long an append takes beside a round of the cleaner that is held to a speed limit, and without one:

    .venv/bin/python -m benchmarks.latency [--turns 3] [--scratch DIR]

Processes of their own: a writer that appends fifty records of 1 KB every 5 ms, six readers that follow it, and
`cleaner run` with a limit of 50 MB/s. In turns the cleaner is paused for ten seconds, and cleans 200 MB of the same log
from the round's begin to its end, swaps included. *append* is the call; *due* is from the moment it should have begun
at, so that a call that takes long counts for those it holds up, and so does a writer that got no processor; *on disk*
is until `durable` is done, which every fourth append asks for.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from benchmarks.stores import open_log, sample
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner import Log, Record, RecordColumns, open_reader
from tests.cleaner_run import CleanerRun, cleaner_run, total, wait_until

READERS = 6
RECORD_BYTES = 1024
RECORDS_AN_APPEND = 50
APPENDS_A_SECOND = 200
ASK_DURABLE_EACH = 4
FILL_RECORDS = 200_000
QUIET_SECONDS = 10.0
LIMIT_BYTES = 50_000_000
P99_AT_MOST = Bounds(2, at_most=True)
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Latencies:
    """Seconds of each append of a phase."""

    append: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    on_disk: list[float] = field(default_factory=list)

    def take(self, other: Latencies) -> None:
        """Add another phase's."""
        for ours, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            ours.extend(theirs)


def append_steadily(log: Log, batches: list[list[Record]], pipe: Connection) -> Latencies:
    """Append at an even pace until told to stop."""
    found = Latencies()
    began, number = time.perf_counter(), 0

    def is_on_disk(_: object, since: float) -> None:
        found.on_disk.append(time.perf_counter() - since)

    while not pipe.poll():
        due = began + number / APPENDS_A_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        before = time.perf_counter()
        appended = log.append(batches[number % len(batches)])
        after = time.perf_counter()
        found.append.append(after - before)
        found.due.append(after - due)
        number += 1
        if number % ASK_DURABLE_EACH == 0:
            appended.durable.add_done_callback(partial(is_on_disk, since=before))
    log.flush()
    return found


def write(pipe: Connection, log_dir: Path) -> None:
    """Be the writer's process: do as the pipe says, answer, end with its end."""
    records = sample(FILL_RECORDS // 10, RECORD_BYTES)
    batches = [list(map(Record, *batch)) for batch in records.batches(RECORDS_AN_APPEND)]
    with open_log(log_dir, TOPIC, tasks=True) as log:
        while (message := pipe.recv()) != "end":
            if message == "fill":
                for _ in range(10):
                    log.append(RecordColumns(records.values, records.keys))
                log.roll()
                pipe.send(None)
            else:
                found = append_steadily(log, batches, pipe)
                pipe.recv()
                pipe.send(found)


def follow(log_dir: Path) -> None:
    """Be a reader's process, until it is ended from outside."""
    with open_reader(log_dir, "records") as reader, reader.follow(reader.log_end_offset, until="end") as follower:
        while True:
            follower.poll_columns(1.0)


class Stage:
    """The writer, and the cleaner beside it."""

    def __init__(self, pipe: Connection, run: CleanerRun) -> None:
        self._pipe = pipe
        self._run = run

    def _command(self, *words: str) -> None:
        done = self._run.command(*words)
        assert done.returncode == 0, done.stderr

    def _is_busy(self) -> bool:
        return total(self._run.metrics(), "cleaner_workers_busy") > 0

    def fill(self) -> None:
        """Make the log dirty while nothing is cleaned."""
        self._command("pause")
        wait_until(lambda: not self._is_busy(), "the cleaner pauses")
        self._pipe.send("fill")
        self._pipe.recv()

    @contextmanager
    def writing(self, into: Latencies) -> Iterator[None]:
        """Have the writer at work during a `with` block."""
        self._pipe.send("write")
        yield
        self._pipe.send("stop")
        into.take(self._pipe.recv())

    def clean(self, into: Latencies) -> float:
        """Let the cleaner do a round, measured from its begin to its end; returns its seconds."""
        rounds = len(self._run.events("cleaned"))
        self._command("resume")
        wait_until(self._is_busy, "a round begins")
        began = time.perf_counter()
        with self.writing(into):
            wait_until(lambda: len(self._run.events("cleaned")) > rounds, "the round ends")
        return time.perf_counter() - began


def measure(turns: int, scratch: Path) -> tuple[Latencies, Latencies, float]:
    """Measure in turns; returns what it was like without a round and beside one, and the seconds of all rounds."""
    quiet, beside, seconds = Latencies(), Latencies(), 0.0
    log_dir = scratch / "logs"
    settings = {
        "log.dirs": str(log_dir),
        "log.cleaner.io.max.bytes.per.second": str(LIMIT_BYTES),
        "log.cleaner.backoff.ms": "100",
    }
    with ExitStack() as stack:
        pipe, other_end = SPAWN.Pipe()
        writer = SPAWN.Process(target=write, args=(other_end, log_dir))
        writer.start()
        stack.callback(writer.join)
        stack.callback(pipe.send, "end")
        pipe.send("fill")
        pipe.recv()
        for _ in range(READERS):
            reader = SPAWN.Process(target=follow, args=(log_dir,))
            reader.start()
            stack.callback(reader.join)
            stack.callback(reader.terminate)
        run = stack.enter_context(cleaner_run(scratch, settings))
        run.start()
        stage = Stage(pipe, run)
        for _ in range(turns):
            stage.fill()
            with stage.writing(quiet):
                time.sleep(QUIET_SECONDS)
            seconds += stage.clean(beside)
        run.stop()
    return quiet, beside, seconds


def latency_table(turns: int, scratch: Path) -> str:
    """Measure and lay out."""
    quiet, beside, seconds = measure(turns, scratch)
    rows = []
    for what in ("append", "due", "on_disk"):
        without, with_round = (np.array(getattr(each, what)) * 1000 for each in (quiet, beside))
        cells = []
        for percent in (50, 99, 99.9):
            cells += [f"{np.percentile(each, percent):.2f}" for each in (without, with_round)]
        ratio = float(np.percentile(with_round, 99) / np.percentile(without, 99))
        rows.append([what.replace("_", " "), *cells, *P99_AT_MOST.cells(ratio, " x")])
    percentiles = [f"{name}{which}" for name in ("p50", "p99", "p99.9") for which in ("", ", round")]
    title = (
        f"Milliseconds of an append with {READERS} readers, and beside rounds ({seconds:.0f} s in all) "
        f"at {LIMIT_BYTES / 1e6:.0f} MB/s"
    )
    return table(title, ["", *percentiles, "p99, times", *HELD_TO], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times appends beside the cleaner.")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-latency-", dir=options.scratch) as scratch:
        print(latency_table(options.turns, Path(scratch)))


if __name__ == "__main__":
    main()
