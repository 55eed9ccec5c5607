"""
Logs of random shapes, to find one on which ours is slow: all options of the generator are drawn at random.

One JVM cleans them all. Of each log its third round counts, and the second of ours. A shape on which ours seems slow is
measured four times more. Logs are small here, so that many shapes can be tried, and both cleaners have a cost that does
not depend on the size.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.cleaners import WarmKafka
from benchmarks.inputs import Input, generate, size_bytes
from benchmarks.rounds import KAFKA, OURS, Measured, take_turns, warm_up
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import Rig

NEVER_SLOWER = Bounds(1)
SUSPICIOUS = 1.3
SHOWN = 10
# Kafka refuses batches, and cleaners records, of more than 1 MiB.
_MAX_BATCH_BYTES = 1_000_000
_LARGEST_SEGMENT = 1 << 30
_MAX_RECORDS = 1_500_000
_MAX_BATCHES = 400_000


class SweepResult(NamedTuple):
    """One shape, and how long the rounds on it took."""

    log: Input
    size_bytes: int
    kafka: float
    ours: float

    @property
    def ratio(self) -> float:
        """Return how many times faster ours is."""
        return self.kafka / self.ours


def draw(seed: int) -> Input:
    """Return the shape of a seed; the same seed draws the same shape."""
    chance = random.Random(seed)
    value_bytes = chance.choice(["1", "10", "100", "1000", "10000", "100000", "0-200", "1-20000"])
    key_bytes = chance.choice([3, 6, 8, 16, 36, 200])
    headers = chance.choice([0, 0, 0, 2, 20])
    max_value_bytes = int(value_bytes.split("-")[-1])
    max_record_bytes = max_value_bytes + key_bytes + 18 * headers + 20
    tombstones = chance.choice([0, 0, 0.1, 0.9])
    usual_value_bytes = (max_value_bytes if "-" not in value_bytes else max_value_bytes // 2) * (1 - tombstones)
    usual_record_bytes = int(usual_value_bytes) + key_bytes + 18 * headers + 8
    batch_bytes = chance.choice([1000, 16_384, 65_536, 65_536, _MAX_BATCH_BYTES])
    batch_records = chance.choice([1, 2, 10, 2_147_483_647, 2_147_483_647, 2_147_483_647])
    size = chance.choice([5_000_000, 20_000_000, 60_000_000])
    records_a_batch = max(1, min(batch_records, batch_bytes // usual_record_bytes))
    records = max(100, min(size // usual_record_bytes, _MAX_RECORDS, _MAX_BATCHES * records_a_batch))
    log_bytes = records * usual_record_bytes
    segment_bytes = chance.choice([_LARGEST_SEGMENT, 100 << 20, 1 << 20, log_bytes // 20, log_bytes // 1500])
    producers = chance.choice([0, 0, 1, 5, 100])
    options = {
        "seed": seed,
        "records": records,
        "keys": max(1, int(records * chance.choice([0.0, 0.001, 0.1, 0.25, 1.0, 5.0]))),
        "skew": chance.choice([0, 0, 3]),
        "key-bytes": key_bytes,
        "value-bytes": value_bytes,
        "entropy": chance.choice([0, 0.5, 1]),
        "tombstones": tombstones,
        "codec": chance.choice(["none", "none", "none", "lz4", "zstd", "snappy", "gzip", "none,lz4,zstd,snappy,gzip"]),
        "batch-bytes": batch_bytes,
        "batch-records": batch_records,
        # A batch has to fit a segment; a compressed one may be estimated too small.
        "segment-bytes": max(segment_bytes, 2 * max(batch_bytes, max_record_bytes)),
        "headers": headers,
        "log-append-time": chance.choice(["false", "false", "true"]),
        "producers": producers,
        "transactions": chance.choice([0, 1, 20, 200]) if producers else 0,
        "aborted": chance.choice([0, 0.2, 1]),
        "clean": chance.choice([0, 0, 0, 0.5, 0.95]),
    }
    return Input(f"seed {seed}", "W1", NEVER_SLOWER, options)


def try_one(rig: Rig, kafka: WarmKafka, log: Input, scratch: Path) -> SweepResult:
    """Write one log and let both clean it."""
    source = scratch / "source"
    shutil.rmtree(source, ignore_errors=True)
    generate(rig, log, source)
    measured = Measured(log, size_bytes(source))
    warm_up(log, kafka, source, scratch)
    take_turns(measured, kafka, source, scratch, runs=1)
    if measured.ratio(KAFKA, OURS) < SUSPICIOUS:
        take_turns(measured, kafka, source, scratch, runs=4)
    return SweepResult(log, measured.size_bytes, measured.median(KAFKA), measured.median(OURS))


def _described(log: Input) -> str:
    usual = {"skew": 0, "tombstones": 0, "codec": "none", "headers": 0, "log-append-time": "false", "producers": 0}
    usual |= {"transactions": 0, "clean": 0, "entropy": 0.5, "batch-records": 2_147_483_647}
    if not log.options["transactions"]:
        usual["aborted"] = log.options["aborted"]
    return " ".join(f"{key}={value}" for key, value in log.options.items() if usual.get(key) != value)


def describe(tried: SweepResult) -> str:
    """Return one line on one shape."""
    seconds = f"Kafka {tried.kafka:6.3f} s  ours {tried.ours:6.3f} s"
    return f"  {tried.ratio:6.2f} x  {tried.size_bytes / 1e6:4.0f} MB  {seconds}  {_described(tried.log)}"


def sweep_table(rig: Rig, scratch: Path, count: int, first_seed: int, report: Callable[[str], None]) -> str:
    """Try `count` shapes and lay out those on which ours gains least."""
    tried = []
    with WarmKafka(rig) as kafka:
        for seed in range(first_seed, first_seed + count):
            tried.append(try_one(rig, kafka, draw(seed), scratch))
            report(describe(tried[-1]))
    rows = [
        [
            _described(each.log),
            f"{each.size_bytes / 1e6:.0f}",
            f"{each.kafka:.3f}",
            f"{each.ours:.3f}",
            *NEVER_SLOWER.cells(each.ratio, " x"),
        ]
        for each in sorted(tried, key=lambda each: each.ratio)[:SHOWN]
    ]
    title = f"The worst of {count} random shapes against Kafka's warm cleaner"
    return table(title, ["options", "MB", "Kafka s", "ours s", "ratio", *HELD_TO], rows)
