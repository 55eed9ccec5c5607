"""Looks that remember, held against looks that remember nothing, over random histories of changes."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.daemon import log_dir_watch
from cleaner.daemon.log_dir_watch import DirLook, WatchedLogDir
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.log_watch import AFRESH_NS
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.files.checkpoint import write_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import ManualClock

FS = FileSystem()
PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "86400000",
    "retention.ms": str(10**13),
}
SOURCES = Sources(sets=[SetOption(topic, key, value) for topic in ("a", "b") for key, value in SETTINGS.items()])
DAY_MS = 86_400_000


def log_by_lot(lot: random.Random, partition: TopicPartition) -> LogBuilder:
    """Build a log whose files often have the size of another's, with transactions in other places."""
    log = LogBuilder(partition)
    for segment in range(3):
        if segment:
            log.roll()
        for number in range(4):
            producer = Producer(segment, 0, number, transactional=lot.random() < 0.3)
            log.append((f"k{number}", "v" * 20), producer=producer)
    return log


class History:
    """
    A log dir that changes, and the look that is tested.

    A change gets a time of its own: file systems date changes by ticks, and a look only trusts times that are old.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.lot = random.Random(seed)
        self.path = path / "logs"
        self.done: list[tuple[str, str]] = []
        self.scratch = path / "scratch"
        self.scratch.mkdir()
        self.now_ms = path.stat().st_mtime_ns // 1_000_000 + 600_000
        self.clock = ManualClock()
        write_log_dir(self.path, *(log_by_lot(self.lot, partition) for partition in PARTITIONS))
        self.other_logs = [self._other(number) for number in range(4)]
        self.look_at = WatchedLogDir(FS, self.clock, self.path, CleanerConfig(retention_enable=True), SOURCES)

    def _other(self, number: int) -> Path:
        path = self.scratch / str(number)
        path.mkdir()
        log_by_lot(self.lot, PARTITIONS[0]).write(path)
        return path / str(PARTITIONS[0])

    def wait_for_tick(self) -> None:
        """Wait until the file system's clock has moved."""
        probe = self.scratch / "probe"
        probe.touch()
        before = probe.stat().st_ctime_ns
        while probe.stat().st_ctime_ns == before:
            probe.touch()

    def directory(self) -> Path:
        return self.path / str(self.lot.choice(PARTITIONS))

    def change(self) -> None:
        """Make one change that a look has to see at once."""
        self.wait_for_tick()
        directory = self.directory()
        change = self.lot.choice(CHANGES)
        self.done.append((change.__name__, directory.name))
        change(self, directory)
        self.wait_for_tick()

    def compare(self) -> DirLook:
        """Look, and look with a watch that remembers nothing: both see the same."""
        fresh = WatchedLogDir(FS, self.clock, self.path, CleanerConfig(retention_enable=True), SOURCES)
        expected, found = fresh.look(self.now_ms), self.look_at.look(self.now_ms)
        assert not found.behind
        for was, now in zip(found.logs, expected.logs, strict=True):
            assert {
                name: (getattr(was, name), getattr(now, name))
                for name in LogStatus.__slots__
                if getattr(was, name) != getattr(now, name)
            } == {}, (was.partition, self.done[-12:])
        return found


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def appended(history: History, directory: Path) -> None:
    """What a writer does: the directory does not change."""
    if segments(directory):
        source = segments(history.lot.choice(history.other_logs))[-1].read_bytes()
        with segments(directory)[-1].open("ab") as file:
            file.write(source[: history.lot.choice((10, len(source)))])


def rolled(history: History, directory: Path) -> None:
    """A new active segment."""
    if not directory.exists():
        return
    newest = int(segments(directory)[-1].stem) if segments(directory) else 0
    (directory / f"{newest + 4:020d}.log").touch()
    (directory / f"{newest + 4:020d}.index").touch()


def replaced_by_rename(history: History, directory: Path) -> None:
    """As `rsync -a` does: a new file takes the name, and both times are set to what they were."""
    paths = segments(directory) + sorted(directory.glob("*.snapshot"))
    if not paths:
        return
    target = history.lot.choice(paths)
    found = list(history.lot.choice(history.other_logs).glob(f"*{target.suffix}"))
    about, of_directory = target.stat(), directory.stat()
    temporary = directory / ".incoming"
    shutil.copyfile(history.lot.choice(found), temporary)
    os.utime(temporary, ns=(about.st_atime_ns, about.st_mtime_ns))
    temporary.rename(target)
    os.utime(directory, ns=(of_directory.st_atime_ns, of_directory.st_mtime_ns))


def active_overwritten(history: History, directory: Path) -> None:
    """As `cp -p` does: the same file, other bytes, the time set back."""
    if segments(directory):
        target = segments(directory)[-1]
        about = target.stat()
        target.write_bytes(segments(history.lot.choice(history.other_logs))[-1].read_bytes())
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def active_cut(history: History, directory: Path) -> None:
    """As a follower is cut back to its leader's log."""
    if segments(directory):
        target = segments(directory)[-1]
        os.truncate(target, target.stat().st_size // 2)


def made_again(history: History, directory: Path) -> None:
    """A topic is deleted and made again under its name; the inode may be the same, and so may all times."""
    about = directory.stat()
    shutil.rmtree(directory)
    shutil.copytree(history.lot.choice(history.other_logs), directory)
    os.utime(directory, ns=(about.st_atime_ns, about.st_mtime_ns))


def gone_or_back(history: History, directory: Path) -> None:
    """Renamed to what Kafka deletes later, and back."""
    away = directory.with_name(f"{directory.name}.{'0' * 32}-delete")
    if directory.exists() and not away.exists():
        directory.rename(away)
    elif away.exists():
        away.rename(directory)


def file_removed(history: History, directory: Path) -> None:
    """An index, a snapshot or a segment."""
    paths = sorted(directory.glob("0*"))
    if paths:
        history.lot.choice(paths).unlink()


def left_over(history: History, directory: Path) -> None:
    """A swap has begun, or a file waits for its removal."""
    if directory.exists():
        (directory / f"{0:020d}.log{history.lot.choice(('.cleaned', '.deleted'))}").touch()


def checkpointed(history: History, directory: Path) -> None:
    """Other lines in a checkpoint; it is replaced."""
    name = history.lot.choice(("cleaner", "replication", "log-start"))
    offsets = {partition: history.lot.randrange(13) for partition in PARTITIONS if history.lot.random() < 0.8}
    write_offset_checkpoint(FS, history.path / f"{name}-offset-checkpoint", offsets)


def clock_jumped(history: History, directory: Path) -> None:
    """Ahead or back, by minutes or days; never to before the files."""
    history.now_ms += history.lot.choice((-120_000, 60_000, 2 * DAY_MS))


def marker_changed(history: History, directory: Path) -> None:
    """A broker has started, or stopped in order."""
    marker = history.path / ".kafka_cleanshutdown"
    if marker.exists():
        marker.unlink()
    else:
        marker.write_text('{"version":0,"brokerEpoch":-1}')


CHANGES: list[Callable[[History, Path], None]] = [
    appended,
    rolled,
    replaced_by_rename,
    active_overwritten,
    active_cut,
    gone_or_back,
    file_removed,
    left_over,
    checkpointed,
    clock_jumped,
    marker_changed,
]


def _made_again_where_it_is(history: History, directory: Path) -> None:
    if directory.exists():
        made_again(history, directory)


CHANGES.append(_made_again_where_it_is)


@pytest.mark.parametrize("seed", range(10))
def test_remembering_look_sees_what_a_fresh_one_sees(tmp_path: Path, seed: int) -> None:
    """After any change: of names, of bytes, of checkpoints, of the clock, and with times that were set back."""
    history = History(tmp_path, seed)
    history.compare()
    for _ in range(25):
        for _ in range(history.lot.randrange(4)):
            history.change()
        history.compare()


@pytest.mark.parametrize("seed", range(3))
def test_change_that_leaves_no_trace_is_seen_within_the_hour(tmp_path: Path, seed: int) -> None:
    """An older segment that is overwritten in place changes neither its directory nor the active segment."""
    history = History(tmp_path, seed)
    before = history.compare()
    history.wait_for_tick()
    for partition in PARTITIONS:
        oldest = segments(history.path / str(partition))[0]
        oldest.write_bytes(oldest.read_bytes() * 2)
    assert history.look_at.look(history.now_ms).logs is before.logs
    seen = 0
    for _ in range(len(PARTITIONS)):
        history.clock.move_on(AFRESH_NS / 1e9 / len(PARTITIONS))
        found = history.look_at.look(history.now_ms)
        changed = sum(was is not now for was, now in zip(before.logs, found.logs, strict=True))
        assert changed - seen == 1, "the work is spread over the hour"
        seen = changed
    history.compare()


class RunningClock(ManualClock):
    """Time goes by whenever it is asked for."""

    def monotonic_ns(self) -> int:
        self.move_on(0.01)
        return super().monotonic_ns()


def test_look_that_has_no_time_for_all_goes_on_with_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log is judged in its turn, though all of them change all the time; until then it is known as it was."""
    monkeypatch.setattr(log_dir_watch, "JUDGED_AT_LEAST", 1)
    monkeypatch.setattr(log_dir_watch, "JUDGING_NS", 20_000_000)
    history = History(tmp_path, 1)
    clock: Clock = RunningClock()
    watch = WatchedLogDir(FS, clock, history.path, CleanerConfig(), SOURCES)
    last = watch.look(history.now_ms)
    assert (len(last.logs), last.behind) == (len(PARTITIONS), frozenset()), "the first look judges all"
    judged: list[TopicPartition] = []
    for _ in range(6):
        history.wait_for_tick()
        for partition in PARTITIONS:
            with segments(history.path / str(partition))[-1].open("ab") as file:
                file.write(bytes(10))
        found = watch.look(history.now_ms)
        new = [now.partition for was, now in zip(last.logs, found.logs, strict=True) if was is not now]
        assert found.behind == frozenset(PARTITIONS) - set(new)
        judged += new
        last = found
    assert sorted(judged[:6]) == PARTITIONS
    assert len(judged) >= 12
    while last.behind:
        last = watch.look(history.now_ms)
    assert last.logs == WatchedLogDir(FS, clock, history.path, CleanerConfig(), SOURCES).look(history.now_ms).logs
