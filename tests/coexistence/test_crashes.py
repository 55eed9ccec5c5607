"""
Whoever dies beside the other, at whatever step: a table of crashes, each step of a round and of a writer in turn.

Both work in this process, each through a file system of its own that can be told to die: from then on nothing it is
asked to do happens, as if its process had been killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport, Refusal
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import NotCleanlyShutDownError
from cleaner.settings.sources import Sources
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANER_CHECKPOINT
from tests.coexistence.model_writer import ModelLog, ModelWriter
from tests.coexistence.truth import Truth
from tests.scratch import scratch_directory
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import Operation, WatchedFileSystem

PARTITION = TopicPartition("prices", 0)
SETTINGS = {
    "cleaner.pipeline.threads": "1",
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "100",
    "internal.segment.bytes": "700",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.threads": "1",
}


class Killed(BaseException):
    """The process is dead; nothing in it may catch this."""


class MortalFileSystem(WatchedFileSystem):
    """
    The files of a process that is killed at its `die_at`-th change (from 0); all later ones do not happen either.

    Attributes:
        changes: how many were asked for.
        last: the one that was not made.
    """

    def __init__(self, die_at: int | None = None) -> None:
        self.die_at = die_at
        self.changes = 0
        self.last = ""

    def before(self, operation: Operation) -> None:
        """Count, and die."""
        if operation.kind in ("fsync", "fsync_dir"):
            return
        number, self.changes = self.changes, self.changes + 1
        if self.die_at is not None and number >= self.die_at:
            self.last = self.last or str(operation)
            raise Killed


class Scene:
    """A log dir with a journal, and what may happen in it."""

    def __init__(self, root: Path) -> None:
        self.log_dir, self.journal = root / "log-dir", root / "journal"
        self.log_dir.mkdir(parents=True)

    def writer(self, fs: FileSystem | None = None, clock: Clock | None = None) -> ModelWriter:
        """Begin to write."""
        return ModelWriter(fs or MortalFileSystem(), self.log_dir, self.journal, clock or ManualClock(), [PARTITION])

    def clean(self, fs: FileSystem | None = None) -> CleanReport:
        """Clean once, alone or beside a writer."""
        sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
        lent = CallContext(fs=fs or MortalFileSystem())
        for outcome in clean_log_dir(self.log_dir, [str(PARTITION)], sources, CleanOptions(), lent):
            if isinstance(outcome, Refusal):
                raise outcome.error
            assert isinstance(outcome, CleanReport)
            return outcome
        raise AssertionError("nothing was said of the partition")

    def judge(self) -> None:
        """Compare with the journal."""
        checkpoint = read_offset_checkpoint(FileSystem(), self.log_dir / CLEANER_CHECKPOINT).get(PARTITION, 0)
        Truth.of(self.journal)[str(PARTITION)].judge(self.log_dir / str(PARTITION), checkpoint)


def dies(work: Callable[[], object]) -> bool:
    """Do something that may be killed; tells whether it was."""
    try:
        work()
    except Killed:
        return True
    return False


def write_some(log: ModelLog, rounds: int = 3) -> None:
    """Segments whose keys come again and again, transactions in some, and a torn-looking active one."""
    for number in range(rounds):
        log.append(("a", f"a at {log.end}"), ("b", f"b at {log.end}"), (f"once {log.end}", "!" * 60))
        log.append(("c", "aborted"), ("b", "aborted"), producer=1)
        log.append(("d", None if number % 2 else "d"))
        log.end_transaction(1, commit=number % 2 == 1)
        log.flush()
        log.roll()
        log.append(("a", f"alone at {log.end}"))
        log.append(("d", "again"))
        log.flush()
        log.roll()
    log.append(("a", "in the active segment"))


# What the one who is still there does after the other has died.


def _goes_on(scene: Scene, writer: ModelWriter) -> None:
    """The writer writes and rolls; a new cleaner cleans beside it; the writer stops."""
    write_some(writer.logs[0], 1)
    assert scene.clean().rounds == 1
    writer.stop()


def _cuts(scene: Scene, writer: ModelWriter) -> None:
    """The writer cuts into what was being cleaned, before any cleaner is there again."""
    log = writer.logs[0]
    places = log.batch_offsets(5)
    log.cut(places[len(places) // 2])
    write_some(log, 1)
    scene.clean()
    writer.stop()


def _deletes(scene: Scene, writer: ModelWriter) -> None:
    """The writer deletes its oldest segment."""
    writer.logs[0].delete_oldest()
    scene.clean()
    writer.stop()


def _dies_too(scene: Scene, writer: ModelWriter) -> None:
    """The writer is killed as well; nobody cleans until one is back, which recovers."""
    writer.abandon()
    with pytest.raises(NotCleanlyShutDownError):
        scene.clean()
    successor = scene.writer()
    write_some(successor.logs[0], 1)
    scene.clean()
    successor.stop()


def _stops(scene: Scene, writer: ModelWriter) -> None:
    """The writer ends in order; a cleaner without a writer settles what is left."""
    writer.stop()


_THEN = [_goes_on, _cuts, _deletes, _dies_too, _stops]


def _kill_cleaner(then: Callable[[Scene, ModelWriter], None], steps: Iterable[int]) -> None:
    """Kill a round before each of these changes, until there is no such change."""
    for step in steps:
        with scratch_directory() as root:
            scene = Scene(root)
            writer = scene.writer()
            write_some(writer.logs[0])
            fs = MortalFileSystem(die_at=step)
            was_killed = dies(partial(scene.clean, fs))
            try:
                then(scene, writer)
                scene.clean()
                scene.judge()
            except Exception as error:
                raise AssertionError(f"killed before change {step}, {fs.last}: {error!r}") from error
        if not was_killed:
            assert step > 60
            return


@pytest.mark.parametrize("number", range(len(_THEN)), ids=[then.__name__[1:] for then in _THEN])
def test_cleaner_killed_at_a_step_beside_a_writer(number: int) -> None:
    """Whatever a dead cleaner left, the writer and the next cleaner make of it a log that holds what was written."""
    _kill_cleaner(_THEN[number], itertools.count(number, 7))


@pytest.mark.slow
@pytest.mark.parametrize("then", _THEN, ids=lambda then: then.__name__[1:])
def test_cleaner_killed_at_every_step_beside_a_writer(then: Callable[[Scene, ModelWriter], None]) -> None:
    """The same at every step."""
    _kill_cleaner(then, itertools.count())


def _roll(log: ModelLog) -> None:
    log.roll()


def _cut_active(log: ModelLog) -> None:
    log.cut(log.batch_offsets(1)[-1])


def _cut_deep(log: ModelLog) -> None:
    places = log.batch_offsets(5)
    log.cut(places[len(places) // 2])


def _delete(log: ModelLog) -> None:
    log.delete_oldest()
    log.remove_deleted()


def _append(log: ModelLog) -> None:
    log.append(("a", "torn"), ("b", "torn"))
    log.end_transaction(2, commit=True)


def _stop(log: ModelLog) -> None:
    log.writer.stop()


_DEEDS = [_append, _roll, _cut_active, _cut_deep, _delete, _stop]


def _kill_writer(deed: Callable[[ModelLog], None], steps: Iterable[int], *, cleaned: bool) -> None:
    """Kill a writer before each of these changes of a deed, until there is no such change."""
    for step in steps:
        with scratch_directory() as root:
            scene = Scene(root)
            fs = MortalFileSystem()
            writer = scene.writer(fs)
            write_some(writer.logs[0])
            writer.logs[0].append(("x", "open"), producer=2)
            if cleaned:
                assert scene.clean().rounds == 1
            fs.die_at = fs.changes + step
            was_killed = _killed_while_a_cleaner_waits(scene, writer, deed)
            successor = scene.writer()
            write_some(successor.logs[0], 1)
            scene.clean()
            successor.stop()
            scene.clean()
            try:
                scene.judge()
            except AssertionError as error:
                raise AssertionError(f"killed before change {step}, {fs.last}: {error}") from error
        if not was_killed:
            assert step >= 2
            return


@pytest.mark.parametrize("deed", _DEEDS, ids=lambda deed: deed.__name__[1:])
def test_writer_killed_at_a_step_beside_a_cleaner(deed: Callable[[ModelLog], None]) -> None:
    """
    A round beside a writer that has just died takes nothing for flushed that is not, nor trips over what is half done.

    The round was begun while the writer lived: it holds the logs, so that it is beside a writer to its end.
    """
    _kill_writer(deed, itertools.count(0, 3), cleaned=True)


@pytest.mark.slow
@pytest.mark.parametrize("cleaned", [False, True], ids=["not-yet-cleaned", "cleaned"])
@pytest.mark.parametrize("deed", _DEEDS, ids=lambda deed: deed.__name__[1:])
def test_writer_killed_at_every_step_beside_a_cleaner(deed: Callable[[ModelLog], None], cleaned: bool) -> None:
    """The same at every step."""
    _kill_writer(deed, itertools.count(), cleaned=cleaned)


def _killed_while_a_cleaner_waits(scene: Scene, writer: ModelWriter, deed: Callable[[ModelLog], None]) -> bool:
    """Kill the writer under a cleaner's eyes, which then does its round; tells whether it was killed."""
    killed = []

    def kill() -> None:
        if not killed:
            killed.append(dies(partial(deed, writer.logs[0])))
            writer.abandon()

    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    lent = CallContext(fs=MortalFileSystem(), check_done=kill)
    outcomes = list(clean_log_dir(scene.log_dir, [str(PARTITION)], sources, CleanOptions(), lent))
    assert all(isinstance(outcome, CleanReport) for outcome in outcomes), outcomes
    return killed[0]
