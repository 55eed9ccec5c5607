"""What long-lived processes hold: memory of their own, open files and threads, by the number of rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 5_000_000  # that a process may grow in a thousand rounds
MOST_FILES = 2.0
MOST_THREADS = 0.5
_WARM_UP = 0.25  # the share of samples at the beginning that do not count
_LEAST_SAMPLES = 24
LEAST_ROUNDS = 200


class Sample(NamedTuple):
    """What a process holds at one moment; bytes: not shared with other processes and not of files."""

    rounds: float
    bytes: int
    files: int
    threads: int


class Growth(NamedTuple):
    """How much a process has grown in a thousand rounds."""

    bytes: float
    files: float
    threads: float
    rounds: float

    def __str__(self) -> str:
        return (
            f"{self.bytes / 1e6:+.2f} MB, {self.files:+.2f} files, {self.threads:+.2f} threads a thousand rounds, "
            f"over {self.rounds:.0f} rounds"
        )

    def is_flat(self) -> bool:
        """Tell whether this is within the limits."""
        return self.bytes <= MOST_BYTES and self.files <= MOST_FILES and self.threads <= MOST_THREADS


@dataclass
class Gauge:
    """The samples of one process, from its start to its end."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def take(self, rounds: float) -> None:
        """Take a sample; nothing of a process that has ended."""
        process = Path(f"/proc/{self.pid}")
        try:
            rollup = (process / "smaps_rollup").read_text().splitlines()
            files = len(list((process / "fd").iterdir()))
            threads = len(list((process / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return
        size = sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Dirty:", "Swap:")))
        if size:  # none: it has just ended
            self.samples.append(Sample(rounds, size * 1024, files, threads))

    def growth(self) -> Growth | None:
        """Return the growth between the medians of the first and last third; None: it did not live long enough."""
        samples = self.samples[int(len(self.samples) * _WARM_UP) :]
        third = len(samples) // 3
        if len(samples) < _LEAST_SAMPLES:
            return None
        first, last = samples[:third], samples[-third:]
        rounds = statistics.median(each.rounds for each in last) - statistics.median(each.rounds for each in first)
        if samples[-1].rounds - samples[0].rounds < LEAST_ROUNDS or rounds <= 0:
            return None

        def grown(name: str) -> float:
            late, early = (statistics.median(getattr(each, name) for each in some) for some in (last, first))
            return (late - early) / rounds * 1000

        return Growth(grown("bytes"), grown("files"), grown("threads"), samples[-1].rounds - samples[0].rounds)
