"""A writer and a cleaner, two processes in one log dir, each killed at random moments, again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleaner.app.options import CallContext, CleanOptions
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANER_CHECKPOINT
from tests.coexistence.actors import PARTITIONS, clean_once
from tests.coexistence.truth import Truth
from tests.scratch import scratch_directory

REPOSITORY = Path(__file__).parents[2]


class Actors:
    """The process whose children write and clean."""

    def __init__(self, log_dir: Path, journal: Path, errors: Path) -> None:
        self._errors = errors
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.coexistence.actors", str(log_dir), str(journal), str(errors)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._hear() == "ready"

    def start(self, role: str, seed: int) -> int:
        """Start a child; returns its number."""
        return int(self._tell(f"{role} {seed}"))

    def stop(self, child: int) -> None:
        """Let a child end in order."""
        self._end(f"stop {child}", "0")

    def kill(self, child: int) -> None:
        """Kill a child, which has not ended by itself."""
        self._end(f"kill {child}", str(-signal.SIGKILL))

    def _end(self, line: str, status: str) -> None:
        found = self._tell(line)
        assert not self._errors.exists(), self._errors.read_text()
        assert found == status

    def _tell(self, line: str) -> str:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self._hear()

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def actors(root: Path) -> Iterator[Actors]:
    """Start the process; at the end of the block it is gone, with its children."""
    (root / "log-dir").mkdir()
    (root / "journal").touch()
    found = Actors(root / "log-dir", root / "journal", root / "errors")
    try:
        yield found
    finally:
        found.process.communicate(timeout=20)


def judge(root: Path) -> int:
    """Compare every log with its journal; returns how many records were written."""
    truths = Truth.of(root / "journal")
    checkpoints = read_offset_checkpoint(FileSystem(), root / "log-dir" / CLEANER_CHECKPOINT)
    for partition in PARTITIONS:
        truths[str(partition)].judge(root / "log-dir" / str(partition), checkpoints.get(partition, 0))
    return sum(len(truth.entries) for truth in truths.values())


def run(root: Path, seed: int, turns: int) -> None:
    """Let both work, and kill one or the other after a while, `turns` times; then stop both and look."""
    rng = random.Random(seed)
    moment = threading.Event()
    with actors(root) as stage:
        children = {role: stage.start(role, rng.randrange(2**31)) for role in ("writer", "cleaner")}
        for _ in range(turns):
            moment.wait(rng.uniform(0, 0.25))
            for role in rng.choice((["writer"], ["cleaner"], ["cleaner"], ["writer", "cleaner"])):
                if rng.random() < 0.85:
                    stage.kill(children[role])
                else:
                    stage.stop(children[role])
                children[role] = stage.start(role, rng.randrange(2**31))
        # The writer ends last, and in order: a log that was left torn has been recovered by then.
        stage.kill(children["writer"])
        stage.stop(children["cleaner"])
        stage.stop(stage.start("writer", rng.randrange(2**31)))
    clean_once(root / "log-dir", CleanOptions(), CallContext())
    assert judge(root) > 0


def test_writer_and_cleaner_killed_at_random_moments_lose_nothing() -> None:
    """Whoever dies, and when: nothing written is lost, nothing comes back, the head is whole, nothing is left over."""
    seed = 1
    with scratch_directory() as root:
        try:
            run(root, seed, turns=40)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_writer_and_cleaner_killed_long_form(seed: int) -> None:
    """The same for longer."""
    with scratch_directory() as root:
        run(root, seed, turns=200)
