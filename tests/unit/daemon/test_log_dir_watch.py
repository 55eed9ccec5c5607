"""One log dir under watch: its condition, and that a look disturbs and changes nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig
from cleaner.errors import CorruptCheckpointError, LogDirOfflineError
from cleaner.policy.selection_context import DirCondition
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import FileSystem, Space
from cleaner.storage.fs.ownership import OwnDirectories
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.integration.log_dirs import contents
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.daemon.watching import Watch, sources

FS = FileSystem()


def small_log(name: str = "topic-0") -> LogBuilder:
    """Three segments of two records."""
    log = LogBuilder(TopicPartition.parse(name))
    for segment in range(3):
        if segment:
            log.roll()
        log.append(("k", f"v{segment}"))
        log.append(("l", f"v{segment}"))
    return log


HOLD = """
import sys
from pathlib import Path
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
lock = LogDirLock(FileSystem(), Path(sys.argv[1]), LockMode(sys.argv[2]), LockRole[sys.argv[3]])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[[str, str], Callable[[], None]]]:
    """Start another process that holds the log dir; what is returned ends it."""
    started: list[subprocess.Popen[bytes]] = []

    def hold(mode: str, role: str) -> Callable[[], None]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), mode, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return lambda: process.communicate() and None

    yield hold
    for process in started:
        if process.poll() is None:
            process.communicate()


def test_look_reports_everything_and_changes_nothing(tmp_path: Path) -> None:
    """Not even a lock file is left."""
    write_log_dir(tmp_path, small_log("topic-1"), small_log("topic-0"), small_log("other-0"))
    before = contents(tmp_path)
    watch = Watch(tmp_path)
    look = watch.look()
    assert (look.facts.condition, look.facts.detail, look.beside_writer) == (DirCondition.ONLINE, "", False)
    assert [str(log.partition) for log in look.logs] == ["other-0", "topic-0", "topic-1"]
    assert (len(look.logs), look.looked_at_ms) == (3, watch.now_ms)
    assert look.free_bytes is not None
    assert look.total_bytes is not None
    assert 0 < look.free_bytes <= look.total_bytes
    assert contents(tmp_path) == before
    assert not (tmp_path / ".lock").exists()


def test_partition_directory_in_log_dirs_is_no_log_dir(tmp_path: Path) -> None:
    """It waits, said to be what it is, and nothing in it is touched."""
    write_log_dir(tmp_path, small_log())
    facts = Watch(tmp_path / "topic-0").look().facts
    assert facts.condition is DirCondition.OFFLINE
    assert f"the log dir is {tmp_path}" in facts.detail


def test_mount_point_without_its_disk_is_reported_until_the_disk_comes(tmp_path: Path) -> None:
    """It may also be a new one without any log; both get no error."""
    watch = Watch(tmp_path)
    look = watch.look()
    assert look.facts.condition is DirCondition.ONLINE
    assert look.warnings[0] == "an empty directory, not a log dir; is its disk mounted?"
    write_log_dir(tmp_path, small_log())
    look = watch.look()
    assert (len(look.logs), look.warnings) == (1, ())


def test_partitions_come_and_go(tmp_path: Path) -> None:
    """A new directory is seen at the next look; directories awaiting deletion are not served."""
    write_log_dir(tmp_path, small_log())
    watch = Watch(tmp_path)
    assert len(watch.look().logs) == 1
    small_log("topic-7").write(tmp_path)
    assert [str(log.partition) for log in watch.look().logs] == ["topic-0", "topic-7"]
    (tmp_path / "topic-0").rename(tmp_path / f"topic-0.{'0' * 32}-delete")
    assert [str(log.partition) for log in watch.look().logs] == ["topic-7"]


def test_log_dir_without_marker_needs_recovery(tmp_path: Path) -> None:
    """Its logs are shown all the same; with `cleaner.recover` it is online, and that is reported."""
    write_log_dir(tmp_path, small_log(), clean_shutdown=False)
    look = Watch(tmp_path).look()
    assert look.facts.condition is DirCondition.NEEDS_RECOVERY
    assert "cleaner.recover" in look.facts.detail
    assert look.logs[0].facts is not None
    look = Watch(tmp_path, config=CleanerConfig(recover=True)).look()
    assert (look.facts.condition, look.needs_recovery) == (DirCondition.ONLINE, True)


def test_empty_log_dir_needs_no_recovery(tmp_path: Path) -> None:
    """Where nothing has been written yet there is nothing to doubt."""
    look = Watch(tmp_path).look()
    assert (look.facts.condition, look.needs_recovery, len(look.logs)) == (DirCondition.ONLINE, False, 0)


def test_with_a_writer_no_marker_is_expected(tmp_path: Path, another: Callable[[str, str], Callable[[], None]]) -> None:
    """While it is at work nothing is to be recovered; when it has gone without leaving a marker, there is."""
    write_log_dir(tmp_path, small_log(), clean_shutdown=False)
    watch = Watch(tmp_path)
    end = another("shared", "WRITER")
    look = watch.look()
    assert (look.facts.condition, look.beside_writer, look.needs_recovery) == (DirCondition.ONLINE, True, False)
    assert look.logs[0].facts is not None
    end()
    assert watch.look().facts.condition is DirCondition.NEEDS_RECOVERY


@pytest.mark.parametrize(
    ("mode", "words"), [("shared", "another cleaner"), ("exclusive", "needs the log dir to itself")]
)
def test_log_dir_held_by_another_is_locked_until_it_is_let_go(
    tmp_path: Path, another: Callable[[str, str], Callable[[], None]], mode: str, words: str
) -> None:
    """It says who, names the moment of the next try, and shows the logs; the next look after the end finds it free."""
    write_log_dir(tmp_path, small_log())
    watch = Watch(tmp_path)
    end = another(mode, "CLEANER")
    look = watch.look()
    assert look.facts.condition is DirCondition.LOCKED
    assert words in look.facts.detail
    assert look.facts.not_before_ms == watch.now_ms + CleanerConfig().backoff_ms
    assert look.logs[0].facts is not None
    end()
    assert watch.look().facts.condition is DirCondition.ONLINE


def test_own_lock_is_no_obstacle(tmp_path: Path) -> None:
    """A worker of this process at work in the log dir does not make it look locked."""
    write_log_dir(tmp_path, small_log())
    with LogDirLock(FS, tmp_path, LockMode.SHARED, LockRole.CLEANER) as lock:
        assert Watch(tmp_path).look().facts.condition is DirCondition.ONLINE
        lock.still_held()


class FailingDisk(FileSystem):
    """Fails when its space is asked for, as long as it is broken."""

    error: OSError | None = None
    tries = 0

    def space(self, path: Path) -> Space:
        """Fail, or answer."""
        self.tries += 1
        if self.error is not None:
            raise LogDirOfflineError(path, self.error)
        return super().space(path)


def test_failing_disk_is_offline_and_tried_after_growing_delays(tmp_path: Path) -> None:
    """Its logs stay visible as before; it comes back by itself, and then the delays start again."""
    write_log_dir(tmp_path, small_log())
    disk = FailingDisk()
    watch = Watch(tmp_path, config=CleanerConfig(backoff_ms=1_000), fs=disk)
    healthy = watch.look()
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    disk.tries = 0
    failed_at = []
    for _ in range(15):
        look = watch.look(after_ms=1_000)
        assert look.facts.condition is DirCondition.OFFLINE
        assert "Input/output error" in look.facts.detail
        assert (look.logs, look.looked_at_ms, look.free_bytes) == (healthy.logs, healthy.looked_at_ms, None)
        failed_at.append(disk.tries)
    # At 0, 1, 3, 7 and 15 seconds after the first failure.
    assert failed_at == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4]
    disk.error = None
    assert watch.look(after_ms=1_000).facts.condition is DirCondition.ONLINE
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    disk.tries = 0
    watch.look(after_ms=1_000)
    watch.look(after_ms=1_000)
    assert disk.tries == 2


def test_read_only_file_system_is_offline(tmp_path: Path) -> None:
    """The kernel mounts a failing disk so; nothing can be cleaned there."""

    class ReadOnly(FileSystem):
        """Says so."""

        def space(self, path: Path) -> Space:
            """Say so."""
            return super().space(path)._replace(is_read_only=True)

    write_log_dir(tmp_path, small_log())
    look = Watch(tmp_path, fs=ReadOnly()).look()
    assert (look.facts.condition, "read-only" in look.facts.detail) == (DirCondition.OFFLINE, True)
    assert (look.logs, look.looked_at_ms) == ((), None)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_log_dir_of_another_user_that_appears_later_is_offline(tmp_path: Path) -> None:
    """What was mounted while the daemon runs may be anybody's; root does not work in it, and tells why."""
    watch = Watch(tmp_path / "later", config=CleanerConfig(backoff_ms=1_000), fs=OwnDirectories())
    assert watch.look().facts.condition is DirCondition.OFFLINE
    write_log_dir(tmp_path / "later", small_log())
    os.chown(tmp_path / "later", 1001, 1001)
    look = watch.look(after_ms=1_000)
    assert (look.facts.condition, look.logs) == (DirCondition.OFFLINE, ())
    assert "and this process has become root" in look.facts.detail
    os.chown(tmp_path / "later", 0, 0)
    assert watch.look(after_ms=2_000).facts.condition is DirCondition.ONLINE


def test_missing_log_dir_is_offline_until_it_exists(tmp_path: Path) -> None:
    """A disk that is mounted later is found."""
    watch = Watch(tmp_path / "later", config=CleanerConfig(backoff_ms=1_000))
    look = watch.look()
    assert look.facts.condition is DirCondition.OFFLINE
    assert "No such file" in look.facts.detail
    write_log_dir(tmp_path / "later", small_log())
    assert len(watch.look().logs) == 1


@pytest.mark.parametrize("name", [*(kind.value for kind in OffsetKind), "meta.properties"])
def test_damaged_file_of_the_whole_log_dir_takes_it_offline(tmp_path: Path, name: str) -> None:
    """It concerns every partition, so none may be cleaned; commands refuse the directory in the same words."""
    write_log_dir(tmp_path, small_log())
    watch = Watch(tmp_path)
    watch.look()
    good = (tmp_path / name).read_bytes()
    (tmp_path / name).write_text("0\n1\nnonsense\n" if name != "meta.properties" else "version=9\n")
    look = watch.look()
    assert look.facts.condition is DirCondition.OFFLINE
    with pytest.raises(CorruptCheckpointError) as refused:
        LogDir(FS, tmp_path).check()
    assert look.facts.detail == str(refused.value)
    assert f"{name}: at byte" in look.facts.detail
    (tmp_path / name).write_bytes(good)
    assert watch.look().facts.condition is DirCondition.ONLINE


def test_checkpoints_are_read_only_when_they_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a look at most, not once a log; a new one is read at the next look."""
    read: list[OffsetKind] = []
    offsets = LogDir.offsets

    def noted(log_dir: LogDir, kind: OffsetKind) -> dict[TopicPartition, int]:
        read.append(kind)
        return offsets(log_dir, kind)

    monkeypatch.setattr(LogDir, "offsets", noted)
    write_log_dir(tmp_path, small_log("topic-0"), small_log("topic-1"))
    watch = Watch(tmp_path)
    watch.look()
    assert read == list(OffsetKind)
    read.clear()
    watch.look()
    assert read == []
    LogDir(FS, tmp_path).put(OffsetKind.CLEANER, TopicPartition("topic", 1), 4)
    read.clear()
    assert [log.facts and log.facts.cleanable.first_dirty_offset for log in watch.look().logs] == [0, 4]
    assert read == [OffsetKind.CLEANER]


def test_settings_are_followed_as_their_files_change(tmp_path: Path) -> None:
    """Of all topics in one file, and of one topic in its own; a mistake keeps the settings in force and is reported."""
    write_log_dir(tmp_path / "logs", small_log())
    (tmp_path / "topics").mkdir()
    watch = Watch(tmp_path / "logs", Sources(topics_dir=tmp_path / "topics"))
    assert watch.log().facts is None
    (tmp_path / "topics" / "topic.properties").write_text("cleanup.policy=compact\n")
    first = watch.log()
    assert first.facts is not None
    assert watch.log() is first
    (tmp_path / "logs" / "cleaner-topics.properties").write_text("topic.min.cleanable.dirty.ratio=0.25\n")
    assert _ratio(watch) == 0.25
    (tmp_path / "logs" / "cleaner-topics.properties").write_bytes(b"topic.min.cleanable.dirty.ratio=\\u00zz\n")
    assert _ratio(watch) == 0.25
    assert "stay in force" in watch.look().warnings[-1]
    (tmp_path / "logs" / "cleaner-topics.properties").unlink()
    assert _ratio(watch) == 0.5
    assert watch.look().warnings == ()


def _ratio(watch: Watch) -> float:
    facts = watch.log().facts
    assert facts is not None
    return facts.min_cleanable_dirty_ratio


def test_reconfigure_counts_from_the_next_look_on(tmp_path: Path) -> None:
    """Sources and settings of the process; a log dir that is offline is tried at once."""
    write_log_dir(tmp_path / "logs", small_log(), clean_shutdown=False)
    watch = Watch(tmp_path / "logs", sources())
    assert watch.log().facts is None
    assert watch.look().facts.condition is DirCondition.NEEDS_RECOVERY
    watch.dir.reconfigure(CleanerConfig(recover=True), Sources(sets=[SetOption("topic", "cleanup.policy", "compact")]))
    assert watch.log().facts is not None
    assert watch.look().facts.condition is DirCondition.ONLINE
    (tmp_path / "logs").rename(tmp_path / "away")
    assert watch.look().facts.condition is DirCondition.OFFLINE
    (tmp_path / "away").rename(tmp_path / "logs")
    watch.dir.reconfigure(CleanerConfig(recover=True), sources(topic="compact"))
    assert watch.look(after_ms=1).facts.condition is DirCondition.ONLINE


def test_missing_log_dir_is_reported_also_without_a_backoff(tmp_path: Path) -> None:
    """`log.cleaner.backoff.ms=0` is allowed; the first delay is then a millisecond."""
    (tmp_path / "logs").mkdir()
    watch = Watch(tmp_path / "logs", config=CleanerConfig(backoff_ms=0))
    (tmp_path / "logs").rmdir()
    facts = watch.look().facts
    assert facts.condition is DirCondition.OFFLINE
    assert facts.not_before_ms == watch.now_ms + 1
