"""
A process that writes to many logs beside the daemon, until it is told to stop or the disk is full.

    python -m tests.day.writer LOG_DIR JOURNAL SEED PARTITIONS STEPS_A_SECOND

SIGTERM closes all logs in order, exit code 0. Without room it is gone as if killed, exit code 28.
"""

from __future__ import annotations

import errno
import random
import sys
import time
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirLockedError, LogDirOfflineError, NoSpaceError
from tests.coexistence.actors import MemoryFileSystem, Told, take_step
from tests.coexistence.model_writer import ModelWriter

NO_ROOM = errno.ENOSPC
_PATIENCE_SECONDS = 30.0


def partition(number: int) -> TopicPartition:
    """Return a partition by its number; three topics share them."""
    return TopicPartition(f"topic-{number % 3}", number // 3)


def open_writer(log_dir: Path, journal: Path, partitions: list[TopicPartition]) -> ModelWriter:
    """Open all logs; a daemon that recovers them at the moment is waited for."""
    clock = SystemClock()
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ModelWriter(MemoryFileSystem(), log_dir, journal, clock, partitions)
        except LogDirLockedError:
            if time.monotonic() > until:
                raise
            clock.sleep(0.01)


def write(log_dir: Path, journal: Path, seed: int, partitions: int, steps_a_second: float) -> None:
    """Write until told to stop, then close in order."""
    rng, told, clock = random.Random(seed), Told(), SystemClock()
    writer = open_writer(log_dir, journal, [partition(number) for number in range(partitions)])
    print("ready", flush=True)
    while not told.stop:
        take_step(rng, rng.choice(writer.logs))
        clock.sleep(1 / steps_a_second)
    for log in writer.logs:
        log.abort_transactions()
        log.roll()
        log.remove_deleted()
    writer.stop()


def main() -> int:
    """Write, as the arguments say; returns the exit code."""
    log_dir, journal, seed, partitions, steps_a_second = sys.argv[1:]
    try:
        write(Path(log_dir), Path(journal), int(seed), int(partitions), float(steps_a_second))
    except (NoSpaceError, LogDirOfflineError, OSError) as error:
        cause = error.cause if isinstance(error, LogDirOfflineError) else error
        if isinstance(error, NoSpaceError) or (isinstance(cause, OSError) and cause.errno == errno.ENOSPC):
            return NO_ROOM
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
