"""
`erase` of 1 000 keys beside a cleaning round, and `cp -r`, `sync` and `rm -r`, of the same log, in turns.

The keys are spread over the log, so that every segment has some of them. Erasing writes what stays, nearly all; a round
writes what is not superseded, and of W2 that is a fifth. Of a log that is 80 % clean already both write nearly all. All
is done in this process, with kernels loaded and the page cache as the copying has left it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import cleaner
from benchmarks.cleaners import NOW_MS, clean_ours, copy, copy_plainly
from benchmarks.inputs import PARTITION, PARTLY_CLEAN, W1, W2, cached
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import Rig

KEYS = 1000
OF_A_ROUND = Bounds(1.5, at_most=True)
LARGE = 20  # times W2: 10 GB


def _some_keys(log_dir: Path) -> list[bytes]:
    """Return keys at even distances."""
    topic, _, number = PARTITION.rpartition("-")
    with cleaner.open_reader(log_dir, topic, int(number)) as reader:
        end, keys = reader.log_end_offset, dict[bytes, None]()
        for place in range(2 * KEYS):
            record = next(iter(reader.read(place * end // (2 * KEYS), max_records=1)))
            if record.key is not None:
                keys[record.key] = None
    return list(keys)[:: max(1, len(keys) // KEYS)][:KEYS]


def _erase(log_dir: Path, keys: list[bytes]) -> tuple[float, cleaner.EraseReport]:
    began = time.perf_counter()
    (report,) = cleaner.erase(log_dir, [PARTITION], keys, {"cleanup.policy": "compact"}, now_ms=NOW_MS)
    seconds = time.perf_counter() - began
    if isinstance(report, cleaner.Refusal):
        raise report.error
    return seconds, report


def erase_table(rig: Rig, scratch: Path, runs: int, *, large: bool) -> str:
    """Measure and lay out."""
    rows = []
    for log in (W1, W2, PARTLY_CLEAN.scaled(4), W2.scaled(LARGE))[: 3 + large]:
        source = cached(rig, log)
        keys = _some_keys(source)
        rounds, copies, erasures = list[float](), list[float](), list[float]()
        for _ in range(runs):
            rounds.append(clean_ours(copy(source, scratch / "logs")).whole)
            copies.append(copy_plainly(source, scratch / "plain"))
            seconds, report = _erase(copy(source, scratch / "logs"), keys)
            erasures.append(seconds)
        ratio = statistics.median(mine / other for mine, other in zip(erasures, rounds, strict=True))
        what = f"{report.records} records in {len(report.files)} of {report.segments} segments"
        seconds_of = [f"{statistics.median(each):.2f}" for each in (rounds, copies, erasures)]
        rows.append([log.title, f"{report.bytes / 1e6:.0f} MB", what, *seconds_of, *OF_A_ROUND.cells(ratio, " x")])
    head = ["log", "size", "erased", "round, s", "`cp`, s", "erase, s", "erase to round", *HELD_TO]
    return table(f"Erasing {KEYS} keys beside a cleaning round", head, rows)
