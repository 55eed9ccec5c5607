"""
What long-lived processes hold: memory of their own, open files and threads, by the number of rounds.

Growth is a slope: the median of the slopes between any two samples of the second half of a life (Theil and Sen), which
a step or a peak hardly moves. The first half is warm-up: kernels are loaded, caches and the allocators' arenas fill up.
The processes run with `ALLOCATOR`, so that memory which they free goes back to the system. With glibc's own choices it
stays in an arena for each thread, whose peaks add up in steps of a megabyte or two for an hour, though nothing is held.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 5_000_000  # that a process may grow in a thousand rounds
MOST_FILES = 2.0
MOST_THREADS = 0.5
_LEAST_SAMPLES = 24
LEAST_ROUNDS = 200

ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(128 << 10),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 10),
}
"""Environment of the processes that are measured; see mallopt(3)."""


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

    @property
    def judged(self) -> list[Sample]:
        """The samples of the second half of its life."""
        return self.samples[len(self.samples) // 2 :]

    def growth(self) -> Growth | None:
        """Return the growth in the second half of its life; None: too few samples or rounds were in it."""
        samples = self.judged
        if len(samples) < _LEAST_SAMPLES or samples[-1].rounds - samples[0].rounds < LEAST_ROUNDS:
            return None

        def grown(name: str) -> float:
            points = [(each.rounds, getattr(each, name)) for each in samples]
            pairs = itertools.combinations(points, 2)
            slopes = [(late - early) / (end - begin) for (begin, early), (end, late) in pairs if end > begin]
            return statistics.median(slopes) * 1000

        return Growth(grown("bytes"), grown("files"), grown("threads"), samples[-1].rounds - samples[0].rounds)
