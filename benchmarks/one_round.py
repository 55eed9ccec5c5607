"""
One round in a process of its own, which prints what it took as JSON:

    python -m benchmarks.one_round LOG_DIR PARTITION

Seconds and bytes are of the round alone: kernels are loaded before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import cleaner
from cleaner.cleaning.round.warm_up import warm_up


def _numbers(file: str) -> dict[str, int]:
    """Return the numbers of a file of `name: number` lines; a unit behind the number is left out."""
    rows = (line.split() for line in Path(file).read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def main() -> None:
    """Clean and tell."""
    log_dir, partition = sys.argv[1:]
    warm_up()
    before = _numbers("/proc/self/io")
    began = time.perf_counter()
    report = cleaner.clean(log_dir, partition, {"cleanup.policy": "compact"})
    seconds = time.perf_counter() - began
    after = _numbers("/proc/self/io")
    moved = {name: after[name] - before[name] for name in before}
    # Of this process since its exec, unlike what a parent is told of its children.
    peak_bytes = _numbers("/proc/self/status")["VmHWM"] * 1024
    found = {"seconds": seconds, "bytes_written": report.bytes_written, "peak_bytes": peak_bytes, "moved": moved}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
