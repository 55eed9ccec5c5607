"""
One simulated world: a machine with a disk, a clock, processes and their threads, all of them led by a seed.

While a world is installed, the product's threads and locks are its own (`cleaner.base.concurrency`), and so is the
system's randomness. One world at a time in a real process.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from cleaner.base import concurrency
from tests.simulation.disk import Disk, SimFiles
from tests.simulation.primitives import Primitives
from tests.simulation.processes import Process, state_per_process
from tests.simulation.scheduler import Scheduler, Task

EPOCH_MS = 1_800_000_000_000
_PRIMITIVES = ("Lock", "RLock", "Condition", "Event", "SimpleQueue", "Future", "Thread", "ThreadPoolExecutor")
_FUNCTIONS = ("wait", "current_thread", "report_uncaught")


class SimClock:
    """The machine's clocks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.wall_offset_ms = 0
        self.frozen_ms: int | None = None  # the wall clock stands still

    def now_ms(self) -> int:
        """Return the wall clock."""
        if self.frozen_ms is not None:
            return self.frozen_ms
        return EPOCH_MS + self.wall_offset_ms + self._scheduler.now_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the monotonic clock."""
        return self._scheduler.now_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        if self._scheduler.current is None:
            self._scheduler.take_time(int(seconds * 1e9))
        else:
            self._scheduler.block("sleep", self._scheduler.now_ns() + int(seconds * 1e9))


class World:
    """
    A world.

    Args:
        seed: of all its choices.
        root: the disk's directory, with files that are durable.
    """

    def __init__(self, seed: int | str, root: Path) -> None:
        self.seed = seed
        choices = Random(f"{seed}/world")
        is_pct = choices.random() < 0.3
        self.scheduler = Scheduler(
            Random(f"{seed}/schedule"),
            stretch=0.0 if is_pct else choices.choice((2.0, 5.0, 20.0, 60.0)),
            changes=choices.randrange(1, 8),
        )
        self.primitives = Primitives(self.scheduler)
        self.clock = SimClock(self.scheduler)
        self.disk = Disk(root, self.scheduler, Random(f"{seed}/disk"), Random(f"{seed}/habits"))
        self.disk.date_from(EPOCH_MS * 1_000_000)
        self.processes: list[Process] = []
        self._system = Random(f"{seed}/system")

    @contextlib.contextmanager
    def installed(self) -> Iterator[World]:
        """Put this world's threads, locks and randomness in the place of the system's."""
        names = {name: getattr(self.primitives, name) for name in (*_PRIMITIVES, *_FUNCTIONS)}
        before = {name: getattr(concurrency, name) for name in names}
        urandoms = os.urandom, random._urandom  # type: ignore[attr-defined]
        for name, value in names.items():
            setattr(concurrency, name, value)
        os.urandom = random._urandom = self._system.randbytes  # type: ignore[attr-defined]
        try:
            with state_per_process(self.scheduler):
                yield self
        finally:
            for name, value in before.items():
                setattr(concurrency, name, value)
            os.urandom, random._urandom = urandoms  # type: ignore[attr-defined]

    # ---- processes -------------------------------------------------------------------------------------------------

    def process(self, name: str) -> tuple[Process, SimFiles]:
        """Begin a process."""
        process = Process(name)
        self.processes.append(process)
        return process, SimFiles(self.disk, process)

    def spawn(self, process: Process, name: str, run: Callable[[], object]) -> Task:
        """Begin a thread of a process."""
        return self.scheduler.spawn(name, process, run)

    def begin(self, name: str, main: Callable[[SimFiles], object]) -> tuple[Process, Task]:
        """Begin a process that ends, with all it has, when its main thread ends."""
        process, fs = self.process(name)
        task = self.spawn(process, "main", lambda: main(fs))
        task.on_end.append(lambda: self.kill(process))
        return process, task

    def kill(self, process: Process) -> None:
        """Kill a process."""
        if not process.is_dead:
            process.die()
            self.scheduler.bury(process)

    def kill_all(self) -> None:
        """Kill all processes, as a power cut does."""
        for process in self.processes:
            self.kill(process)
