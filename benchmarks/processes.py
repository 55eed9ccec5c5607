"""
Whole processes on W1, from their start to their end: `cleaner clean` beside Kafka's cleaner in a fresh JVM, and the
most memory `cleaner clean` has resident.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.cleaners import HEAP, NOW_MS, copy
from benchmarks.inputs import PARTITION, W1, cached
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import CLEANING_ROUND, Rig
from tests.peak_memory import run_measured

COLD = Bounds(4, 6)
# A million keys of 24 bytes, nine tenths of the table full.
SIZED_BUFFER_BYTES = 28 << 20
DEFAULT_PEAK_MB = Bounds(330, at_most=True)
SIZED_PEAK_MB = Bounds(240, at_most=True)


def our_command(log_dir: Path, *settings: str) -> list[str]:
    """Return the command that cleans the input's partition."""
    words = [sys.executable, "-m", "cleaner", "clean", str(log_dir), PARTITION, "--set", "cleanup.policy=compact"]
    return words + [word for setting in settings for word in ("--set", setting)]


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - began


def cold_table(rig: Rig, scratch: Path, runs: int) -> str:
    """Take turns; the page cache is warm, our kernels are in their cache, and nothing else is."""
    source = cached(rig, W1)
    settings = scratch / "settings.properties"
    settings.write_text("cleanup.policy=compact\n")
    kafka, ours = [], []
    _seconds(our_command(copy(source, scratch / "ours")))
    for _ in range(runs):
        log_dir = copy(source, scratch / "kafka")
        kafka.append(_seconds(rig.command(CLEANING_ROUND, log_dir, PARTITION, NOW_MS, settings, heap=HEAP)))
        ours.append(_seconds(our_command(copy(source, scratch / "ours"))))
    slow, fast = statistics.median(kafka), statistics.median(ours)
    row = [W1.name, f"{slow:.2f}", f"{fast:.2f}", *COLD.cells(slow / fast, " x")]
    title = "Whole processes: cleaner clean, and Kafka's cleaner in a fresh JVM"
    return table(title, ["input", "Kafka s", "ours s", "ratio", *HELD_TO], [row])


def memory_table(rig: Rig, scratch: Path) -> str:
    """Measure the command with the default buffer, and with one just large enough for the keys there are."""
    source = cached(rig, W1)
    rows = []
    sized = f"log.cleaner.dedupe.buffer.size={SIZED_BUFFER_BYTES}"
    for name, settings, bounds in (("default", [], DEFAULT_PEAK_MB), ("sized to need", [sized], SIZED_PEAK_MB)):
        finished = run_measured(our_command(copy(source, scratch / "ours"), *settings))
        if finished.status != 0:
            raise RuntimeError(finished.errors)
        rows.append([f"W1, {name}", *bounds.cells(finished.peak_bytes / 1e6, " MB")])
    return table("Peak resident memory of cleaner clean", ["dedupe buffer", "peak", *HELD_TO], rows)
