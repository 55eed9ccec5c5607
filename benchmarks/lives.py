"""
What key indexes save over many rounds: `python -m benchmarks.lives`.

A log lives for some rounds, each as soon as its dirty ratio is reached. Records have 16-byte keys and 240-byte values,
segments are a fortieth of the log. Lives differ in whose keys are written:

    uniform        any of a fixed number of keys
    zipf           the same, by Zipf's law with exponent 1.1
    new, recent    99 % new keys, 1 % of the newest twentieth again
    new, any       99 % new keys, 1 % of all keys again

Bytes are those of the reports: of the map, of segments, of key indexes, and of the written segments read back. Kafka
reads the dirty section twice and the clean one once, and writes what stays: the same reports tell how much that is.

One round of a log that is 99 % clean is also timed beside Kafka's own, in a JVM that two such rounds have warmed up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import cleaner
from benchmarks.cleaners import WarmKafka, copy
from benchmarks.inputs import PARTITION
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.app.reports import CleanReport
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from tests.kafka.rig import VERSIONS, Rig

VALUE_BYTES = 240
RECORD_BYTES = 16 + VALUE_BYTES + 8
SEGMENTS = 40
MOST_GROWTH = 16  # of a log of new keys: it doubles with every round at a dirty ratio of 0.5
MOSTLY_CLEAN = Bounds(40, 80)
READ_AT_MOST = Bounds(8, at_most=True)
_TOPIC = PARTITION.rpartition("-")[0]
_BATCH = 64

Keys = Callable[[int], np.ndarray]


@dataclass
class Life:
    """
    One log, and what its rounds did.

    Attributes:
        directory: gets the log dir, and the indexes.
        keys: draws the keys of some records.
        first_records: with how many it begins.
        has_index: rounds have key indexes.
        reports: of all rounds.
        io_bytes: read and written by system calls in rounds, of any file.
        seconds: of rounds, processor time.
        index_bytes: of all indexes in the end.
    """

    directory: Path
    keys: Keys
    first_records: int
    has_index: bool
    reports: list[CleanReport] = field(default_factory=list)
    io_bytes: int = 0
    seconds: float = 0.0
    index_bytes: int = 0

    @property
    def settings(self) -> dict[str, str]:
        """Of its rounds."""
        size = max(1 << 20, self.first_records * RECORD_BYTES // SEGMENTS)
        # For all keys at once, so that the first round leaves nothing dirty.
        buffer = max(128 << 20, 32 * self.first_records)
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(size),
            "log.segment.bytes": str(size),
            "log.cleaner.dedupe.buffer.size": str(buffer),
        }

    @property
    def log_dir(self) -> Path:
        """Where the log is."""
        return self.directory / "logs"

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(path.stat().st_size for path in self.log_dir.glob(f"{PARTITION}/*.log"))

    def live(self, rounds: int, ratio: float) -> None:
        """Run rounds, each at a dirty ratio; the first, which cleans all that the log begins with, does not count."""
        with LogManager(self.log_dir, self.settings, cleaner=False, tasks=False, create=True) as manager:
            manager.create_topic(_TOPIC, settings={"cleanup.policy": "compact"})
        self.append(self.first_records)
        self.clean()
        self.reports.clear()
        self.io_bytes, self.seconds = 0, 0.0
        for _ in range(rounds):
            self.append(int(self.log_bytes * ratio / (1 - ratio)) // RECORD_BYTES)
            self.clean()
            if self.log_bytes > MOST_GROWTH * self.first_records * RECORD_BYTES:
                break
        self.index_bytes = sum(path.stat().st_size for path in self.directory.glob("index/*/*/*.keys"))

    def append(self, count: int) -> None:
        """Append records, and begin a segment."""
        names = np.char.mod("k%015d", self.keys(count)).tolist()
        pool = np.random.default_rng(count).bytes(VALUE_BYTES + count)
        with LogManager(self.log_dir, self.settings, cleaner=False, tasks=False) as manager:
            log = manager.log(_TOPIC, 0)
            for first in range(0, count, _BATCH):
                some = enumerate(names[first : first + _BATCH], first)
                log.append([Record(name.encode(), pool[at : at + VALUE_BYTES]) for at, name in some])
            log.roll()

    def clean(self) -> None:
        """Run a round, and add up what it did."""
        before, began = _io_bytes(), time.process_time()
        index = self.directory / "index" if self.has_index else None
        self.reports.append(cleaner.clean(self.log_dir, PARTITION, self.settings, index_dir=index))
        self.io_bytes += _io_bytes() - before
        self.seconds += time.process_time() - began


def _io_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def our_bytes(report: CleanReport) -> int:
    """Return what a round of ours has read and written."""
    written = report.bytes_written - report.bytes_in_place
    of_segments = report.map_bytes_read + report.bytes_read - report.bytes_read_once + 2 * written
    return of_segments + report.index_bytes_read + report.index_bytes_written


def kafka_bytes(report: CleanReport) -> int:
    """Return what Kafka reads and writes in the same round."""
    return report.map_bytes_read + report.bytes_read + report.bytes_written + 2 * report.bytes_unread


def uniform(count: int, seed: int = 1) -> Keys:
    """Draw evenly."""
    random = np.random.default_rng(seed)
    return lambda size: random.integers(0, count, size)


def zipf(count: int, seed: int = 1) -> Keys:
    """Draw by Zipf's law; what is often drawn is anywhere among the keys."""
    random = np.random.default_rng(seed)
    sums = np.cumsum(1 / np.arange(1, count + 1) ** 1.1)
    names = random.permutation(count)
    return lambda size: names[np.searchsorted(sums, random.random(size) * sums[-1]).clip(max=count - 1)]


def new(recent: float, again: float = 0.01, seed: int = 1) -> Keys:
    """Draw new keys, and some of the newest again; `recent`: which part of all keys those are."""
    random, known = np.random.default_rng(seed), 0

    def draw(size: int) -> np.ndarray:
        nonlocal known
        names = np.arange(known, known + size)
        old = random.random(size) < again
        names[old] = known - 1 - random.integers(0, max(1, int(known * recent)), int(old.sum())) if known else 0
        known += size
        return names

    return draw


def lives_table(scratch: Path, rounds: int, megabytes: float) -> str:
    """Return the table of all lives at two dirty ratios."""
    records = int(megabytes * 1e6) // RECORD_BYTES
    rows = []
    draws: dict[str, Callable[[], Keys]] = {
        "new, 1 % recent again": lambda: new(0.05),
        "new, 1 % of any again": lambda: new(1.0),
        "uniform": lambda: uniform(records),
        "Zipf 1.1": lambda: zipf(records),
    }
    for ratio in (0.05, 0.5):
        for name, keys in draws.items():
            lives = []
            for has_index in (True, False):
                with tempfile.TemporaryDirectory(dir=scratch) as directory:
                    life = Life(Path(directory), keys(), records, has_index)
                    life.live(rounds, ratio)
                    lives.append((life, life.log_bytes))
            rows.append(_row(name, ratio, *lives[0], lives[1][0]))
            print(rows[-1], flush=True)
    columns = ["keys", "ratio", "rounds", "Kafka GB", "no index GB", "index GB", "times fewer", "of the log", "CPU s"]
    return table(f"Bytes read and written over rounds, logs of {megabytes:.0f} MB at first", columns, rows)


def _row(name: str, ratio: float, life: Life, log_bytes: int, without: Life) -> list[str]:
    kafka, ours = sum(map(kafka_bytes, life.reports)), sum(map(our_bytes, life.reports))
    plain = sum(map(our_bytes, without.reports))
    return [
        *(name, f"{ratio}", f"{len(life.reports)}"),
        *(f"{kafka / 1e9:.2f}", f"{plain / 1e9:.2f}", f"{ours / 1e9:.2f}"),
        *(
            f"{kafka / ours:.1f}",
            f"{100 * life.index_bytes / log_bytes:.1f} %",
            f"{without.seconds:.1f}, {life.seconds:.1f}",
        ),
    ]


def _kafka_seconds(rig: Rig, life: Life) -> float:
    """Return what the same round takes Kafka: the third one on a copy."""
    size = life.settings["segment.bytes"]
    target = life.directory / "kafka"
    with WarmKafka(rig) as kafka:
        seconds = [kafka.clean(copy(life.log_dir, target), {"segment.bytes": size}).whole for _ in range(3)]
    shutil.rmtree(target)
    return seconds[-1]


def one_round_table(rig: Rig, scratch: Path, megabytes: float) -> str:
    """Return what one round reads of a log that is 99 % clean, when 1 % of new keys has come, and how long it takes."""
    records = int(megabytes * 1e6) // RECORD_BYTES
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        life = Life(Path(directory), new(0.05, again=0), records, has_index=True)
        life.live(2, 0.01)
        life.append(records // 100)
        size, kafka_seconds = life.log_bytes, _kafka_seconds(rig, life)
        before = _io_bytes()
        life.clean()
        report, io_bytes = life.reports[-1], _io_bytes() - before
        built = max(life.reports[:-1], key=lambda each: each.index_bytes_written)
        read = report.map_bytes_read + report.bytes_read + report.index_bytes_read
        free = [""] * len(HELD_TO)
        rows = [
            ["log", f"{size / 1e6:.0f} MB", *free],
            ["read of it, with indexes, %", *READ_AT_MOST.cells(100 * read / size, "")],
            ["read and written by system calls", f"{100 * io_bytes / size:.1f} %", *free],
            ["indexes", f"{100 * life.index_bytes / size:.1f} %", *free],
            ["round that builds them", f"{built.elapsed_seconds:.2f} s", *free],
            ["round that uses them", f"{report.elapsed_seconds:.2f} s", *free],
            ["Kafka's, warm", f"{kafka_seconds:.2f} s", *free],
            ["times as fast as Kafka", *MOSTLY_CLEAN.cells(kafka_seconds / report.elapsed_seconds, " x")],
        ]
        life.has_index = False
        life.append(records // 100)
        began = time.monotonic()
        life.clean()
        rows.append(["round without", f"{time.monotonic() - began:.2f} s", *free])
    return table("99 % clean, 1 % new keys", ["", "", *HELD_TO], rows)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lives", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=40.0, help="of a log at first (default: %(default)s)")
    parser.add_argument("--large-megabytes", type=float, default=1000.0, help="of the log that is 99 %% clean")
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))  # noqa: S108
    options = parser.parse_args()
    print(one_round_table(Rig.load(VERSIONS[0]), options.scratch, options.large_megabytes))
    print(lives_table(options.scratch, options.rounds, options.megabytes))


if __name__ == "__main__":
    main()
