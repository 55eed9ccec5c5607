"""
A process whose children write and clean in one log dir, to be killed at any moment.

    python -m tests.coexistence.actors LOG_DIR JOURNAL ERRORS

It cleans a small log by itself first, so that everything is imported and compiled, and says `ready`. Then it obeys
lines on its standard input, and answers each with a line:

    writer SEED | cleaner SEED    fork a child that goes on until it is told to stop; its number
    stop PID | kill PID           SIGTERM or SIGKILL, and wait; how it ended

What a child did not expect it writes to the file ERRORS.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import Refusal
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import CleaningAborted, LogChangedError, LogDirLockedError, NotCleanlyShutDownError
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from tests.coexistence.model_writer import ModelLog, ModelWriter
from tests.coexistence.truth import keys
from tests.support.log_builder import LogBuilder, write_log_dir

PARTITIONS = [TopicPartition("prices", 0), TopicPartition("orders", 3)]
SETTINGS = {
    "cleaner.pipeline.threads": "1",
    "cleanup.policy": "compact",
    "delete.retention.ms": "20",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "100",
    "internal.segment.bytes": "1500",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.threads": "1",
}
_KEYS = keys(range(25))
_PAUSE_SECONDS = 0.002


class MemoryFileSystem(FileSystem):
    """Files that only a killed process can lose: nothing is forced to disk."""

    def fsync_dir(self, path: Path) -> None:
        """Believe it."""

    def fsync_all(self, directory: Path, names: object) -> None:
        """Believe it."""


class Told:
    """Whether a child was told to stop; one whose parent has gone has nobody left to tell it."""

    def __init__(self) -> None:
        self._is_published = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _note(self, *_: object) -> None:
        self._is_published = True

    @property
    def stop(self) -> bool:
        """It was, or ought to have been."""
        return self._is_published or os.getppid() != self._parent

    def check(self) -> None:
        if self.stop:
            raise CleaningAborted("told to stop")


def write(log_dir: Path, journal: Path, seed: int) -> None:
    """Write until told to stop, then close in order."""
    rng, told = random.Random(seed), Told()
    writer = ModelWriter(MemoryFileSystem(), log_dir, journal, SystemClock(), PARTITIONS)
    while not told.stop:
        take_step(rng, rng.choice(writer.logs))
    for log in writer.logs:
        log.abort_transactions()
        log.roll()
    writer.stop()


def take_step(rng: random.Random, log: ModelLog) -> None:
    """Do one of the things a writer does."""
    share = rng.random()
    opened = log.open_transactions()
    if share < 0.70:
        chosen = rng.sample(_KEYS, rng.randint(1, 4))
        log.append(*[(key, None if rng.random() < 0.1 else f"{log.end} {'.' * rng.randint(0, 30)}") for key in chosen])
    elif share < 0.77:
        log.append((rng.choice(_KEYS), f"transaction at {log.end}"), producer=rng.randint(1, 3))
    elif share < 0.82 and opened:
        log.end_transaction(rng.choice(opened), commit=rng.random() < 0.5)
    elif share < 0.92:
        log.flush()
    elif share < 0.95:
        log.roll()
    elif share < 0.97:
        cut(rng, log, segments=1)
    elif share < 0.975:
        cut(rng, log, segments=4)
    elif share < 0.98:
        log.delete_oldest()
    else:
        log.remove_deleted()
    if len(log.active.log) > 700:
        log.roll()


def cut(rng: random.Random, log: ModelLog, segments: int) -> None:
    """Cut the log somewhere in its last segments."""
    places = log.batch_offsets(segments)
    if places:
        log.cut(rng.choice(places))


def clean(log_dir: Path, seed: int) -> None:
    """Clean until told to stop; some recover what nobody writes to."""
    rng, told, clock = random.Random(seed), Told(), SystemClock()
    surroundings = CallContext(fs=MemoryFileSystem(), check_done=told.check)
    options = CleanOptions(recover=rng.random() < 0.3)
    while not told.stop:
        try:
            clean_once(log_dir, options, surroundings)
        except (LogDirLockedError, NotCleanlyShutDownError, CleaningAborted):
            clock.sleep(_PAUSE_SECONDS)


def clean_once(log_dir: Path, options: CleanOptions, surroundings: CallContext) -> None:
    """Clean every log once; a log that is being changed is let be."""
    sources = Sources.of_call(None, SETTINGS, None, None)
    names = [str(partition) for partition in PARTITIONS if (log_dir / str(partition)).is_dir()]
    if not names:
        raise CleaningAborted("no log yet")
    for outcome in clean_log_dir(log_dir, names, sources, options, surroundings):
        if isinstance(outcome, Refusal) and not isinstance(outcome.error, LogChangedError):
            raise outcome.error


def warm_up() -> None:
    """Import and compile what a round needs."""
    with tempfile.TemporaryDirectory() as scratch:
        log = LogBuilder(PARTITIONS[0])
        for number in range(3):
            log.append(("k", f"v{number}"))
            log.roll()
        log_dir = write_log_dir(Path(scratch), log)
        clean_once(log_dir, CleanOptions(), CallContext())


def fork(work: Callable[[], None], errors: Path) -> int:
    """Do work in a child; returns its number. A SIGTERM waits until the child is ready for it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001  the child's end
        with errors.open("a") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(status)


def main() -> None:
    """Serve until the standard input ends."""
    log_dir, journal, errors = map(Path, sys.argv[1:])
    warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        word, number = line.split()
        if word == "writer":
            print(fork(partial(write, log_dir, journal, int(number)), errors), flush=True)
        elif word == "cleaner":
            print(fork(partial(clean, log_dir, int(number)), errors), flush=True)
        else:
            os.kill(int(number), signal.SIGTERM if word == "stop" else signal.SIGKILL)
            print(os.waitstatus_to_exitcode(os.waitpid(int(number), 0)[1]), flush=True)


if __name__ == "__main__":
    main()
