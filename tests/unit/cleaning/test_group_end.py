"""A group, or a segment of an erasure, ends while the next one is recopied; in the log's order, and within the call."""

from __future__ import annotations

import errno
import signal
import threading
import time
from pathlib import Path

import pytest

import cleaner
from cleaner.base import concurrency
from cleaner.cleaning.round.group_end import GroupEnds, Note
from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.no_threads import start_no_more_threads
from tests.support.watched_fs import Operation, WatchedFileSystem

PATIENCE_S = 60
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "600"}


def log_dir(path: Path, value_bytes: int = 400) -> Path:
    """Write a log of three groups of a segment each, which all lose a record, and an active segment."""
    log = LogBuilder()
    for number in range(3):
        log.append(("same", f"{number}"), (f"k{number}", "v" * value_bytes))
        log.roll()
    log.append(("same", "last"))
    log.roll()
    log.append(("z", "z"))
    path.mkdir()
    write_log_dir(path, log)
    return path


class Disk(WatchedFileSystem):
    """Holds the first group's last fsync until the second group has begun to be written; can fail it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.has_begun = threading.Event()
        self.did_overlap = False
        self.renamed: list[str] = []
        self._fails = fails

    def before(self, operation: Operation) -> None:
        name = operation.path.name
        if operation.kind == "create" and name == "00000000000000000002.log.cleaned":
            self.has_begun.set()
        if operation.kind == "fsync" and name == "00000000000000000000.log.cleaned":
            self.did_overlap = self.has_begun.wait(PATIENCE_S)
            if self._fails:
                raise OSError(errno.EIO, "planted")
        if operation.kind == "rename" and name.endswith(".log.cleaned"):
            self.renamed.append(name[:20].lstrip("0") or "0")


def test_group_is_recopied_while_the_one_before_ends(tmp_path: Path) -> None:
    """The first group's fsync waits for the second group's file, and groups are swapped in their order."""
    disk = Disk()
    report = cleaner.clean(log_dir(tmp_path / "dir"), "topic-0", SETTINGS, fs=disk)
    assert disk.did_overlap
    assert disk.renamed == sorted(disk.renamed, key=int)
    assert len(disk.renamed) == 3
    assert report.removed.superseded == 3


def test_error_of_an_end_stops_the_round_before_the_next_swap(tmp_path: Path) -> None:
    """It is raised, the next group's files are removed, and neither is swapped in."""
    disk, path = Disk(fails=True), log_dir(tmp_path / "dir")
    before = {file.name: file.read_bytes() for file in (path / "topic-0").iterdir()}
    with pytest.raises(LogDirOfflineError, match=r"0\.log\.cleaned: planted"):
        cleaner.clean(path, "topic-0", SETTINGS, fs=disk)
    assert disk.renamed == []
    assert {file.name: file.read_bytes() for file in (path / "topic-0").iterdir()} == before


def test_segment_is_erased_while_the_one_before_ends(tmp_path: Path) -> None:
    """As groups of a round."""
    disk = Disk()
    (report,) = cleaner.erase(log_dir(tmp_path / "dir"), ["topic-0"], [b"same"], SETTINGS, fs=disk)
    assert isinstance(report, cleaner.EraseReport)
    assert report.records == 4
    assert disk.did_overlap
    assert disk.renamed == ["0", "2", "4", "6"]


def test_error_of_an_end_stops_an_erasure_before_the_next_swap(tmp_path: Path) -> None:
    """As of a round: nothing is swapped in, and nothing is left."""
    disk, path = Disk(fails=True), log_dir(tmp_path / "dir")
    before = {file.name: file.read_bytes() for file in (path / "topic-0").iterdir()}
    (refusal,) = cleaner.erase(path, ["topic-0"], [b"same"], SETTINGS, fs=disk)
    assert isinstance(refusal, cleaner.Refusal)
    assert "0.log.cleaned: planted" in str(refusal.error)
    assert disk.renamed == []
    assert {file.name: file.read_bytes() for file in (path / "topic-0").iterdir()} == before


def test_erasure_on_a_nearly_full_disk_waits_for_the_files_of_the_segment_before(tmp_path: Path) -> None:
    """A segment is begun once the room of the one before is free."""
    disk = _RoomForOne()
    (report,) = cleaner.erase(log_dir(tmp_path / "dir", 200_000), ["topic-0"], [b"same"], SETTINGS, fs=disk)
    assert isinstance(report, cleaner.EraseReport)
    assert disk.gone_by_then == [[], [0], [0, 2]]


class _RoomForOne(WatchedFileSystem):
    """Has room for one segment of 200 KB; notes which old ones were gone when each large one was begun."""

    def __init__(self) -> None:
        self.gone_by_then: list[list[int]] = []
        self._gone: list[int] = []
        self._has_begun = threading.Event()

    def free_bytes(self, path: Path) -> int:
        return 750_000

    def before(self, operation: Operation) -> None:
        name = operation.path.name
        if operation.kind == "create" and name.endswith(".log.cleaned") and len(self.gone_by_then) < 3:
            self.gone_by_then.append(sorted(self._gone))
            self._has_begun.set()
        if operation.kind == "remove" and name.endswith(".log.deleted"):
            self._has_begun.clear()
            self._has_begun.wait(0.1)  # time enough for a next segment that does not wait
            self._gone.append(int(name[:20]))


class _SlowFence(WatchedFileSystem):
    """The fence after the first `.swap` takes long; Ctrl-C comes meanwhile."""

    def __init__(self) -> None:
        self._has_come = False

    def before(self, operation: Operation) -> None:
        swap = operation.path / "00000000000000000000.log.swap"
        if not self._has_come and operation.kind == "fsync_dir" and swap.exists():
            self._has_come = True
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            time.sleep(0.5)


def test_interrupted_erasure_leaves_no_end_behind_that_works_on(tmp_path: Path) -> None:
    """The same call again would meet it in the directory of what is kept, and lose a segment there."""
    settings = SETTINGS | {"internal.segment.bytes": "100000"}
    path, kept = log_dir(tmp_path / "dir"), tmp_path / "kept"
    cleaner.clean(path, "topic-0", settings, keep_old=kept)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cleaner.erase(path, ["topic-0"], [b"same"], settings, fs=_SlowFence(), kept=[kept])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not [thread for thread in threading.enumerate() if thread.name == "cleaner-group-end"]
    cleaner.erase(path, ["topic-0"], [b"same"], settings, kept=[kept])
    assert sorted(int(file.name[:20]) for file in kept.rglob("*.log")) == [0, 2, 4, 6]


class NearlyFullDisk(FileSystem):
    """Has room for one group, and not for a second one before the first one's old files are gone."""

    def free_bytes(self, path: Path) -> int:
        return 3000


def test_only_indexes_change_on_a_nearly_full_disk(tmp_path: Path) -> None:
    """Each group's records are copied as a whole, once the old files of the group before are gone."""
    log = LogBuilder(index_interval_bytes=4096)
    for number in range(4):
        log.append((f"k{number}", "v" * 400))
        log.append((f"l{number}", "v" * 400))
        log.roll()
    (tmp_path / "dir").mkdir()
    write_log_dir(tmp_path / "dir", log)
    partition = tmp_path / "dir" / "topic-0"
    before = {file.name: file.read_bytes() for file in partition.glob("*.log")}
    report = cleaner.clean(tmp_path / "dir", "topic-0", SETTINGS | {"index.interval.bytes": "0"}, fs=NearlyFullDisk())
    assert (report.end_offset, report.bytes_in_place) == (8, 0)
    assert {file.name: file.read_bytes() for file in partition.glob("*.log")} == before
    assert [file.stat().st_size for file in sorted(partition.glob("*.index"))[:4]] == [8, 8, 8, 8]


def test_block_waits_for_the_last_end_and_raises_its_error() -> None:
    """What follows the block, such as the checkpoint, is not done; the caller's part is left out."""
    ended: list[str] = []

    def fail() -> Note:
        ended.append("end")
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"), GroupEnds() as ends:
        ends.begin("target", fail)
    assert ended == ["end"]


def test_interrupt_of_the_block_waits_for_the_end() -> None:
    """The thread works in the partition: nobody may go on there before it has ended."""
    may_end, ended = threading.Event(), threading.Event()

    def end() -> Note:
        may_end.wait(PATIENCE_S)
        ended.set()
        return lambda: None

    with pytest.raises(KeyboardInterrupt), GroupEnds() as ends:
        ends.begin("target", end)
        threading.Timer(0.05, may_end.set).start()
        raise KeyboardInterrupt
    assert ended.is_set()


class _Interrupted(threading.Thread):
    """A thread whose start is interrupted, before or after it runs."""

    runs_first = True

    def start(self) -> None:
        """Start, perhaps, and be interrupted."""
        if self.runs_first:
            super().start()
        raise KeyboardInterrupt


@pytest.mark.parametrize("runs_first", [False, True])
def test_interrupt_of_a_start_leaves_no_thread_without_an_owner(
    monkeypatch: pytest.MonkeyPatch, runs_first: bool
) -> None:
    """A thread that runs already is waited for, and has the target; one that does not never does."""
    may_end, ended, owned = threading.Event(), [], []

    def end() -> Note:
        may_end.wait(PATIENCE_S)
        ended.append("end")
        return lambda: None

    monkeypatch.setattr(concurrency, "Thread", _Interrupted)
    monkeypatch.setattr(_Interrupted, "runs_first", runs_first)
    threading.Timer(0.1, may_end.set).start()
    with pytest.raises(KeyboardInterrupt), GroupEnds() as ends:
        try:
            ends.begin("target", end)
        finally:
            owned.append(ends.has("target"))
    assert (ended == ["end"], owned) == (runs_first, [runs_first])


def test_end_is_done_at_once_where_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error, too, is raised by the next wait."""

    def end() -> Note:
        done.append("end")
        return lambda: done.append("note")

    def fail() -> Note:
        raise CleanerError("the disk failed")

    start_no_more_threads(monkeypatch)
    done: list[str] = []
    with GroupEnds() as ends:
        ends.begin("target", end)
        ends.linger()
        ends.wait()
        ends.begin("target", fail)
        with pytest.raises(CleanerError, match="the disk failed"):
            ends.wait()
    assert done == ["end", "note"]
