"""Commands that only read, beside a round that exchanges the files they are reading."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.app.doctor import Grade
from cleaner.app.doctor_log_dir import examine_log_dir
from cleaner.app.gaps_log_dir import gaps_log_dir
from cleaner.app.options import CallContext
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.app.verify_log_dirs import VerifyOptions, verify_log_dirs
from cleaner.app.who_log_dir import who_log_dir
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError, LogTruncatedError, OffsetOutOfRangeError
from cleaner.policy.reasons import Reason
from cleaner.serve.catalog import Catalog
from cleaner.serve.offsets import Committed, GroupOffsets
from cleaner.settings.sources import Sources
from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import plan as plan_of_spark
from cleaner.spark.source.task import run_task
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from tests.support.batch_builder import Producer
from tests.support.coordinator_records import offset_commit
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import ManualClock

PRICES = TopicPartition("prices", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
SETTINGS = {"log.cleanup.policy": "compact"}


class Interrupted(FileSystem):
    """A file system in which something happens before a file is opened."""

    def __init__(self, at: int, deed: Callable[[], None], *, looks: bool = False) -> None:
        self.opened, self._at, self._deed, self._looks = 0, at, deed, looks

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; the other process comes first."""
        self._count()
        return super().open(path, write=write)

    def exists(self, path: Path) -> bool:
        """Look for a file; with `looks` that counts, too."""
        if self._looks:
            self._count()
        return super().exists(path)

    def _count(self) -> None:
        self.opened += 1
        if self.opened == self._at:
            self._deed()


class Deleting(FileSystem):
    """A file system in which a topic is deleted before one of its files is opened."""

    def __init__(self, before: Path) -> None:
        self._before = before

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; the other process comes first."""
        if path == self._before:
            shutil.rmtree(path.parent)
        return super().open(path, write=write)


def a_log() -> LogBuilder:
    """Return a log of which a round leaves other bytes in each segment."""
    log = LogBuilder(PRICES, index_interval_bytes=200)
    for number in range(4):
        for part in range(8):
            log.append(*((f"k{key}", "v" * (100 + 40 * key + number)) for key in range(part % 3, 6)))
            log.append((f"only-{number}-{part}", "x" * 300))
        log.roll()
    for _ in range(5):  # whole batches go, and nothing but the checkpoint tells why
        log.append(("k0", "again"))
    log.roll()
    log.append(("k0", "last"))
    return log


def offsets_log() -> LogBuilder:
    """Return committed offsets that a round moves."""
    log = LogBuilder(OFFSETS)
    for number in range(40):
        log.append(offset_commit(f"group-{number % 5}", "prices", 0, number))
        if number % 10 == 9:
            log.roll()
    return log


def looks(template: Path, tmp_path: Path, name: TopicPartition) -> Iterator[tuple[Path, Interrupted]]:
    """Yield a log dir and a file system by which to read it: a round comes before a file is opened, each in turn."""
    came = True
    at = 0
    while came:
        at += 1
        log_dir = Path(shutil.copytree(template, tmp_path / f"copy-{at}"))

        def deed(log_dir: Path = log_dir) -> None:
            report = cleaner.clean(log_dir, str(name), SETTINGS)
            assert report.bytes_written < report.bytes_read

        fs = Interrupted(at, deed)
        yield log_dir, fs
        came = fs.opened >= at
        shutil.rmtree(log_dir)


def planned(log_dir: Path, fs: FileSystem) -> object:
    (entry,) = cleaner.plan(log_dir, SETTINGS, sampling=cleaner.Sampling(), fs=fs)
    return entry.error


def who(log_dir: Path, fs: FileSystem) -> object:
    (report,) = cleaner.who(log_dir, None, SETTINGS, fs=fs)
    return report.damage if isinstance(report, cleaner.WhoReport) else report


def explained(log_dir: Path, fs: FileSystem) -> object:
    return cleaner.explain(log_dir, str(PRICES), SETTINGS, fs=fs).error


def gaps(log_dir: Path, fs: FileSystem) -> object:
    (report,) = cleaner.gaps(log_dir, None, SETTINGS, fs=fs)
    return [] if isinstance(report, cleaner.GapReport) and report.is_complete else report


def check(log_dir: Path, fs: FileSystem) -> object:
    return cleaner.check(log_dir, SETTINGS, clean_section=True, fs=fs).findings


def replicas(log_dir: Path, fs: FileSystem) -> object:
    other = log_dir.parent / "other"
    if not other.exists():
        write_log_dir(other, a_log())
    found = cleaner.check_replicas([log_dir, other], None, SETTINGS, fs=fs)
    return [each for each in found if not (isinstance(each, cleaner.ReplicasReport) and each.agrees)]


def verified(log_dir: Path, fs: FileSystem) -> object:
    after = log_dir.parent / "after"
    if not after.exists():
        write_log_dir(after, a_log())
        cleaner.clean(after, str(PRICES), SETTINGS)
    return cleaner.verify(log_dir, after, str(PRICES), SETTINGS, fs=fs).findings


def test_round_in_the_middle_of_a_replay_is_no_refusal(tmp_path: Path) -> None:
    """`verify --as` reads both logs by their names."""
    template, after = write_log_dir(tmp_path / "template", offsets_log()), tmp_path / "after"
    write_log_dir(after, offsets_log())
    for log_dir, fs in looks(template, tmp_path, OFFSETS):
        (report,) = cleaner.replay(log_dir, after, fs=fs)
        assert isinstance(report, cleaner.ReplayReport)
        assert report.is_same, f"a round before file {fs.opened} is opened"


class Checkpointing(ManualClock):
    """A clock by which the round's checkpoint is written while somebody waits."""

    def __init__(self, deed: Callable[[], object]) -> None:
        super().__init__()
        self._deed = deed

    def sleep(self, seconds: float) -> None:
        """The other process goes on."""
        self._deed()
        super().sleep(seconds)


@pytest.mark.parametrize("command", ["gaps", "verify"])
def test_round_between_its_last_swap_and_its_checkpoint_is_waited_for(tmp_path: Path, command: str) -> None:
    """All its files are new, and nothing tells yet how far they were cleaned."""
    before, log_dir = (write_log_dir(tmp_path / name, a_log()) for name in ("before", "after"))
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    old = checkpoint.read_bytes()
    cleaner.clean(log_dir, str(PRICES), SETTINGS)
    new = checkpoint.read_bytes()
    checkpoint.write_bytes(old)
    context = CallContext(clock=Checkpointing(lambda: checkpoint.write_bytes(new)))
    with LogDirLock(FileSystem(), log_dir, LockMode.SHARED, LockRole.WRITER):
        if command == "gaps":
            (account,) = gaps_log_dir(log_dir, Sources(config=SETTINGS), context)
            assert isinstance(account, cleaner.GapReport)
            assert account.is_complete
        else:
            (proof,) = verify_log_dirs(before, log_dir, Sources(config=SETTINGS), context, VerifyOptions())
            assert isinstance(proof, cleaner.VerifyReport)
            assert proof.is_proven
    assert checkpoint.read_bytes() == new


@pytest.mark.parametrize("command", ["gaps", "plan", "who"])
def test_topic_that_is_being_made_is_waited_for(tmp_path: Path, command: str) -> None:
    """Its directory comes before its first segment."""
    log_dir = write_log_dir(tmp_path / "logs", a_log())
    shutil.move(log_dir / str(PRICES), tmp_path / "made")
    (log_dir / str(PRICES)).mkdir()

    def make() -> None:
        shutil.copytree(tmp_path / "made", log_dir / str(PRICES), dirs_exist_ok=True)

    context, sources = CallContext(clock=Checkpointing(make)), Sources(config=SETTINGS)
    with LogDirLock(FileSystem(), log_dir, LockMode.SHARED, LockRole.WRITER):
        if command == "gaps":
            (found,) = gaps_log_dir(log_dir, sources, context)
            assert isinstance(found, cleaner.GapReport)
        elif command == "who":
            (whose,) = who_log_dir(log_dir, sources, context)
            assert isinstance(whose, cleaner.WhoReport)
        else:
            assert [each.error for each in plan_log_dir(log_dir, sources, context)] == [""]


def test_deleted_topic_is_said_to_be_gone(tmp_path: Path) -> None:
    """And not that it keeps changing."""
    template, after = write_log_dir(tmp_path / "template", a_log()), write_log_dir(tmp_path / "after", a_log())

    def read(log_dir: Path, fs: FileSystem) -> object:
        cleaner.verify(log_dir, after, str(PRICES), SETTINGS, fs=fs)
        return cleaner.gaps(log_dir, str(PRICES), SETTINGS, fs=fs)

    for file in ("00000000000000000000.log", "00000000000000000000.txnindex"):
        log_dir = Path(shutil.copytree(template, tmp_path / "copy"))
        with pytest.raises(LogDirOfflineError, match="No such file"):
            read(log_dir, Deleting(log_dir / str(PRICES) / file))
        assert not (log_dir / str(PRICES)).exists()
        shutil.rmtree(log_dir)


@pytest.mark.parametrize("read", [planned, who, explained, gaps, check, replicas, verified])
def test_round_in_the_middle_of_a_reading_command_is_no_damage(
    tmp_path: Path, read: Callable[[Path, FileSystem], object]
) -> None:
    """Whichever file it is about to open: it reads the log as it was before the round, or as it is after it."""
    template = write_log_dir(tmp_path / "template", a_log())
    for log_dir, fs in looks(template, tmp_path, PRICES):
        assert not read(log_dir, fs), f"a round before file {fs.opened} is opened"


def planned_reason(log_dir: Path, fs: FileSystem) -> object:
    settings = {**SETTINGS, "cleaner.trust.default.policy": "true"}
    (entry,) = cleaner.plan(log_dir, settings, fs=fs)
    return entry.why is Reason.LOG_DIR_NEEDS_RECOVERY


def doctor(log_dir: Path, fs: FileSystem) -> object:
    return [
        each for each in examine_log_dir(fs, log_dir, None) if each.grade is Grade.FAIL and each.check != "descriptors"
    ]


@pytest.mark.parametrize("read", [planned_reason, check, doctor])
def test_writer_that_comes_during_a_look_left_nothing_torn(
    tmp_path: Path, read: Callable[[Path, FileSystem], object]
) -> None:
    """It has the lock before it removes the marker, whichever of them was looked at first."""
    template = write_log_dir(tmp_path / "template", a_log())
    for at in range(1, 13):
        log_dir = Path(shutil.copytree(template, tmp_path / f"copy-{at}"))
        with contextlib.ExitStack() as stack:

            def come(log_dir: Path = log_dir, stack: contextlib.ExitStack = stack) -> None:
                manager = stack.enter_context(cleaner.LogManager(log_dir, SETTINGS))
                manager.log(PRICES.topic).append([cleaner.Record(b"k0", b"v")])

            fs = Interrupted(at, come, looks=True)
            assert not read(log_dir, fs), f"a writer before step {at}"
            assert fs.opened >= at


class Vanishing(FileSystem):
    """A file system in which each segment has another name when it is looked at for the first time."""

    def __init__(self) -> None:
        self.missed: set[Path] = set()

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; a `.log` the second time."""
        if path.suffix == ".log" and path not in self.missed:
            self.missed.add(path)
            raise FileNotFoundError(path)
        return super().open(path, write=write)


def test_check_reads_all_of_a_log_whose_files_keep_vanishing(tmp_path: Path) -> None:
    """Not only those before the fifth of them."""
    log = LogBuilder(PRICES)
    for _ in range(12):
        log.append(("k", "v"))
        log.roll()
    fs = Vanishing()
    report = cleaner.check(write_log_dir(tmp_path / "logs", log), SETTINGS, fs=fs)
    assert (report.findings, report.partitions[0].segments, len(fs.missed)) == ((), 13, 13)


def test_check_of_a_topic_that_is_deleted_says_so(tmp_path: Path) -> None:
    """A note: what was not read was not found sound."""
    log_dir = write_log_dir(tmp_path / "logs", a_log())
    report = cleaner.check(log_dir, SETTINGS, fs=Deleting(log_dir / str(PRICES) / "00000000000000000000.log"))
    assert [(each.kind.value, each.is_damage) for each in report.findings] == [("skipped", False)]


@pytest.mark.parametrize("deed", ["retention", "new topic"])
def test_reader_that_was_overtaken_does_not_end_as_at_the_end(tmp_path: Path, deed: str) -> None:
    """It has read everything, or says what has become of the rest."""
    log, other = LogBuilder(PRICES), LogBuilder(PRICES)
    for _ in range(3):
        log.append(("k", "v" * 100), ("k", "v" * 100))
        log.roll()
    other.append(("k", "v"))
    template = write_log_dir(tmp_path / "template", log)
    settings = {"log.cleanup.policy": "delete", "log.retention.bytes": "1"}

    def come() -> None:
        with cleaner.LogManager(tmp_path / "copy", {**settings, "file.delete.delay.ms": "0"}) as manager:
            if deed == "retention":
                manager.log(PRICES.topic).append([cleaner.Record(b"k", b"v")])
                manager.upkeep.retain()
                return
            manager.delete_topic(PRICES.topic)
            manager.create_topic(PRICES.topic)
            manager.log(PRICES.topic).append([cleaner.Record(b"k", b"v")])

    for at in range(1, 200):
        shutil.copytree(template, tmp_path / "copy")
        fs, offsets = Interrupted(at, come), list[int | None]()
        try:
            with cleaner.open_reader(tmp_path / "copy", PRICES.topic, fs=fs) as reader:
                begin = reader.log_start_offset
                offsets += [record.offset for record in reader.read(begin)]
                assert offsets == list(range(begin, reader.high_watermark)) or offsets == list(range(begin, 6))
        except (LogTruncatedError, OffsetOutOfRangeError):
            assert fs.opened >= at
        shutil.rmtree(tmp_path / "copy")
        if fs.opened < at:
            return
    raise AssertionError("it opens more files than that")


def transactional_log() -> LogBuilder:
    """Return a log of which a round removes an aborted transaction and its marker; its producer commits later."""
    log = LogBuilder(PRICES)
    log.append(("aborted", "v"), producer=Producer(7, 0, 0, transactional=True))
    log.append(("plain", "v"))
    log.roll()
    log.end_transaction(7, 0, commit=False)
    log.append(("plain", "v"))
    log.roll()
    log.append(("committed", "v"), producer=Producer(7, 0, 1, transactional=True))
    log.end_transaction(7, 0, commit=True)
    log.append(("plain", "v"))
    log.roll()
    log.append(("plain", "last"))
    return log


@pytest.mark.parametrize("latest", ["false", "true"])
@pytest.mark.parametrize("deed", ["round", "new topic"])
def test_spark_reads_one_log_and_only_what_is_committed(tmp_path: Path, latest: str, deed: str) -> None:
    """Whatever comes between planning and the last file: a round that removes markers, or a topic of the same name."""
    template = write_log_dir(tmp_path / "template", transactional_log(), high_watermarks={PRICES: 1000})
    other = LogBuilder(PRICES)
    for number in range(20):
        other.append((f"other-{number}", "v"))
    settings = {**SETTINGS, "delete.retention.ms": "0"}
    options = read_options({"path": str(tmp_path / "copy"), "isolationLevel": "read_committed", "latestPerKey": latest})

    def come() -> None:
        if deed == "round":
            cleaner.clean(tmp_path / "copy", str(PRICES), settings)
            return
        shutil.rmtree(tmp_path / "copy" / str(PRICES))
        other.write(tmp_path / "copy")
        (tmp_path / "copy" / str(PRICES) / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 21}A\n")

    for at in range(1, 200, 3):
        shutil.copytree(template, tmp_path / "copy")
        fs = Interrupted(at, come)
        keys: set[bytes] = set()
        try:
            for task in plan_of_spark(fs, options, Pruning()):
                keys |= {row["key"] for batch in run_task(fs, options, task) for row in batch.to_pylist()}
        except (LogTruncatedError, OffsetOutOfRangeError):
            assert deed == "new topic"
        else:
            assert keys == {b"plain", b"committed"} or (
                deed == "new topic" and keys == {b"other-%d" % n for n in range(20)}
            )
        shutil.rmtree(tmp_path / "copy")
        if fs.opened < at:
            return
    raise AssertionError("it opens more files than that")


def test_round_in_the_middle_of_reading_committed_offsets_hides_none(tmp_path: Path) -> None:
    """`serve` tells each group what it has committed."""
    template = write_log_dir(tmp_path / "template", offsets_log())
    for log_dir, fs in looks(template, tmp_path, OFFSETS):
        with contextlib.closing(Catalog(fs, [log_dir], SystemClock(), print)) as catalog:
            offsets = GroupOffsets(fs, catalog)
            assert offsets.load()
            for number in range(5):
                assert offsets.of(f"group-{number}") == {("prices", 0): Committed(35 + number, -1, "")}
