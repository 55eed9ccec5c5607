"""The power goes while a writer and a cleaner are at work, on a disk that forgets in any order what was not fsynced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.settings.sources import Sources
from tests.coexistence.model_writer import ModelLog
from tests.coexistence.test_crashes import PARTITION, SETTINGS, Scene, write_some
from tests.scratch import scratch_directory
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState
from tests.support.watched_fs import Operation


class _NotedFileSystem(ForgetfulFileSystem):
    """
    A disk that forgets, with what the writer had noted, and promised, at each change.

    Attributes:
        noted_bytes: length of the journal as each change was made.
        flushed: what counts as flushed from which change on: (change, offset).
    """

    def __init__(self, scene: Scene) -> None:
        self.noted_bytes: list[int] = []
        self.flushed: list[tuple[int, int]] = []
        self._scene = scene
        super().__init__(scene.log_dir)
        self.noted_bytes = [0] * len(self.journal)

    def after(self, operation: Operation) -> None:
        """Note."""
        super().after(operation)
        size = self._scene.journal.stat().st_size
        self.noted_bytes.extend([size] * (len(self.journal) - len(self.noted_bytes)))

    def flushed_at(self, point: int) -> int:
        """Return the offset below which nothing may be lost at a moment."""
        return max((offset for change, offset in self.flushed if change <= point), default=0)


class _Busy:
    """A writer that goes on whenever the cleaner comes up for breath."""

    def __init__(self, log: ModelLog, fs: _NotedFileSystem) -> None:
        self._log = log
        self._fs = fs
        self._turn = 0

    def go_on(self) -> None:
        """Append; now and then flush, roll, or begin and end a transaction."""
        log, self._turn = self._log, self._turn + 1
        log.append(("a", f"a at {log.end}"), ("b", None if self._turn % 5 == 0 else "b"))
        if self._turn % 2 == 0:
            log.flush()
            self._fs.flushed.append((len(self._fs.journal), log.end))
        if self._turn % 3 == 0:
            log.append((f"once {log.end}", "aborted"), producer=3)
            log.roll()
        if self._turn % 3 == 1:
            log.abort_transactions()


def _run(scene: Scene) -> _NotedFileSystem:
    """Write, then clean twice beside the writer, which goes on meanwhile."""
    first = scene.writer()
    write_some(first.logs[0], 2)
    first.stop()
    fs = _NotedFileSystem(scene)
    writer = scene.writer(fs)
    busy = _Busy(writer.logs[0], fs)
    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    for _ in range(2):
        busy.go_on()
        lent = CallContext(fs=fs, check_done=busy.go_on)
        (outcome,) = clean_log_dir(scene.log_dir, [str(PARTITION)], sources, CleanOptions(), lent)
        assert isinstance(outcome, CleanReport)
        assert outcome.rounds == 1
    writer.abandon()
    return fs


def _survives(scene: Scene, fs: _NotedFileSystem, point: int, state: DiskState, scratch: Path) -> None:
    """Let a writer recover what a power cut left, and judge it."""
    shutil.rmtree(scratch, ignore_errors=True)
    after = Scene(scratch)
    state.write_to(after.log_dir)
    after.journal.write_bytes(scene.journal.read_bytes()[: fs.noted_bytes[point - 1]])
    try:
        writer = after.writer()
        assert writer.logs[0].end >= fs.flushed_at(point), f"flushed up to {fs.flushed_at(point)}"
        writer.stop()
        after.clean()
        after.judge()
    except Exception as error:
        raise AssertionError(f"{state.note}: {error!r}") from error


def _cut_the_power(limit: int, seed: int, every: int) -> None:
    with scratch_directory() as root:
        (root / "before").mkdir()
        scene = Scene(root / "before")
        fs = _run(scene)
        points = [point for point in fs.crash_points() if point > fs.start]
        assert len(points) > 100
        for point in points[seed % every :: every]:
            for state in fs.states_at(point, limit=limit, seed=seed):
                _survives(scene, fs, point, state, root / "after")


def test_power_cut_beside_a_writer_loses_nothing_that_was_flushed() -> None:
    """Whatever the disk forgets of what both were doing, all that was flushed is there, cleaned or not."""
    _cut_the_power(limit=3, seed=1, every=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_power_cut_beside_a_writer_long_form(seed: int) -> None:
    """The same at every fsync, with more states each."""
    _cut_the_power(limit=12, seed=seed, every=1)
