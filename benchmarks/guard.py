"""
A minute's benchmark that stops the worst: `make bench-guard`, part of what CI runs.

Small logs beside Kafka's warm cleaner in the same run. It fails when ours is below *a third* of what the full benchmark
must show, or slower than Kafka's: machines that others use are noisy, and a fixed cost weighs more on a small log. What
is below is measured once more.
Without Java it measures nothing and says so; under CI that is a failure.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.cleaners import WarmKafka
from benchmarks.inputs import (
    LZ4,
    ONE_RECORD_A_BATCH,
    PARTLY_CLEAN,
    TRANSACTIONS,
    W1,
    W2,
    Input,
    cached,
    size_bytes,
)
from benchmarks.rounds import KAFKA, OURS, Measured, take_turns, warm_up
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import VERSIONS, Rig, Unavailable

# The quarters of W1 become tenths.
GUARDED = (
    W1.scaled(0.2),
    W2.scaled(0.2),
    LZ4.scaled(0.4),
    ONE_RECORD_A_BATCH.scaled(0.4),
    PARTLY_CLEAN.scaled(0.4),
    TRANSACTIONS.scaled(0.4),
)
RUNS = 3


def guarded(bounds: Bounds) -> Bounds:
    """Return what a small log is held to."""
    return Bounds(max(1.0, bounds.must / 3))


def best_ratio(measured: Measured) -> float:
    """Return the ratio of the best runs: what else the machine does only ever makes a run slower."""
    return min(measured.seconds(KAFKA)) / min(measured.seconds(OURS))


def measure(log: Input, kafka: WarmKafka, source: Path, scratch: Path) -> Measured:
    """Measure one input; again when it seems too slow."""
    measured = Measured(log, size_bytes(source))
    warm_up(log, kafka, source, scratch)
    take_turns(measured, kafka, source, scratch, RUNS)
    if best_ratio(measured) < guarded(log.warm).must:
        take_turns(measured, kafka, source, scratch, RUNS)
    return measured


def row(measured: Measured) -> list[str]:
    """Lay out one input."""
    least = [f"{min(measured.seconds(what)):.3f}" for what in (KAFKA, OURS)]
    return [measured.log.title, *least, *guarded(measured.log.warm).cells(best_ratio(measured), " x")]


def main() -> int:
    """Measure, print, and return 1 when something is slower than a third of what it must be."""
    try:
        rig = Rig.load(VERSIONS[0])
    except Unavailable as error:
        is_ci = os.environ.get("CI", "").lower() in ("true", "1", "yes")
        print(f"BENCHMARK SKIPPED{', and CI allows no skip' if is_ci else ''}: {error}", file=sys.stderr)
        return 1 if is_ci else 0
    found = []
    with tempfile.TemporaryDirectory(prefix="cleaner-bench-") as scratch, WarmKafka(rig) as kafka:
        for log in GUARDED:
            found.append(measure(log, kafka, cached(rig, log), Path(scratch)))
    columns = ["input", "Kafka, least s", "ours, least s", "ratio", *HELD_TO]
    print(
        table("Kafka's warm cleaner and ours: at least a third of what must be", columns, [row(each) for each in found])
    )
    slow = [each.log.title for each in found if best_ratio(each) < guarded(each.log.warm).must]
    if slow:
        print(f"slower than a third of what must be: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
