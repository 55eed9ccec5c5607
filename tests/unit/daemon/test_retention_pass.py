"""A retention pass: what goes, in which order, what stays, and who is asked: R-433, R-901 to R-914."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from cleaner.base.model import EpochEntry, TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.retention_pass import Lock, RetentionPass, RetentionReport
from cleaner.errors import CleaningAborted, LogChangedError, LogDirLockedError, LogDirOfflineError
from cleaner.settings.sources import Sources
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from cleaner.storage.lock.partition_lock import partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment.generation import Generations
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import START_MS, ManualClock
from tests.unit.daemon.watching import Watch, sources, with_sets
from tests.unit.storage.logs import TP, load

FS = FileSystem()
ENABLED = CleanerConfig(retention_enable=True)
DELAY_S = 60


def aged_log(name: str = "topic-0", segments: int = 4) -> LogBuilder:
    """Segments of ten records, an hour apart; leader epoch n begins with segment n."""
    log = LogBuilder(TopicPartition.parse(name))
    for segment in range(segments):
        if segment:
            log.roll()
        log.leader_epoch = segment
        for number in range(10):
            log.append((f"k{number}", f"v{segment}"), timestamp_ms=START_MS - 3_600_000 * (segments - segment))
    return log


class Bench:
    """A log dir, a pass over it, and what the pass asked for and reported."""

    def __init__(self, path: Path, given: Sources, fs: FileSystem | None = None) -> None:
        self.fs = fs or FS
        self.log_dir = LogDir(self.fs, path)
        self.clock = ManualClock()
        self.watch = Watch(path, given, ENABLED, now_ms=START_MS)
        self.reports: list[RetentionReport] = []
        self.held: list[TopicPartition] = []
        self.busy: set[TopicPartition] = set()
        self.stop_after = 10**9
        self.is_lock_lost = False
        self.locked = 0
        self.report: Callable[[RetentionReport], None] = self.reports.append
        self.retention = self.new_pass()

    def new_pass(self) -> RetentionPass:
        """Make a pass that remembers nothing, as after a restart."""
        return RetentionPass(
            self.fs,
            self.clock,
            take=self._take,
            give_back=self.held.remove,
            report=lambda report: self.report(report),
            check_done=self._check_done,
        )

    def _take(self, logs: Collection[LogStatus]) -> list[TopicPartition]:
        taken = [log.partition for log in logs if log.partition not in self.busy]
        self.held += taken
        return taken

    def _check_done(self) -> None:
        self.stop_after -= 1
        if self.stop_after < 0:
            raise CleaningAborted("asked to stop")

    def _still_held(self) -> None:
        if self.is_lock_lost:
            raise LogDirLockedError("lost")

    @contextlib.contextmanager
    def _lock(self) -> Iterator[Callable[[], None]]:
        self.locked += 1
        with LogDirLock(FS, self.log_dir.path, LockMode.SHARED, LockRole.CLEANER):
            yield self._still_held

    @property
    def lock(self) -> Lock:
        """Return the lock of the log dir."""
        return self._lock

    def run(self) -> int:
        """Look, and make a pass."""
        look = self.watch.look(after_ms=0)
        count = self.retention.run(self.log_dir, look.logs, self.lock)
        assert self.held == []
        return count

    def remove_due(self, after_s: float = 0) -> int:
        """Let time pass, and remove what is due."""
        self.clock.move_on(after_s)
        return self.retention.remove_due(self.log_dir, self.lock)

    def bases(self, name: str = "topic-0") -> list[int]:
        """Return the base offsets of the segments there are."""
        return sorted(int(path.name[:20]) for path in (self.log_dir.path / name).glob("*.log"))

    def deleted(self, name: str = "topic-0") -> list[str]:
        """Return the names of the `.deleted` files."""
        return sorted(path.name for path in (self.log_dir.path / name).glob("*.deleted"))


def by_time(hours: float, topic: str = "topic", policy: str = "delete") -> Sources:
    """Keep what is so young."""
    return with_sets(sources(**{topic: policy}), topic, retention_ms=str(int(hours * 3_600_000)))


def bench(tmp_path: Path, given: Sources, *logs: LogBuilder, **options: object) -> Bench:
    """Write a log dir, by default of one aged log, with a pass over it."""
    write_log_dir(tmp_path, *(logs or (aged_log(),)))
    return Bench(tmp_path, given, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_pass_marks_expired_segments_deleted_and_reports_them(tmp_path: Path, policy: str) -> None:
    """By time: the two oldest with all their files; epochs are cut; the log loads as one that begins there."""
    at = bench(tmp_path, by_time(2.5, policy=policy))
    sizes = [path.stat().st_size for path in sorted((tmp_path / "topic-0").glob("*.log"))]
    assert at.run() == 2
    assert at.bases() == [20, 30]
    assert at.deleted() == [
        f"{base:020d}{suffix}.deleted"
        for base in (0, 10)
        for suffix in (".index", ".log", *([".snapshot"] if base else []), ".timeindex")
    ]
    assert at.reports == [
        RetentionReport(TP, str(tmp_path), 2, sum(sizes[:2]), {"retention.ms": 2}, log_start_offset=20)
    ]
    assert at.reports[0].details()["reason"] == "retention.ms"
    assert read_leader_epochs(FS, tmp_path / "topic-0" / "leader-epoch-checkpoint") == [
        EpochEntry(2, 20),
        EpochEntry(3, 30),
    ]
    assert at.log_dir.log_start_offsets == {}
    log = load(tmp_path / "topic-0")
    assert (log.log_start_offset, log.log_end_offset) == (20, 40)
    assert at.run() == 0
    assert len(at.reports) == 1


def test_pass_by_size_and_by_log_start(tmp_path: Path) -> None:
    """R-910, R-911: each with its words, and a start inside a segment keeps its line in the checkpoint."""
    logs = aged_log("topic-0"), aged_log("other-0")
    write_log_dir(tmp_path, *logs, log_start_offsets={TopicPartition("other", 0): 13})
    size = max((tmp_path / "topic-0").glob("*.log")).stat().st_size
    given = with_sets(sources(topic="delete", other="compact"), "topic", retention_bytes=str(2 * size + 1))
    given = with_sets(given, "topic", retention_ms="-1")
    at = Bench(tmp_path, given)
    assert at.run() == 1 + 1
    assert {str(report.partition): report.details()["reason"] for report in at.reports} == {
        "topic-0": "retention.bytes",
        "other-0": "log start offset",
    }
    assert (at.bases("topic-0"), at.bases("other-0")) == ([10, 20, 30], [10, 20, 30])
    assert at.log_dir.log_start_offsets == {TopicPartition("other", 0): 13}


def test_active_segment_stays_whatever_its_age(tmp_path: Path) -> None:
    """Unlike R-913: it is its writer's."""
    at = bench(tmp_path, by_time(0))
    assert at.run() == 3
    assert at.bases() == [30]


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    """R-903: a segment that reaches above it stops the walk; without a line nothing goes at all."""
    write_log_dir(tmp_path, aged_log(), high_watermarks={TP: 19})
    at = Bench(tmp_path, by_time(0))
    assert at.run() == 1
    assert at.bases() == [10, 20, 30]
    at.log_dir.put(OffsetKind.HIGH_WATERMARK, TP, None)
    assert at.run() == 0


def test_files_are_removed_after_their_delay(tmp_path: Path) -> None:
    """Not a moment before `file.delete.delay.ms`, once, and readers that have them open go on reading."""
    at = bench(tmp_path, by_time(2.5))
    with (tmp_path / "topic-0" / f"{0:020d}.log").open("rb") as reader:
        at.run()
        assert at.retention.next_removal_ns is not None
        assert at.remove_due(DELAY_S - 0.001) == 0
        assert len(at.deleted()) == 7
        assert at.remove_due(0.001) == 7
        assert at.deleted() == []
        assert len(reader.read()) > 100
    assert at.retention.next_removal_ns is None
    assert at.remove_due(1000) == 0


def test_delay_is_that_of_the_topic(tmp_path: Path) -> None:
    """`file.delete.delay.ms` is a topic's setting."""
    at = bench(tmp_path, with_sets(by_time(2.5), "topic", file_delete_delay_ms="0"))
    at.run()
    assert at.remove_due() == 7


def test_left_over_files_are_removed_after_a_restart(tmp_path: Path) -> None:
    """The look finds files that an ended process marked deleted; they are removed a delay later."""
    at = bench(tmp_path, by_time(2.5))
    at.run()
    at.retention = at.new_pass()
    assert at.retention.next_removal_ns is None
    assert at.run() == 0
    due_ns = at.retention.next_removal_ns
    assert due_ns is not None
    assert at.run() == 0
    assert at.retention.next_removal_ns == due_ns
    assert at.remove_due(DELAY_S) == 7
    assert at.deleted() == []


def test_files_that_are_gone_already_do_no_harm(tmp_path: Path) -> None:
    """A load of the log, for a round, removes them at once (R-630); so may a broker, or the whole partition may go."""
    at = bench(tmp_path, by_time(2.5), aged_log("topic-0"), aged_log("topic-1"))
    at.run()
    load(tmp_path / "topic-0").settle(FS, nullcontext)
    assert at.deleted("topic-0") == []
    for path in (tmp_path / "topic-1").iterdir():
        path.unlink()
    (tmp_path / "topic-1").rmdir()
    at.remove_due(DELAY_S)
    assert at.retention.next_removal_ns is None
    assert at.bases() == [20, 30]


def test_busy_logs_are_left_to_the_next_pass(tmp_path: Path) -> None:
    """R-433: only idle logs are taken; all taken are given back."""
    at = bench(tmp_path, by_time(2.5), aged_log("topic-0"), aged_log("topic-1"))
    at.busy = {TopicPartition("topic", 0)}
    assert at.run() == 2
    assert (at.bases("topic-0"), at.bases("topic-1")) == ([0, 10, 20, 30], [20, 30])
    at.busy = set()
    assert at.run() == 2


def test_nothing_to_do_takes_no_lock(tmp_path: Path) -> None:
    """A log dir without expired segments is not disturbed."""
    at = bench(tmp_path, by_time(1000))
    assert at.run() == 0
    assert (at.locked, at.reports) == (0, [])


def test_locked_log_dir_is_refused_and_removal_waits(tmp_path: Path) -> None:
    """Nothing has changed; what was to be removed is removed once the log dir is free."""
    at = bench(tmp_path, by_time(2.5))
    with LogDirLock(FS, tmp_path), pytest.raises(LogDirLockedError):
        at.run()
    assert at.bases() == [0, 10, 20, 30]
    at.run()
    with LogDirLock(FS, tmp_path), pytest.raises(LogDirLockedError):
        at.remove_due(DELAY_S)
    assert at.remove_due() == 7


def test_lock_that_was_lost_ends_the_pass(tmp_path: Path) -> None:
    """Before anything was changed."""
    at = bench(tmp_path, by_time(2.5))
    at.is_lock_lost = True
    with pytest.raises(LogDirLockedError, match="lost"):
        at.run()
    assert (at.bases(), at.log_dir.log_start_offsets, at.held) == ([0, 10, 20, 30], {}, [])


def test_no_pass_with_a_writer_or_without_a_marker(tmp_path: Path) -> None:
    """Retention is the writer's; and what was not closed in order is not judged. Both may come after the look."""
    at = bench(tmp_path, by_time(2.5))
    look = at.watch.look(after_ms=0)
    with LogDirLock(FS, tmp_path, LockMode.SHARED, LockRole.WRITER):
        assert at.retention.run(at.log_dir, look.logs, at.lock) == 0
    at.log_dir.remove_marker()
    assert at.retention.run(at.log_dir, look.logs, at.lock) == 0
    assert at.bases() == [0, 10, 20, 30]
    assert not at.watch.look().logs[0].has_segments_to_delete


def test_writer_that_comes_during_a_pass_gets_the_logs(tmp_path: Path) -> None:
    """The pass ends before the next log, and what is done is whole."""
    names = [f"topic-{number}" for number in range(3)]
    at = bench(tmp_path, by_time(2.5), *map(aged_log, names))
    with contextlib.ExitStack() as stack:

        def come(report: RetentionReport) -> None:
            at.reports.append(report)
            stack.enter_context(LogDirLock(FS, tmp_path, LockMode.SHARED, LockRole.WRITER))

        at.report = come
        with pytest.raises(LogDirLockedError, match="a writer has opened it"):
            at.run()
        assert [at.bases(name) for name in names] == [[20, 30], [0, 10, 20, 30], [0, 10, 20, 30]]
    at.report = at.reports.append
    assert at.run() == 4


def test_readers_are_warned_and_kept_out_while_names_change(tmp_path: Path) -> None:
    """Who lists under the partition's lock sees all or nothing of it, and learns by the number to look again."""
    at = bench(tmp_path, by_time(2.5), fs=(fs := NotesRenames(tmp_path)))
    with Generations(FS, tmp_path) as generations:
        before = generations.of(TP)
        at.run()
        assert generations.of(TP) == before + 1
    assert fs.was_locked == [True, True]


class NotesRenames(FileSystem):
    """Notes of each renaming whether readers were kept out."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.was_locked: list[bool] = []

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """Note, and rename."""

        def try_to_read() -> None:
            try:
                with partition_lock(FS, self.log_dir, TP, ManualClock(), shared=True, patience_ms=0):
                    self.was_locked.append(False)
            except LogChangedError:
                self.was_locked.append(True)

        reader = threading.Thread(target=try_to_read)
        reader.start()
        reader.join()
        super().rename_all(directory, pairs)


def test_stop_between_logs_leaves_each_whole(tmp_path: Path) -> None:
    """What is done stays done; of the others the start has moved, and the next pass deletes what lies below it."""
    names = [f"topic-{number}" for number in range(4)]
    at = bench(tmp_path, by_time(2.5), *map(aged_log, names))

    def stop_after_two(report: RetentionReport) -> None:
        at.reports.append(report)
        at.stop_after = 0 if len(at.reports) == 2 else at.stop_after

    at.report = stop_after_two
    with pytest.raises(CleaningAborted):
        at.run()
    assert [at.bases(name) for name in names] == [[20, 30]] * 2 + [[0, 10, 20, 30]] * 2
    assert at.held == []
    assert sorted(at.log_dir.log_start_offsets.values()) == [20, 20]
    at.stop_after = 10**9
    assert at.run() == 4
    assert at.reports[-1].details()["reason"] == "log start offset"
    assert [at.bases(name) for name in names] == [[20, 30]] * 4
    assert at.log_dir.log_start_offsets == {}


class BadSector(FileSystem):
    """Cannot rename the files of one partition."""

    def rename_all(self, directory: Path, pairs: object) -> None:
        """Fail there."""
        if directory.name == "topic-1":
            raise LogDirOfflineError(directory, OSError(5, os.strerror(5)))
        super().rename_all(directory, pairs)  # type: ignore[arg-type]


def test_one_logs_error_does_not_end_the_pass(tmp_path: Path) -> None:
    """Unlike R-712; it is reported, and its log begins where it will."""
    at = bench(tmp_path, by_time(2.5), *(aged_log(f"topic-{n}") for n in range(3)), fs=BadSector())
    assert at.run() == 4
    failed = next(report for report in at.reports if report.error)
    assert (str(failed.partition), failed.segments) == ("topic-1", 0)
    assert "Input/output error" in failed.error
    assert at.log_dir.log_start_offsets == {TopicPartition("topic", 1): 20}
    assert load(tmp_path / "topic-1", log_start_offset=20).log_start_offset == 20


def test_interrupted_swap_is_settled_first(tmp_path: Path) -> None:
    """R-630 to R-632: what is old and what is new is for the loader to say, before anything is deleted."""
    at = bench(tmp_path, by_time(2.5, policy="compact,delete"))
    directory = tmp_path / "topic-0"
    for suffix in ("log", "index", "timeindex"):
        (directory / f"{0:020d}.{suffix}").rename(directory / f"{0:020d}.{suffix}.swap")
    (directory / f"{20:020d}.log.cleaned").touch()
    assert at.run() == 2
    assert at.bases() == [20, 30]
    assert not list(directory.glob("*.cleaned"))
    assert not list(directory.glob("*.swap"))


def test_policy_that_is_only_a_default_deletes_nothing(tmp_path: Path) -> None:
    """Kafka's own week would empty an archive."""
    at = bench(tmp_path, Sources())
    at.watch.now_ms = START_MS + 10**12
    assert at.run() == 0
    assert at.bases() == [0, 10, 20, 30]
