"""A log dir: R-102, R-105, R-113 to R-118, D-07, D-12, D-14."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, CorruptCheckpointError, LogDirOfflineError, UncleanableError, disk_error
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import CachedLogDir, LogDir, OffsetKind, Use, find_conflicts

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
UNIQUE = "0123456789abcdef" * 2


class CountingWrites(FileSystem):
    """Counts the files replaced."""

    writes = 0

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Write."""
        self.writes += 1
        super().write_atomically(path, data)


class CountingStats(FileSystem):
    """Counts calls of `stat`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def stat(self, path: Path) -> os.stat_result:
        self.count += 1
        return super().stat(path)


def make(path: Path, *directories: str, **checkpoints: str) -> LogDir:
    """A log dir with these sub-directories, and checkpoints given by the first word of their names."""
    for name in directories:
        (path / name).mkdir(parents=True)
    for word, lines in checkpoints.items():
        kind = next(kind for kind in OffsetKind if kind.value.startswith(word))
        entries = lines.split(",") if lines else []
        (path / kind.value).write_text("".join(f"{line}\n" for line in ["0", len(entries), *entries]))
    return LogDir(CountingWrites(), path)


def test_partitions_are_current_directories_only(tmp_path: Path) -> None:
    """R-102, R-105, D-07: metadata log, caches, files, deleted, stray and future directories are not cleaned."""
    (tmp_path / "bootstrap.checkpoint").touch()
    (tmp_path / "c-0").touch()
    (tmp_path / "x").symlink_to("nowhere")
    log_dir = make(
        tmp_path,
        "a-0",
        "a-1",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        f"a-2.{UNIQUE}-delete",
        f"a-3.{UNIQUE}-stray",
        f"a-0.{UNIQUE}-future",
    )
    listing = log_dir.listing()
    assert log_dir.partitions() == {A0: tmp_path / "a-0", A1: tmp_path / "a-1"}
    assert listing.future == {A0: tmp_path / f"a-0.{UNIQUE}-future"}
    assert listing.delete_or_stray == [f"a-2.{UNIQUE}-delete", f"a-3.{UNIQUE}-stray"]


def test_partitions_that_are_links_are_seen_but_not_current(tmp_path: Path) -> None:
    """A partition directory that is a link is reported, never opened."""
    (tmp_path / "elsewhere").mkdir()
    log_dir = make(tmp_path / "log", "a-0")
    (tmp_path / "log" / "a-1").symlink_to(tmp_path / "elsewhere")
    assert (list(log_dir.listing().current), list(log_dir.listing().linked)) == ([A0], [A1])


@pytest.mark.parametrize("name", ["lost+found", "data", "a-0-delete", "a-x"])
def test_partitions_next_to_a_foreign_directory_are_refused(tmp_path: Path, name: str) -> None:
    """R-102: a broker does not start with such a log dir."""
    with pytest.raises(UncleanableError, match="a broker does not start"):
        make(tmp_path, "a-0", name).partitions()


def test_partitions_with_two_directories_are_refused(tmp_path: Path) -> None:
    """R-105: two directories for one partition are fatal to a broker; so are two future ones, but not one of each."""
    with pytest.raises(UncleanableError, match="a-00: a-0 is a directory of the same partition"):
        make(tmp_path / "one", "a-0", "a-00").partitions()
    with pytest.raises(UncleanableError, match="of the same partition"):
        make(tmp_path / "two", f"a-0.{UNIQUE}-future", f"a-0.x{UNIQUE}-future").partitions()
    assert make(tmp_path / "three", "a-0", f"a-0.{UNIQUE}-future").partitions().keys() == {A0}


def test_partitions_of_a_missing_directory_are_refused(tmp_path: Path) -> None:
    """A missing log dir is offline, not empty."""
    with pytest.raises(LogDirOfflineError):
        LogDir(FileSystem(), tmp_path / "none").partitions()


def test_log_dir_that_is_a_link_is_followed_once(tmp_path: Path) -> None:
    """Administrators do that; new files then get the ownership of the directory, not of the link."""
    make(tmp_path / "real", "a-0").path.chmod(0o750)
    (tmp_path / "link").symlink_to("real")
    log_dir = LogDir(FileSystem(), tmp_path / "link")
    assert log_dir.path == tmp_path / "real"
    log_dir.write_marker()
    assert (tmp_path / "real" / ".kafka_cleanshutdown").stat().st_mode & 0o777 == 0o640


def test_offsets_of_four_checkpoints_are_read(tmp_path: Path) -> None:
    """R-115 to R-118: each file under its own name; a missing one is empty."""
    log_dir = make(tmp_path, cleaner="a 0 1", recovery="a 0 2", replication="a 0 3", log="a 0 4")
    assert log_dir.cleaner_offsets == {A0: 1}
    assert log_dir.recovery_points == {A0: 2}
    assert log_dir.high_watermarks == {A0: 3}
    assert log_dir.log_start_offsets == {A0: 4}
    assert LogDir(FileSystem(), tmp_path / "empty").high_watermarks == {}


def test_put_keeps_lines_of_partitions_with_a_directory_here_only(tmp_path: Path) -> None:
    """D-12: the new line is added to those of partitions in this log dir; stale ones are dropped."""
    log_dir = make(tmp_path, "a-0", "a-1", f"b-0.{UNIQUE}-future", f"c-0.{UNIQUE}-stray", cleaner="a 1 7,b 0 9,c 0 3")
    assert log_dir.put(OffsetKind.CLEANER, A0, 5) is True
    assert log_dir.cleaner_offsets == {A0: 5, A1: 7}


def test_put_keeps_lines_of_future_copies_but_not_in_the_cleaners_file(tmp_path: Path) -> None:
    """A copy being moved here is flushed and recovered like any log, but never cleaned."""
    lines = "a 0 1,b 0 2"
    log_dir = make(tmp_path, "a-0", f"b-0.{UNIQUE}-future", cleaner=lines, recovery=lines, replication=lines, log=lines)
    for kind in OffsetKind:
        log_dir.put(kind, A0, 8)
        assert log_dir.offsets(kind) == ({A0: 8} if kind is OffsetKind.CLEANER else {A0: 8, B0: 2})


def test_put_keeps_lines_of_linked_partitions(tmp_path: Path) -> None:
    """A partition that we do not change, because it is a link, keeps its line."""
    log_dir = make(tmp_path, "a-0", cleaner="a 1 7")
    (tmp_path / "a-1").symlink_to("a-0")
    log_dir.put(OffsetKind.CLEANER, A0, 5)
    assert log_dir.cleaner_offsets == {A0: 5, A1: 7}


def test_put_none_drops_the_line(tmp_path: Path) -> None:
    """R-118: a log start equal to the first segment's base has no line."""
    log_dir = make(tmp_path, "a-0", "a-1", log="a 0 4,a 1 6")
    assert log_dir.put(OffsetKind.LOG_START, A0, None) is True
    assert log_dir.log_start_offsets == {A1: 6}


def test_put_without_change_writes_nothing(tmp_path: Path) -> None:
    """The same value, dropping a missing line, or a partition without directory does not change the file."""
    log_dir = make(tmp_path, "a-0", cleaner="a 0 5")
    assert not log_dir.put(OffsetKind.CLEANER, A0, 5)
    assert not log_dir.put(OffsetKind.CLEANER, A1, None)
    assert not log_dir.put(OffsetKind.CLEANER, B0, 3)
    assert not log_dir.put(OffsetKind.LOG_START, A0, None)
    assert isinstance(log_dir.fs, CountingWrites)
    assert log_dir.fs.writes == 0
    assert not (tmp_path / OffsetKind.LOG_START.value).exists()


def test_put_all_is_one_write(tmp_path: Path) -> None:
    """Recovering a thousand partitions does not write the file a thousand times."""
    log_dir = make(tmp_path, "a-0", "a-1", "b-0", recovery="a 0 1,a 1 2")
    assert log_dir.put_all(OffsetKind.RECOVERY_POINT, {A0: None, A1: 3, B0: 4})
    assert log_dir.recovery_points == {A1: 3, B0: 4}
    assert isinstance(log_dir.fs, CountingWrites)
    assert log_dir.fs.writes == 1


def test_put_into_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """An unreadable file is not replaced by one without its lines."""
    log_dir = make(tmp_path, "a-0")
    path = tmp_path / OffsetKind.CLEANER.value
    path.write_text("not a checkpoint\n")
    with pytest.raises(CorruptCheckpointError):
        log_dir.put(OffsetKind.CLEANER, A0, 5)
    assert path.read_text() == "not a checkpoint\n"


def test_put_from_many_threads_loses_no_line(tmp_path: Path) -> None:
    """Rounds that end at the same time do not undo each other's lines."""
    partitions = [TopicPartition("a", number) for number in range(8)]
    log_dir = make(tmp_path, *map(str, partitions))
    threads = [threading.Thread(target=log_dir.put, args=(OffsetKind.CLEANER, tp, 5)) for tp in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log_dir.cleaner_offsets == dict.fromkeys(partitions, 5)


def test_changes_by_other_processes_count_at_once(tmp_path: Path) -> None:
    """Cached results are used only for the same names and bytes."""
    log_dir, other = make(tmp_path, "a-0", "a-1", cleaner="a 0 5"), LogDir(FileSystem(), tmp_path)
    assert log_dir.put(OffsetKind.CLEANER, A0, 6)
    other.put(OffsetKind.CLEANER, A0, 7)
    assert log_dir.cleaner_offsets == {A0: 7}
    (tmp_path / "b-0").mkdir()
    other.put(OffsetKind.CLEANER, B0, 1)
    (tmp_path / "a-1").rmdir()
    assert log_dir.put(OffsetKind.CLEANER, A1, 9) is False
    assert log_dir.put(OffsetKind.CLEANER, A0, 8) is True
    assert log_dir.cleaner_offsets == other.cleaner_offsets == {A0: 8, B0: 1}
    log_dir.cleaner_offsets[A0] = 99
    assert log_dir.cleaner_offsets[A0] == 8


def test_partitions_are_sorted_again_only_after_names_have_changed(tmp_path: Path) -> None:
    """With thousands of partitions, sorting would take longer than the round whose line is written."""
    log_dir = make(tmp_path, *(f"a-{number}" for number in range(50)), cleaner="a 0 5")
    log_dir.put(OffsetKind.CLEANER, A0, 6)
    log_dir.put(OffsetKind.CLEANER, A0, 7)
    stats = CountingStats()
    log_dir.fs = stats
    for offset in range(8, 12):
        log_dir.put(OffsetKind.CLEANER, A0, offset)
    assert stats.count < 50
    assert log_dir.cleaner_offsets == {A0: 11}


@pytest.mark.parametrize("kind", [*OffsetKind, None], ids=lambda kind: kind.value if kind else "meta.properties")
def test_check_refuses_damage_to_any_file_of_the_directory(tmp_path: Path, kind: OffsetKind | None) -> None:
    """A damaged file of the directory refuses all its partitions."""
    log_dir = make(tmp_path, "a-0")
    log_dir.check()
    path = tmp_path / (kind.value if kind else "meta.properties")
    path.write_text("0\n1\n" if kind else "version=9\n")
    with pytest.raises(CorruptCheckpointError) as caught:
        log_dir.check()
    assert caught.value.path == path


def test_check_refuses_a_foreign_directory(tmp_path: Path) -> None:
    """R-102."""
    with pytest.raises(UncleanableError):
        make(tmp_path, "lost+found").check()


def test_marker_comes_and_goes(tmp_path: Path) -> None:
    """R-112."""
    log_dir = make(tmp_path)
    assert not log_dir.has_clean_shutdown_marker()
    log_dir.write_marker()
    assert log_dir.has_clean_shutdown_marker()
    log_dir.remove_marker()
    assert not log_dir.has_clean_shutdown_marker()


def test_conflicts_name_partitions_claimed_by_two_log_dirs(tmp_path: Path) -> None:
    """D-14: two directories of a partition, or two lines in the cleaner's files; a line without directory can go."""
    first = make(tmp_path / "1", "a-0", "a-1", cleaner="a 0 5,a 1 6")
    second = make(tmp_path / "2", "a-0", "b-0", cleaner="a 1 6,b 0 1")
    directory, line = find_conflicts([first, second])
    assert (directory.topic_partition, directory.what, directory.droppable) == (A0, "directory", ())
    assert (line.topic_partition, line.what, line.droppable) == (A1, "cleaner-offset-checkpoint", (second.path,))
    assert str(line) == f"a-1 has a line in cleaner-offset-checkpoint in {first.path} and {second.path}"
    assert str(directory) == f"a-0 has a directory in {first.path} and {second.path}"


def test_damaged_checkpoint_of_a_log_dir_hides_none_of_its_directories(tmp_path: Path) -> None:
    """They are there whatever it says; the damage is told."""
    first, second = make(tmp_path / "1", "a-0"), make(tmp_path / "2", "a-0", cleaner="a 0 5")
    (second.path / "cleaner-offset-checkpoint").write_text("no checkpoint")
    faults: list[CleanerError | OSError] = []
    (directory,) = find_conflicts([first, LogDir(FileSystem(), second.path)], faults.append)
    assert (directory.topic_partition, directory.what, len(faults)) == (A0, "directory", 1)


def test_conflicts_of_log_dirs_in_order_are_none(tmp_path: Path) -> None:
    """D-14: a broker moves a partition with a future copy next to the current one; one log dir has no conflict."""
    first = make(tmp_path / "1", "a-0", cleaner="a 0 5")
    second = make(tmp_path / "2", f"a-0.{UNIQUE}-future", "b-0", cleaner="b 0 5")
    assert find_conflicts([first, second]) == []
    assert find_conflicts([first, first]) == []


def test_still_log_dir_reads_each_checkpoint_once(tmp_path: Path) -> None:
    """An inspection of thousands of logs uses one state of them; the next inspection a new one."""
    fs = FileSystem()
    partition = TopicPartition("topic", 0)
    (tmp_path / "topic-0").mkdir()
    LogDir(fs, tmp_path).put(OffsetKind.CLEANER, partition, 5)
    still = CachedLogDir(fs, tmp_path)
    assert still.cleaner_offsets == {partition: 5}
    LogDir(fs, tmp_path).put(OffsetKind.CLEANER, partition, 6)
    assert still.cleaner_offsets == {partition: 5}
    assert still.high_watermarks == {}
    assert CachedLogDir(fs, tmp_path).cleaner_offsets == {partition: 6}


@pytest.mark.parametrize(
    ("is_marked", "has_writer", "is_held", "expected"),
    [
        (True, False, False, Use.CLOSED),
        (True, False, True, Use.CLOSED),
        (True, True, False, Use.WRITTEN),
        (False, True, True, Use.WRITTEN),
        (False, False, True, Use.SERVED),
        (False, False, False, Use.TORN),
    ],
)
def test_use_of_a_log_dir_follows_from_marker_and_processes(
    tmp_path: Path, is_marked: bool, has_writer: bool, is_held: bool, expected: Use
) -> None:
    """Only a log dir without a marker that no process has open needs recovery."""
    log_dir = LogDir(FileSystem(), tmp_path)
    if is_marked:
        log_dir.write_marker()
    assert log_dir.use(has_writer=has_writer, is_held=is_held) is expected


class _FailingFence(FileSystem):
    """Fails to force names to disk, while it is told to."""

    def __init__(self) -> None:
        self.fails, self.fences = True, 0

    def fsync_dir(self, path: Path) -> None:
        """Force, or fail."""
        if self.fails:
            raise disk_error(path, OSError(errno.EIO, "I/O error"))
        self.fences += 1
        super().fsync_dir(path)


def test_checkpoint_whose_name_could_not_be_forced_is_forced_by_the_next_attempt(tmp_path: Path) -> None:
    """The file shows what is wanted; a power cut could still bring the old one back."""
    (tmp_path / "topic-0").mkdir()
    fs = _FailingFence()
    log_dir, partition = LogDir(fs, tmp_path), TopicPartition("topic", 0)
    for _ in range(2):
        with pytest.raises(LogDirOfflineError):
            log_dir.put(OffsetKind.HIGH_WATERMARK, partition, 7)
    fs.fails = False
    assert not log_dir.put(OffsetKind.HIGH_WATERMARK, partition, 7)
    assert not log_dir.put(OffsetKind.HIGH_WATERMARK, partition, 7)
    assert fs.fences == 1
