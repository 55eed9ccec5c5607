"""The lock of a log dir: R-111, D-01 and rule C-4, among our own processes and against a real JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError, LogDirLockedError, LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.lock_probe import LockHolder, LockReport, probe
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock, own_locks
from cleaner.storage.lock.partition_lock import partition_lock
from tests.crash.interrupts import Interrupt, Interrupter
from tests.forked import killed_beside_its_fork
from tests.support.manual_clock import ManualClock

FS = FileSystem()
EXCLUSIVE, SHARED = LockMode.EXCLUSIVE, LockMode.SHARED
CLEANER, WRITER = LockRole.CLEANER, LockRole.WRITER


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        pytest.param((EXCLUSIVE, CLEANER), (EXCLUSIVE, CLEANER), True, id="two-exclusive"),
        pytest.param((EXCLUSIVE, CLEANER), (SHARED, CLEANER), True, id="exclusive-then-shared-cleaner"),
        pytest.param((EXCLUSIVE, WRITER), (SHARED, CLEANER), True, id="exclusive-writer-then-shared-cleaner"),
        pytest.param((SHARED, CLEANER), (EXCLUSIVE, CLEANER), True, id="shared-cleaner-then-exclusive"),
        pytest.param((SHARED, WRITER), (EXCLUSIVE, CLEANER), True, id="shared-writer-then-exclusive"),
        pytest.param((SHARED, CLEANER), (SHARED, CLEANER), True, id="two-cleaners"),
        pytest.param((SHARED, WRITER), (SHARED, WRITER), True, id="two-writers"),
        pytest.param((SHARED, CLEANER), (SHARED, WRITER), False, id="cleaner-and-writer"),
        pytest.param((SHARED, WRITER), (SHARED, CLEANER), False, id="writer-and-cleaner"),
    ],
)
def test_lock_refuses_a_second_holder_unless_roles_share(
    tmp_path: Path, first: tuple[LockMode, LockRole], second: tuple[LockMode, LockRole], meet: bool
) -> None:
    """Only a writer and a cleaner, both shared, hold a log dir at the same time; once released, it is free for all."""
    with LogDirLock(FS, tmp_path, *first):
        if meet:
            with pytest.raises(LogDirLockedError, match=r"\.lock: locked by another"):
                LogDirLock(FS, tmp_path, *second)
        else:
            LogDirLock(FS, tmp_path, *second).release()
    LogDirLock(FS, tmp_path, *second).release()


def test_lock_refused_shared_request_leaves_no_byte_locked(tmp_path: Path) -> None:
    """A refused second cleaner unlocks the presence byte that it had locked first."""
    cleaner = LogDirLock(FS, tmp_path, SHARED, CLEANER)
    with pytest.raises(LogDirLockedError):
        LogDirLock(FS, tmp_path, SHARED, CLEANER)
    cleaner.release()
    LogDirLock(FS, tmp_path, EXCLUSIVE).release()


def test_lock_in_another_process_is_refused(tmp_path: Path) -> None:
    """Another process is refused with exit code 75, and gets the lock once it is free."""
    program = (
        "import sys; from pathlib import Path; from cleaner.errors import CleanerError\n"
        "from cleaner.storage.fs.file_system import FileSystem\n"
        "from cleaner.storage.lock.log_dir_lock import LogDirLock\n"
        "try: LogDirLock(FileSystem(), Path(sys.argv[1]))\n"
        "except CleanerError as error: sys.exit(error.exit_code)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with LogDirLock(FS, tmp_path):
        assert subprocess.run(command, check=False).returncode == 75
    assert subprocess.run(command, check=False).returncode == 0


def test_lock_survives_another_descriptor_being_closed(tmp_path: Path) -> None:
    """Opening and closing the file elsewhere in the process does not drop the lock, as it would a classic one."""
    with LogDirLock(FS, tmp_path):
        FS.open(tmp_path / ".lock", write=True).close()
        with pytest.raises(LogDirLockedError):
            LogDirLock(FS, tmp_path)


def test_lock_file_is_created_for_the_directorys_owner_and_never_deleted(tmp_path: Path) -> None:
    """The file gets the directory's read and write bits, stays empty, and remains after the release."""
    tmp_path.chmod(0o750)
    LogDirLock(FS, tmp_path).release()
    status = (tmp_path / ".lock").stat()
    assert (status.st_mode & 0o777, status.st_size) == (0o640, 0)


def test_lock_whose_release_was_interrupted_anywhere_is_free_after_another_one(tmp_path: Path) -> None:
    """At every point where an exception may come: the second call releases what the first one left."""
    point = 0
    while True:
        point += 1
        lock = LogDirLock(FileSystem(), tmp_path)
        try:
            with Interrupter(point):
                lock.release()
        except Interrupt:
            lock.release()
            LogDirLock(FileSystem(), tmp_path).release()
        else:
            assert point > 5
            return


def test_lock_is_released_twice_without_harm(tmp_path: Path) -> None:
    """A second release does nothing; after the first the lock counts as not held."""
    lock = LogDirLock(FS, tmp_path)
    lock.release()
    lock.release()
    with pytest.raises(LogDirLockedError, match="no longer locked"):
        lock.still_held()


def test_lock_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    """A child that inherited the descriptor no longer holds the lock once the parent has released it."""
    lock = LogDirLock(FS, tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reader)
    lock.release()
    LogDirLock(FS, tmp_path).release()
    os.close(writer)
    os.waitpid(child, 0)


@pytest.mark.parametrize("mode", LockMode)
def test_lock_of_a_killed_process_is_free_though_its_fork_lives(tmp_path: Path, mode: LockMode) -> None:
    """A lock ends with the process that took it; a fork of it does not have it, and keeps no process out."""
    with killed_beside_its_fork(lambda: LogDirLock(FS, tmp_path, mode)):
        LogDirLock(FS, tmp_path).release()


def test_lock_stays_the_parents_whatever_a_forked_child_does(tmp_path: Path) -> None:
    """A child that leaves the block in which it was forked, or probes, neither holds nor releases the lock."""
    with LogDirLock(FS, tmp_path) as lock:
        child = os.fork()
        if child == 0:
            refused = 0
            for ask in (lock.still_held, lambda: LogDirLock(FS, tmp_path)):
                try:
                    ask()
                except LogDirLockedError:
                    refused += 1
            lock.release()
            os._exit(0 if refused == 2 and not own_locks() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lock.still_held()
        with pytest.raises(LogDirLockedError):
            LogDirLock(FS, tmp_path)


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_still_held_raises_after_the_file_was_removed(tmp_path: Path, replaced: bool) -> None:
    """A lock file deleted under the lock (a stopping broker does that) no longer excludes others; this is noticed."""
    with LogDirLock(FS, tmp_path) as lock:
        lock.still_held()
        (tmp_path / ".lock").unlink()
        if replaced:
            (tmp_path / ".lock").touch()
        with pytest.raises(LogDirLockedError, match="deleted or replaced") as caught:
            lock.still_held()
    assert caught.value.exit_code == 75


class DeletesWhatItOpens(FileSystem):
    """A log dir with brokers that stop right after the lock file was opened."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.opened = 0

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open, then delete."""
        file = super().open(path, write=write)
        self.opened += 1
        if self.opened <= self.times:
            path.unlink()
        return file


def test_lock_file_deleted_before_locking_is_opened_again(tmp_path: Path) -> None:
    """A file that a stopping broker deletes between our open and lock is not the file that we lock in the end."""
    (tmp_path / ".lock").touch()
    fs = DeletesWhatItOpens(times=1)
    with LogDirLock(fs, tmp_path) as lock:
        lock.still_held()
        with pytest.raises(LogDirLockedError):
            LogDirLock(FS, tmp_path)


def test_lock_file_deleted_again_and_again_is_refused(tmp_path: Path) -> None:
    """After some attempts it gives up; it does not try forever."""

    class AlwaysDeleted(DeletesWhatItOpens):
        def create(self, path: Path, *, like: Path | None) -> File:
            file = super().create(path, like=like)
            path.unlink()
            return file

    with pytest.raises(LogDirLockedError, match="keeps being replaced"):
        LogDirLock(AlwaysDeleted(times=100), tmp_path)


def test_lock_file_created_by_another_process_meanwhile_is_opened(tmp_path: Path) -> None:
    """Losing the race to create the file is not an error."""

    class SomebodyFaster(FileSystem):
        def create(self, path: Path, *, like: Path | None) -> File:
            path.touch()
            return super().create(path, like=like)

    LogDirLock(SomebodyFaster(), tmp_path).release()


def test_lock_file_is_not_created_in_another_users_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that could not belong to the directory's owner is not created: deleting it again is not safe."""
    monkeypatch.setattr("cleaner.storage.lock.log_dir_lock.can_own", lambda _: False)
    monkeypatch.setattr(FileSystem, "create", lambda *_, **__: pytest.fail("created"))
    with pytest.raises(LogDirOfflineError, match="belongs to another user"):
        LogDirLock(FS, tmp_path)
    assert not list(tmp_path.iterdir())


def test_lock_on_a_link_is_refused(tmp_path: Path) -> None:
    """A `.lock` that is a link is neither followed nor replaced."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LogDirOfflineError):
        LogDirLock(FS, tmp_path)
    assert (tmp_path / ".lock").is_symlink()


def test_lock_through_a_link_excludes_one_of_the_directory_itself(tmp_path: Path) -> None:
    """A log dir that is a link has the same lock as the directory to which it leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with LogDirLock(FS, tmp_path / "link"), pytest.raises(LogDirLockedError):
        LogDirLock(FS, tmp_path / "real")


class Jvm:
    """A JVM that locks and unlocks as a broker does, one command at a time."""

    def __init__(self) -> None:
        source = Path(__file__).with_name("TryLock.java")
        self.process = subprocess.Popen(
            ["java", "-Xshare:auto", str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, command: str) -> str:
        """Send a command and return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    """One JVM for all tests of this file."""
    if shutil.which("java") is None:
        pytest.skip("SKIPPED FOR WANT OF JAVA: nothing here shows that a broker and the cleaner exclude each other")
    machine = Jvm()
    yield machine
    assert machine.process.stdin is not None
    machine.process.stdin.close()
    assert machine.process.wait(timeout=60) == 0


@pytest.mark.kafka
@pytest.mark.parametrize("mode", list(LockMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("role", list(LockRole), ids=lambda role: role.name.lower())
def test_lock_and_jvm_exclude_each_other(tmp_path: Path, jvm: Jvm, mode: LockMode, role: LockRole) -> None:
    """Each of our locks refuses a broker's tryLock; a running broker refuses each of ours, and is named."""
    path = tmp_path / ".lock"
    with LogDirLock(FS, tmp_path, mode, role):
        assert jvm.send(f"lock {path}") == "refused"
    assert jvm.send(f"lock {path}") == "locked"
    with pytest.raises(LogDirLockedError, match=f"locked by process {jvm.process.pid}, probably a live broker"):
        LogDirLock(FS, tmp_path, mode, role)
    assert jvm.send("unlock") == "done"
    LogDirLock(FS, tmp_path, mode, role).release()


@pytest.mark.kafka
def test_probe_names_a_broker_and_does_not_disturb_it(tmp_path: Path, jvm: Jvm) -> None:
    """A JVM's lock is distinguished from ours, with its pid; it stays held, and can be released and taken again."""
    path = tmp_path / ".lock"
    assert jvm.send(f"lock {path}") == "locked"
    assert probe(FS, tmp_path) == LockReport(LockHolder.BROKER, pid=jvm.process.pid)
    assert jvm.send("unlock") == "done"
    assert probe(FS, tmp_path) == LockReport()


@pytest.mark.kafka
def test_partition_lock_and_jvm_exclude_each_other(tmp_path: Path, jvm: Jvm) -> None:
    """A live broker locks all partitions; while a reader lists one, no broker starts."""
    path, partition = tmp_path / ".lock", TopicPartition("orders", 0)
    path.touch()
    with partition_lock(FS, tmp_path, partition, ManualClock(), shared=True):
        assert jvm.send(f"lock {path}") == "refused"
    assert jvm.send(f"lock {path}") == "locked"
    with pytest.raises(LogChangedError), partition_lock(FS, tmp_path, partition, ManualClock(), patience_ms=0):
        pass
    assert jvm.send("unlock") == "done"


@pytest.mark.kafka
def test_lock_after_a_broker_stopped_is_on_a_new_file(tmp_path: Path, jvm: Jvm) -> None:
    """A stopping broker deletes the file; a lock taken after that keeps the next broker out."""
    path = tmp_path / ".lock"
    assert jvm.send(f"lock {path}") == "locked"
    assert jvm.send("stop") == "done"
    assert not path.exists()
    with LogDirLock(FS, tmp_path) as lock:
        lock.still_held()
        assert jvm.send(f"lock {path}") == "refused"


@pytest.mark.kafka
def test_broker_lock_waits_for_a_writer_and_a_cleaner(tmp_path: Path, jvm: Jvm) -> None:
    """A broker stays out until the last of a cleaner and a writer has left."""
    path = tmp_path / ".lock"
    writer = LogDirLock(FS, tmp_path, SHARED, WRITER)
    cleaner = LogDirLock(FS, tmp_path, SHARED, CLEANER)
    writer.release()
    assert jvm.send(f"lock {path}") == "refused"
    cleaner.release()
    assert jvm.send(f"lock {path}") == "locked"
    assert jvm.send("unlock") == "done"
