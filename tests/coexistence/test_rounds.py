"""What a round beside a writer does, and what it leaves alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import CleanReport, Refusal
from cleaner.app.session import Session, open_session
from cleaner.base.clock import SystemClock
from cleaner.base.io_throttle import IoThrottle
from cleaner.base.model import TopicPartition
from cleaner.daemon.dir_locks import DirLocks
from cleaner.errors import (
    CorruptBatchError,
    LogChangedError,
    LogDirLockedError,
    NotCleanlyShutDownError,
    WriterWaitingError,
)
from cleaner.settings.resolver import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.partition_lock import partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment import names
from cleaner.storage.segment.generation import Generations
from tests.coexistence.model_writer import ModelLog, ModelWriter
from tests.coexistence.test_crashes import PARTITION, SETTINGS, Scene, write_some
from tests.coexistence.truth import read_log
from tests.scratch import scratch_directory
from tests.support.manual_clock import ManualClock


@pytest.fixture
def scene() -> Iterator[Scene]:
    """An empty log dir in memory."""
    with scratch_directory() as root:
        yield Scene(root)


@pytest.fixture
def writer(scene: Scene) -> Iterator[ModelWriter]:
    """A writer with a log that has something to clean; at the end the log is what the journal says."""
    found = scene.writer(clock=SystemClock())
    write_some(found.logs[0])
    yield found
    found.stop()
    scene.clean()
    scene.judge()


def attempt(scene: Scene, options: CleanOptions | None = None, *, asked: Callable[[], None] = lambda: None) -> object:
    """Clean, and return the one thing that came of it."""
    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    lent = CallContext(check_done=asked)
    outcomes = list(clean_log_dir(scene.log_dir, [str(PARTITION)], sources, options or CleanOptions(), lent))
    assert len(outcomes) == 1
    return outcomes[0]


def once(deed: Callable[[], object]) -> Callable[[], None]:
    """Do something the third time it is asked for: the log is loaded then, and its map begun."""
    asked: list[None] = []

    def ask() -> None:
        asked.append(None)
        if len(asked) == 3:
            deed()

    return ask


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Return what tells a file's content, by name."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.iterdir() if path.is_file()}


def test_round_beside_a_writer_cleans_up_to_its_active_segment(scene: Scene, writer: ModelWriter) -> None:
    """Everything that is closed and replicated is cleaned, without a marker and without recovery."""
    report = attempt(scene)
    assert isinstance(report, CleanReport)
    assert (report.rounds, report.end_offset) == (1, writer.logs[0].active.base_offset)
    assert LogDir(FileSystem(), scene.log_dir).cleaner_offsets == {PARTITION: report.end_offset}


def test_round_beside_a_writer_leaves_the_writers_files_alone(scene: Scene, writer: ModelWriter) -> None:
    """
    The checkpoints that are the writer's, its active segment, its snapshots and the marker stay as they are.

    Neither recovery nor retention is done, though both were asked for.
    """
    log = writer.logs[0]
    before, own_before = files(scene.log_dir), files(log.directory)
    report = attempt(scene, CleanOptions(recover=True, retention=True, high_watermark="end"))
    assert isinstance(report, CleanReport)
    assert report.rounds == 1
    after = files(scene.log_dir)
    changed = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    assert changed == {names.CLEANER_CHECKPOINT, names.GENERATIONS}
    kept = {name for name, about in files(log.directory).items() if own_before.get(name) == about}
    active = names.segment_file_name(log.active.base_offset, "")
    newest = names.snapshot_file_name(log.active.base_offset)
    assert {name for name in own_before if name.startswith(active)} | {newest, names.LEADER_EPOCHS} <= kept


@pytest.mark.parametrize("choice", ["checkpoint", "end", 2**40], ids=str)
def test_round_beside_a_writer_stays_below_the_high_watermark(scene: Scene, choice: str | int) -> None:
    """Whatever high watermark the caller chooses, nothing counts as replicated that the writer has not checkpointed."""
    writer = scene.writer()
    log = writer.logs[0]
    write_some(log, 1)
    flushed = writer.log_dir.high_watermarks[PARTITION]
    for _ in range(4):
        log.append(("a", "not flushed"))
        log.roll()
    report = attempt(scene, CleanOptions(high_watermark=choice))  # type: ignore[arg-type]
    assert isinstance(report, CleanReport)
    assert 0 < report.end_offset <= flushed < log.active.base_offset
    writer.abandon()


def test_round_beside_a_writer_without_high_watermark_cleans_nothing(scene: Scene) -> None:
    """A writer that has never flushed is taken at its word."""
    writer = scene.writer()
    log = writer.logs[0]
    for number in range(3):
        log.append(("a", str(number)))
        log.roll()
    for choice in (CleanOptions(), CleanOptions(high_watermark="end")):
        report = attempt(scene, choice)
        assert isinstance(report, CleanReport)
        assert (report.rounds, report.end_offset) == (0, 0)
    writer.abandon()


def test_open_transaction_ends_the_range_beside_a_writer(scene: Scene, writer: ModelWriter) -> None:
    """A transaction that was open when the active segment began counts as open, and its marker is seen a roll later."""
    log = writer.logs[0]
    log.roll()
    first = log.append(("a", "of a transaction"), producer=5)
    log.roll()
    log.append(("a", "later"))
    log.roll()
    log.append(("b", "later"))
    log.end_transaction(5, commit=True)
    log.flush()
    report = attempt(scene)
    assert isinstance(report, CleanReport)
    assert report.end_offset == first
    log.roll()
    report = attempt(scene)
    assert isinstance(report, CleanReport)
    assert report.end_offset == log.active.base_offset


@pytest.mark.parametrize(
    "deed",
    [
        lambda log: log.cut(log.batch_offsets(4)[1]),
        lambda log: log.cut(log.batch_offsets(5)[0]),
        lambda log: log.cut(log.batch_offsets(2)[1]),
        lambda log: log.delete_oldest(),
    ],
    ids=["cut-in-the-range", "cut-at-a-base", "cut-the-last-closed", "delete-oldest"],
)
def test_log_changed_under_a_round_is_begun_anew(
    scene: Scene, writer: ModelWriter, deed: Callable[[ModelLog], object]
) -> None:
    """A round whose log is cut or shortened swaps nothing it should not, and the next attempt cleans what is left."""
    report = attempt(scene, asked=once(lambda: deed(writer.logs[0])))
    assert isinstance(report, CleanReport)
    assert report.end_offset <= writer.logs[0].active.base_offset
    assert list(writer.logs[0].directory.glob("*.cleaned")) == []


def test_value_is_kept_when_the_newer_one_was_cut_meanwhile(scene: Scene) -> None:
    """A round that has seen a newer value, which the writer then takes back, does not remove the older one."""
    writer = scene.writer()
    log = writer.logs[0]
    for number in range(4):
        # Long enough for each segment to be a group of its own.
        log.append(("a", f"a{number}"), ("b", f"b{number}"), (f"once {number}", "!" * 500))
        log.append(("a", "again"))
        log.flush()
        log.roll()
    phases: list[str] = []

    def cut(phase: str, _done: int, _total: int) -> None:
        if phase.endswith(" copy") and not phases:
            phases.append(phase)
            log.cut(log.batch_offsets(3)[0])

    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    (outcome,) = clean_log_dir(scene.log_dir, [str(PARTITION)], sources, CleanOptions(), CallContext(progress=cut))
    assert isinstance(outcome, CleanReport)
    assert phases
    last = {record.key: record.value for record in read_log(log.directory).values()}
    assert (last[b"a"], last[b"b"]) == (b"again", b"b1")
    writer.abandon()


def test_checkpoint_is_not_written_over_a_cut(scene: Scene) -> None:
    """A log that is cut between the last swap and the checkpoint keeps the line the writer has lowered."""
    writer = scene.writer(clock=SystemClock())
    log = writer.logs[0]
    for number in range(3):
        log.append(("a", f"a{number}"), ("b", f"b{number}"))
        log.flush()
        log.roll()

    class CutsOnRemoval(FileSystem):
        """The one group is swapped, and its old files are about to go."""

        def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
            super().remove_all(directory, names, threads)
            if log.end == 6 and any(name.endswith(".log.deleted") for name in names):
                log.cut(0)

    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    lent = CallContext(fs=CutsOnRemoval())
    (outcome,) = clean_log_dir(scene.log_dir, [str(PARTITION)], sources, CleanOptions(), lent)
    assert isinstance(outcome, CleanReport)
    assert (log.end, outcome.rounds) == (0, 0)
    assert LogDir(FileSystem(), scene.log_dir).cleaner_offsets.get(PARTITION, 0) == 0
    writer.abandon()


def test_log_that_always_changes_is_given_up_for_now(scene: Scene, writer: ModelWriter) -> None:
    """A writer that cuts the log each time it is looked at is let be after some attempts; nothing is wrong."""
    log = writer.logs[0]

    def change() -> None:
        log.cut(log.batch_offsets(4)[0])
        write_some(log, 1)

    outcome = attempt(scene, asked=change)
    assert isinstance(outcome, Refusal)
    assert isinstance(outcome.error, LogChangedError)


def test_damage_beside_a_writer_is_damage(scene: Scene) -> None:
    """A flipped bit in a closed segment is not taken for the writer's doing."""
    writer = scene.writer()
    log = writer.logs[0]
    write_some(log)
    path = sorted(log.directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    outcome = attempt(scene)
    assert isinstance(outcome, Refusal)
    assert isinstance(outcome.error, CorruptBatchError)
    writer.abandon()


def test_roll_under_a_round_changes_nothing_for_it(scene: Scene, writer: ModelWriter) -> None:
    """A writer may append and roll as it likes; the round goes on with what it has loaded."""
    end = writer.logs[0].active.base_offset
    report = attempt(scene, asked=once(lambda: write_some(writer.logs[0], 2)))
    assert isinstance(report, CleanReport)
    assert report.end_offset == end


def test_writer_that_starts_aborts_a_round_without_one(scene: Scene) -> None:
    """A round that has the logs to itself gives way; the writer loads them, and the next round is beside it."""
    first = scene.writer()
    write_some(first.logs[0])
    first.stop()
    started: list[ModelWriter] = []
    thread = threading.Thread(target=lambda: started.append(scene.writer(clock=SystemClock())))

    def let_it_start() -> None:
        if thread.ident is None:
            thread.start()
        while thread.is_alive() and not session.lock.logs.is_writer_waiting():
            os.sched_yield()

    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    with open_session(scene.log_dir, sources, CallContext(check_done=let_it_start)) as session:
        assert not session.beside_writer
        with pytest.raises(WriterWaitingError):
            session.check_done()
    thread.join()
    report = attempt(scene)
    assert isinstance(report, CleanReport)
    assert report.rounds == 1
    started[0].stop()
    scene.clean()
    scene.judge()


def test_marker_and_no_marker_without_a_writer(scene: Scene) -> None:
    """What a dead writer left is not touched before it is recovered; what a stopped one left is cleaned."""
    writer = scene.writer()
    write_some(writer.logs[0])
    writer.abandon()
    before = files(writer.logs[0].directory)
    with pytest.raises(NotCleanlyShutDownError):
        attempt(scene)
    assert files(writer.logs[0].directory) == before
    report = attempt(scene, CleanOptions(recover=True))
    assert isinstance(report, CleanReport)
    assert report.rounds == 1
    recover_log_dir(scene.log_dir, None, Sources.of_call(PARTITION.topic, SETTINGS, None, None), CallContext())
    scene.judge()


def test_recovery_beside_a_writer_is_refused(scene: Scene, writer: ModelWriter) -> None:
    """`cleaner recover` needs the log dir to itself."""
    sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
    with pytest.raises(LogDirLockedError):
        recover_log_dir(scene.log_dir, None, sources, CallContext())
    assert writer.lock.logs.is_beside_writer is False


def test_deleted_files_of_the_writer_wait_for_their_delay(scene: Scene, writer: ModelWriter) -> None:
    """A segment the writer has just deleted keeps its other name for `file.delete.delay.ms`; no cleaner is quicker."""
    log = writer.logs[0]
    log.delete_oldest()
    waiting = {path.name for path in log.directory.glob("*.deleted")}
    assert waiting
    sources = Sources.of_call(PARTITION.topic, {**SETTINGS, "file.delete.delay.ms": "60000"}, None, None)
    list(clean_log_dir(scene.log_dir, [str(PARTITION)], sources, CleanOptions(), CallContext()))
    assert waiting <= {path.name for path in log.directory.iterdir()}


def test_deleted_files_a_dead_cleaner_left_are_removed(scene: Scene, writer: ModelWriter) -> None:
    """They would else take room until the writer is opened anew."""
    left = writer.logs[0].directory / "00000000000000000000.index.deleted"
    left.write_bytes(b"left over")
    os.utime(left, ns=(1, 1))
    while SystemClock().now_ms() <= left.stat().st_ctime_ns // 1_000_000:
        os.sched_yield()  # for the clock to have moved on by a millisecond
    assert isinstance(attempt(scene), CleanReport)
    assert not left.exists()


class Reader:
    """A reader that keeps files open and looks again when the generation says so."""

    def __init__(self, writer: ModelWriter) -> None:
        self.writer = writer
        self.looks = 0
        self.generation = -1
        self.descriptors: list[int] = []

    def read(self) -> bytes:
        """Return the bytes of all segments."""
        generations, log = self.writer.generations, self.writer.logs[0]
        if generations.of(PARTITION) != self.generation:
            self.close()
            with partition_lock(self.writer.fs, self.writer.log_dir.path, PARTITION, self.writer.clock, shared=True):
                self.generation = generations.of(PARTITION)
                self.descriptors = [os.open(path, os.O_RDONLY) for path in sorted(log.directory.glob("*.log"))]
            self.looks += 1
        return b"".join(os.pread(each, os.fstat(each).st_size, 0) for each in self.descriptors)

    def close(self) -> None:
        """Close all files."""
        for each in self.descriptors:
            os.close(each)
        self.descriptors = []


def test_reader_looks_again_after_a_swap_and_only_then(scene: Scene, writer: ModelWriter) -> None:
    """What a reader has open stays whole under a swap; the number tells it to look again, once."""
    reader = Reader(writer)
    before = reader.read()
    mid_round: list[bytes] = []
    report = attempt(scene, asked=lambda: mid_round.append(reader.read()))
    assert isinstance(report, CleanReport)
    after = reader.read()
    directory = writer.logs[0].directory
    assert mid_round[0] == before
    assert after == b"".join(path.read_bytes() for path in sorted(directory.glob("*.log"))) != before
    looks = reader.looks
    assert reader.read() == after
    assert reader.looks == looks
    reader.close()


def test_no_reader_lists_segments_in_the_middle_of_a_swap(scene: Scene, writer: ModelWriter) -> None:
    """Readers that list again and again while rounds swap see offsets ascend, and never a key's last value missing."""
    log = writer.logs[0]
    stop = threading.Event()
    failures: list[str] = []
    looks: list[int] = []

    def follow() -> None:
        while not stop.is_set():
            with partition_lock(FileSystem(), writer.log_dir.path, PARTITION, SystemClock(), shared=True):
                found, least = read_log(log.directory), log.active.base_offset - 1
            keys = {record.key for record in found.values()}
            if not keys >= {b"a", b"b", b"d"} or max(found) < least - 1:  # a marker comes last
                failures.append(f"only {keys} up to {max(found)}")
            looks.append(least)
            os.sched_yield()

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            outcome = attempt(scene)
            assert isinstance(outcome, CleanReport), outcome
            write_some(log, 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(looks) > 10


def test_log_dir_without_readers_gets_no_generations(scene: Scene) -> None:
    """A broker's log dir, or an archive, is left without a file of ours but the lock."""
    writer = scene.writer()
    write_some(writer.logs[0])
    writer.stop()
    (scene.log_dir / names.GENERATIONS).unlink()
    scene.clean()
    assert not (scene.log_dir / names.GENERATIONS).exists()


def test_kept_lock_gives_the_logs_back_between_rounds(scene: Scene) -> None:
    """With `cleaner.lock=hold` a writer may come between two rounds, and the second is beside it."""
    sources = Sources.of_call(None, SETTINGS, None, None)
    (scene.log_dir / OffsetKind.CLEANER.value).write_text("0\n0\n")  # else it is an empty directory and no log dir
    fs, context = FileSystem(), CallContext()
    settings, throttle = SettingsResolver(fs, scene.log_dir, sources), IoThrottle(1e9, context.clock)
    locks = DirLocks(fs, holds=True)
    with locks.using(scene.log_dir) as lock:
        session = Session(LogDir(fs, scene.log_dir), settings, context, throttle, lock)
        assert session.beside_writer is False
    writer = scene.writer()
    with locks.using(scene.log_dir) as lock:
        session = Session(LogDir(fs, scene.log_dir), settings, context, throttle, lock)
        assert session.beside_writer is True
        with session.swapping(PARTITION), Generations(fs, scene.log_dir) as generations:
            assert generations.of(PARTITION) == 1
        lock.still_held()
    writer.stop()
    locks.release_all()


def test_checkpoint_line_is_written_beside_others(scene: Scene, writer: ModelWriter) -> None:
    """Lines of other partitions survive a writer and a cleaner who both change the file."""
    other = TopicPartition(PARTITION.topic, 9)
    (writer.log_dir.path / str(other)).mkdir()
    sources = Sources.of_call(None, SETTINGS, None, None)
    with open_session(scene.log_dir, sources, CallContext(clock=ManualClock())) as session:
        session.put_cleaner_offset(PARTITION, 3)
        session.put_cleaner_offset(other, 4)
    assert LogDir(FileSystem(), scene.log_dir).offsets(OffsetKind.CLEANER) == {PARTITION: 3, other: 4}
    with open_session(scene.log_dir, sources, CallContext()) as session:
        session.put_cleaner_offset(PARTITION, 0)
