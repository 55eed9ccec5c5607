"""
How long the daemon looks at thousands of logs before it chooses one:

    .venv/bin/python -m benchmarks.look [--partitions 5000 20000] [--runs 5] [--scratch DIR]

Partitions of three small segments, ten to a topic, all of them dirty and each with a producer: no log's numbers alone
keep its files closed. Each run is a process of its own. *first* is the look after a start; *later* one that finds
nothing changed; *busy* one that finds every active segment longer and every high watermark higher, as beside a writer,
and *until all* is how long such looks take together until every log was judged again. *turn* is the longest of some
turns of the daemon, busy or not: a look, and everything that is made of it before workers choose. *all due* is a turn
with every log over its `max.compaction.lag.ms` and nothing changed, in seconds of the processor; *shown* is what a page
or scrape needs of them then, without its text. *grew* is the memory that became resident by all of that.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_dir_watch import DirLook, WatchedLogDir
from cleaner.settings.sources import Sources
from cleaner.storage.files.checkpoint import write_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import HIGH_WATERMARK_CHECKPOINT
from tests.integration.daemons import made, settings_for
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir

FS = FileSystem()
PARTITIONS_A_TOPIC = 10
SEGMENTS = 3
OLD_NS = 1_700_000_000 * 10**9
PARTITIONS = (5000, 20000)
BOUNDS = {
    5000: {
        "first": Bounds(2.5, at_most=True),
        "later": Bounds(0.3, 0.1, at_most=True),
        "busy": Bounds(0.5, 0.3, at_most=True),
        "until all": Bounds(2.5, at_most=True),
        "turn": Bounds(0.5, at_most=True),
        "all due": Bounds(0.5, at_most=True),
        "shown": Bounds(0.3, at_most=True),
        "grew": Bounds(120, 60, at_most=True),
    },
    20000: {
        "first": Bounds(8, at_most=True),
        "later": Bounds(0.4, 0.2, at_most=True),
        "busy": Bounds(0.5, 0.3, at_most=True),
        "until all": Bounds(15, at_most=True),
        "turn": Bounds(0.5, at_most=True),
        "all due": Bounds(0.5, 0.4, at_most=True),
        "shown": Bounds(0.5, at_most=True),
        "grew": Bounds(300, 200, at_most=True),
    },
}
UNITS = {"grew": " MiB"}


def partition_of(number: int) -> TopicPartition:
    """Return the partition of a number."""
    return TopicPartition(f"topic-{number // PARTITIONS_A_TOPIC:05d}", number % PARTITIONS_A_TOPIC)


def write_logs(path: Path, partitions: int) -> Path:
    """Write the log dir; directories are as old as those of a log that has been there for a while."""
    log = LogBuilder(partition_of(0))
    for segment in range(SEGMENTS):
        if segment:
            log.roll()
        for number in range(4):
            log.append((f"k{number}", "v" * 50), producer=Producer(5, 0, 4 * segment + number))
    write_log_dir(path, log)
    model = path / str(partition_of(0))
    files = {file.name: file.read_bytes() for file in model.iterdir()}
    for number in range(partitions):
        directory = path / str(partition_of(number))
        directory.mkdir(exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
        os.utime(directory, ns=(OLD_NS, OLD_NS))
    write_high_watermarks(path, partitions, log.next_offset - 1)
    topics = sorted({partition_of(number).topic for number in range(partitions)})
    lines = [f"{topic}.cleanup.policy=compact\n" for topic in topics]
    (path / "cleaner-topics.properties").write_text("".join(lines))
    return path


def write_high_watermarks(path: Path, partitions: int, offset: int) -> None:
    """Give every partition the same high watermark."""
    offsets = {partition_of(number): offset for number in range(partitions)}
    write_offset_checkpoint(FS, path / HIGH_WATERMARK_CHECKPOINT, offsets)


def resident_mib() -> float:
    """Return what this process has resident."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def look_repeatedly(path: Path, partitions: int) -> dict[str, float]:
    """Look, and return seconds and MiB by name of the figure."""
    before = resident_mib()
    clock = SystemClock()
    watched = WatchedLogDir(FS, clock, path, CleanerConfig(retention_enable=True), Sources())

    found = DirLook()

    def look() -> float:
        nonlocal found
        began = time.perf_counter()
        found = watched.look(clock.now_ms())
        seconds = time.perf_counter() - began
        dirty = sum(log.facts is not None and log.facts.cleanable.cleanable_bytes > 0 for log in found.logs)
        assert dirty == partitions, f"{dirty} dirty logs: {found.facts}, {found.logs[:1]}"
        return seconds

    figures = {"first": look(), "later": min(look() for _ in range(3))}
    write_more(path, partitions, 0)
    figures["busy"] = figures["until all"] = look()
    while found.behind:
        figures["until all"] += look()
    figures["turn"] = longest_turn(path, partitions)
    grew = resident_mib() - before
    figures["all due"], figures["shown"] = turn_of_overdue(path)
    return {**figures, "grew": grew}


def write_more(path: Path, partitions: int, round_number: int) -> None:
    """Make every active segment longer, and every high watermark higher."""
    for number in range(partitions):
        with max((path / str(partition_of(number))).glob("*.log")).open("ab") as file:
            file.write(bytes(70))
    write_high_watermarks(path, partitions, 4 * SEGMENTS + round_number)


def longest_turn(path: Path, partitions: int) -> float:
    """Return the seconds of the longest of six turns of a service that has no workers, half of them busy."""
    with tempfile.TemporaryDirectory(prefix="cleaner-look-") as state_dir:
        settings = settings_for(path, state_dir=Path(state_dir), cleaner_retention_enable="true")
        service = made(settings).service
        while not service.turn():
            pass
        gc.freeze()  # as `cleaner run` does
        seconds = []
        for number in range(6):
            if number % 2:
                write_more(path, partitions, number)
            began = time.perf_counter()
            service.turn()
            seconds.append(time.perf_counter() - began)
        service.stop()
        return max(seconds)


def turn_of_overdue(path: Path) -> tuple[float, float]:
    """Return the processor's seconds of the longest of three turns with all logs overdue, and of their snapshot."""
    with tempfile.TemporaryDirectory(prefix="cleaner-look-") as state_dir:
        settings = settings_for(path, state_dir=Path(state_dir), log_cleaner_max_compaction_lag_ms="1000")
        service = made(settings).service
        while not service.turn():
            pass
        gc.freeze()
        turns, shown = [], []
        for _ in range(3):
            began = time.process_time()
            service.turn()
            turned = time.process_time()
            snapshot = service.snapshot()
            shown.append(time.process_time() - turned)
            turns.append(turned - began)
            assert snapshot.overdue == snapshot.counts.logs
        service.stop()
        return max(turns), max(shown)


def look_table(partitions: int, runs: int, scratch: Path) -> str:
    """Measure and lay out."""
    figures: list[dict[str, float]] = []
    for number in range(runs):
        path = write_logs(scratch / f"logs-{partitions}-{number}", partitions)
        command = [sys.executable, "-m", "benchmarks.look", "--partitions", str(partitions), "--child", str(path)]
        figures.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    rows = []
    for name, bounds in BOUNDS.get(partitions, BOUNDS[PARTITIONS[-1]]).items():
        each = [figure[name] for figure in figures]
        rows.append([name, f"{min(each):.2f}", *bounds.cells(statistics.median(each), UNITS.get(name, " s"))])
    title = f"A look at {partitions} partitions of {SEGMENTS} segments"
    return table(title, ["look", "least", "median", *HELD_TO], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times the daemon's looks at a log dir.")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("--child", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(look_repeatedly(options.child, options.partitions[0])))
        return
    for partitions in options.partitions:
        with tempfile.TemporaryDirectory(prefix="cleaner-look-", dir=options.scratch) as scratch:
            print(look_table(partitions, options.runs, Path(scratch)))


if __name__ == "__main__":
    main()
