"""
What the daemon's workers gain from a second core, and how exactly its speed limit is kept:

    .venv/bin/python -m benchmarks.daemon [--logs 8] [--megabytes 200] [--runs 3] [--scratch DIR]

**Workers**: `cleaner run` on copies of one log, pipeline threads off, with one worker and with two. The time is from
the first round's begin to the last one's end, by the daemon's journal. Two daemons with one worker and half of the logs
each show what the machine has to give: nothing is shared but processors, memory and disk.

**Speed limit**: `cleaner run` with two workers and `log.cleaner.io.max.bytes.per.second`, watched for ten seconds in
which it has work. *counted* is the daemon's own sum (`cleaner status`), *moved* what its system calls read and wrote by
`/proc/PID/io`: that has indexes, and the reading back of what was written, which no limit holds up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.generate import Shape, generate
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.model import TopicPartition
from cleaner.state.journal_reader import JournalReader
from cleaner.storage.files.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.cleaner_run import CleanerRun, cleaner_run, total, wait_until

FS = FileSystem()
TWO_WORKERS = Bounds(1.75, 1.9)
RATES = (1, 5, 50)
OFF = Bounds(2, at_most=True)
WATCH_SECONDS = 10.0
SETTINGS = {
    "cleanup.policy": "compact",
    "cleaner.trust.default.policy": "true",
    "cleaner.pipeline.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(64 << 20),
    "log.cleaner.backoff.ms": "1000",
}


def write_logs(path: Path, logs: int, size_bytes: int) -> None:
    """Write a log, and the same one again under other names."""
    first = TopicPartition("generated", 0)
    generate(path, first, Shape(size_bytes, keys=size_bytes // 5000))
    partitions = [TopicPartition("generated", number) for number in range(logs)]
    for partition in partitions[1:]:
        shutil.copytree(path / str(first), path / str(partition))
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        end = read_offset_checkpoint(FS, path / name)[first]
        write_offset_checkpoint(FS, path / name, dict.fromkeys(partitions, end))


def clean_all(original: Path, scratch: Path, *, workers: int, processes: int = 1) -> float:
    """Clean a copy of a log dir, its logs dealt out to so many daemons; returns seconds."""
    names = sorted(path.name for path in original.glob("*-*/"))
    with tempfile.TemporaryDirectory(dir=scratch) as directory, ExitStack() as stack:
        runs = []
        for number in range(processes):
            root = Path(directory) / str(number)
            others = [name for name in names if name not in names[number::processes]]
            shutil.copytree(original, root / "logs", ignore=shutil.ignore_patterns(*others))
            settings = SETTINGS | {"log.dirs": str(root / "logs"), "log.cleaner.threads": str(workers)}
            runs.append(stack.enter_context(cleaner_run(root, settings)))
        os.sync()
        for run in runs:
            run.begin()
        wait_until(lambda: sum(len(run.events("cleaned")) for run in runs) == len(names), "all is clean", 600)
        for run in runs:
            run.stop()
        ended = [
            (each.time_ms / 1000, float(str(each.details["seconds"])))
            for run in runs
            for each in JournalReader(FS, run.state_dir).entries()
            if each.kind == "round" and each.details["result"] == "done"
        ]
    return max(end for end, _ in ended) - min(end - seconds for end, seconds in ended)


def worker_table(original: Path, runs: int, scratch: Path) -> str:
    """Measure one worker, two, and two processes in turns."""
    size_mb = sum(file.stat().st_size for file in original.rglob("*.log")) / 1e6
    ways = {"one": (1, 1), "two": (2, 1), "two processes": (1, 2)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, (workers, processes) in ways.items():
            seconds[name].append(clean_all(original, scratch, workers=workers, processes=processes))
    one, two, apart = (statistics.median(each) for each in seconds.values())
    logs = len(list(original.glob("*-*/")))
    cells = [f"{one:.2f} s", f"{two:.2f} s", f"{one / apart:.2f}", *TWO_WORKERS.cells(one / two, "")]
    columns = ["", "one", "two", "two processes, times as fast", "times as fast", *HELD_TO]
    return table("Two workers, pipeline threads off", columns, [[f"{logs} logs, {size_mb:.0f} MB", *cells]])


def _moved_bytes(pid: int) -> int:
    rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(rows["rchar"]) + int(rows["wchar"])


def _figures(run: CleanerRun) -> tuple[float, float, int]:
    """Return a moment in seconds, the bytes counted until then, and the bytes moved."""
    status = run.status()
    return status["now_ms"] / 1000, status["throttle"]["bytes"], _moved_bytes(run.pid)


def watch_rate(original: Path, megabytes: int, scratch: Path) -> list[str]:
    """Run a daemon at a speed limit; returns a row of the table."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        root = Path(directory)
        shutil.copytree(original, root / "logs")
        settings = SETTINGS | {
            "log.dirs": str(root / "logs"),
            "log.cleaner.threads": "2",
            "log.cleaner.io.max.bytes.per.second": str(megabytes * 1_000_000),
        }
        with cleaner_run(root, settings) as run:
            run.start()
            wait_until(lambda: total(run.metrics(), "cleaner_throttle_bytes_total") > 0, "a round has begun")
            figures = [_figures(run)]
            threading.Event().wait(WATCH_SECONDS)
            figures.append(_figures(run))
            assert total(run.metrics(), "cleaner_workers_busy") == 2, "the logs are too small: they were clean too soon"
            run.stop()
    (began, counted_before, moved_before), (ended, counted, moved) = figures
    counted_mb = (counted - counted_before) / 1e6 / (ended - began)
    moved_mb = (moved - moved_before) / 1e6 / (ended - began)
    off = abs(counted_mb / megabytes - 1) * 100
    return [f"{megabytes} MB/s", f"{moved_mb:.2f} MB/s", f"{counted_mb:.3f} MB/s", *OFF.cells(off, " %")]


def rate_table(original: Path, scratch: Path) -> str:
    """Measure each rate."""
    rows = [watch_rate(original, megabytes, scratch) for megabytes in RATES]
    columns = ["limit", "moved", "counted", "off by", *HELD_TO]
    return table(f"Speed limit, {WATCH_SECONDS:.0f} s, two workers", columns, rows)


def tables(logs: int, megabytes: int, runs: int, scratch: Path) -> Sequence[str]:
    """Measure all of it."""
    original = scratch / "original"
    write_logs(original, logs, megabytes * 1_000_000)
    return [worker_table(original, runs, scratch), rate_table(original, scratch)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times the daemon's workers and its speed limit.")
    parser.add_argument("--logs", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=200, help="of each log")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cleaner-daemon-", dir=options.scratch) as scratch:
        print("\n".join(tables(options.logs, options.megabytes, options.runs, Path(scratch))))


if __name__ == "__main__":
    main()
