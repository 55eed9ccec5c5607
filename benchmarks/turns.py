"""Several ways to do the same, measured in turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

Way = Callable[[Path], float]
"""Does it once, in an empty directory, and returns the seconds; what it only prepares is not among them."""


def take_turns(ways: Mapping[str, Way], runs: int, scratch: Path) -> dict[str, float]:
    """Return the median seconds of each way; a first turn of all warms them up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs + 1):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory(dir=scratch) as directory:
                os.sync()
                taken = way(Path(directory))
            if turn:
                seconds[name].append(taken)
    return {name: statistics.median(each) for name, each in seconds.items()}
