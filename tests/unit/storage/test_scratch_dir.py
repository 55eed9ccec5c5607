"""
Scratch directories: nobody loses one that is used, and none stays that is not.

Two processes, each with its own openings of the lock file, are stopped before each call of the file system and go on in
every order of one turn each, or two. A killed one gets no further than some call.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.fs.held import Hold
from cleaner.storage.lock.scratch_dir import scratch_dir

PREFIX = "cleaner-test-"
NAME = PREFIX + "0" * 8
END = 10**6


class Killed(BaseException):
    """The process is no more."""


class Steps(FileSystem):
    """Calls `step` before each call, and after a file was made: its lock comes next. Without `locks` there are none."""

    def __init__(self, step: Callable[[], None], *, locks: bool = True) -> None:
        self._step = step
        self._locks = locks

    def make_dir(self, path: Path, mode: int, *, like: Path | None = None) -> None:
        """Make."""
        self._step()
        super().make_dir(path, mode, like=like)

    def create(self, path: Path, *, like: Path | None) -> File:
        """Create; a file that is open for reading only is refused a lock, as by a file system that has none."""
        self._step()
        file = super().create(path, like=like)
        if not self._locks:
            file.close()
            file = super().open(path)
        with contextlib.ExitStack() as stack:
            stack.callback(file.close)
            self._step()
            stack.pop_all()
        return file

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open."""
        self._step()
        return super().open(path, write=write and self._locks)

    def hold(self, directory: Path, *, follow_above: bool = False) -> Hold:
        """Hold."""
        self._step()
        return super().hold(directory, follow_above=follow_above)

    def stat(self, path: Path) -> os.stat_result:
        """Look."""
        self._step()
        return super().stat(path)

    def list_dir(self, path: Path) -> list[str]:
        """List."""
        self._step()
        return super().list_dir(path)

    def list_dirs(self, path: Path) -> list[str]:
        """List."""
        self._step()
        return super().list_dirs(path)

    def list_files(self, path: Path) -> list[str]:
        """List."""
        self._step()
        return super().list_files(path)

    def remove(self, path: Path) -> None:
        """Remove."""
        self._step()
        super().remove(path)

    def remove_dir(self, path: Path) -> None:
        """Remove."""
        self._step()
        super().remove_dir(path)


class Process:
    """A thread that makes a scratch directory, works in it and removes it, as many calls at a time as it is told."""

    def __init__(self, base: Path, *, locks: bool = True) -> None:
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._fs, self._base = Steps(self._step, locks=locks), base
        self.error: Exception | None = None
        self.has_ended = False
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def run(self, steps: int) -> None:
        """Let it go on for some steps; it may end before."""
        for _ in range(steps):
            if self.has_ended:
                return
            self._go.release()
            self._stopped.acquire()

    def end(self) -> None:
        """Let it go on to its end."""
        while not self.has_ended:
            self.run(1)
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _step(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def _main(self) -> None:
        try:
            self._step()
            work(self._fs, self._base, self._step)
        except (AssertionError, OSError, CleanerError) as error:  # for its caller
            self.error = error
        self.has_ended = True
        self._stopped.release()


def work(fs: FileSystem, base: Path, step: Callable[[], None]) -> None:
    """Use a scratch directory."""
    with scratch_dir(fs, base, PREFIX) as path:
        step()
        (path / "copy").mkdir()
        (path / "copy" / "file").write_text("a")
        (path / "link").symlink_to(base)
        step()
        assert (path / "copy" / "file").read_text() == "a", "removed while it was used"


def killed_in(base: Path, step: int) -> bool:
    """Use a scratch directory in a process that is killed at a step; False: it ended before."""
    calls = iter(range(END))

    def die() -> None:
        if next(calls) >= step:
            raise Killed

    with contextlib.suppress(Killed):
        work(Steps(die), base, die)
        return False
    return True


@pytest.mark.parametrize(
    ("has_left", "with_locks", "then"),
    [
        (False, (True, True), END),
        (True, (True, True), END),
        (False, (True, True), 5),
        (False, (False, True), 5),  # into its block, if it stopped between making the file and locking it
    ],
)
def test_living_directory_stays_and_dead_ones_go(
    tmp_path: Path, has_left: bool, with_locks: tuple[bool, bool], then: int
) -> None:
    """Whoever goes on at any call, whether locks work for both or not for the first; nobody is disturbed."""
    schedules = 0
    for first in range(END):
        for second in range(END):
            base = tmp_path / f"{first}-{second}"
            base.mkdir()
            if has_left:
                assert killed_in(base, 7)
                assert [each.name for each in base.glob("*/*")] != ["lock"]
            one, other = (Process(base, locks=locks) for locks in with_locks)
            one.run(first)
            other.run(second)
            is_over = one.has_ended, other.has_ended
            one.run(then)
            other.end()
            one.end()
            assert list(base.iterdir()) == []
            base.rmdir()
            schedules += 1
            if is_over[1]:
                break
        if is_over[0]:
            break
    assert schedules > 200


def test_whatever_a_killed_process_leaves_is_removed(tmp_path: Path) -> None:
    """At whichever call it was killed: while it made the directory, used or removed it, or removed another one."""
    was_left = 0
    for step in range(END):
        if not killed_in(tmp_path, step):
            break
        was_left += any(tmp_path.iterdir())
        with scratch_dir(FileSystem(), tmp_path, PREFIX) as path:
            assert list(tmp_path.iterdir()) == [path]
        assert list(tmp_path.iterdir()) == []
    assert was_left > 10


def test_a_process_that_is_killed_while_it_removes_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    """Nothing is left without its lock that is not empty."""
    for step in range(END):
        killed_in(tmp_path, 7)
        if not killed_in(tmp_path, step):
            break
        with scratch_dir(FileSystem(), tmp_path, PREFIX) as path:
            assert list(tmp_path.iterdir()) == [path]
    assert step > 20


def _left(path: Path) -> None:
    path.mkdir()
    (path / "lock").touch()
    (path / "file").touch()


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: only root can give a directory away")
def test_directories_of_another_user_stay(tmp_path: Path) -> None:
    """Empty ones, and those whose lock nobody has; though root could remove them."""
    theirs = [tmp_path / f"{PREFIX}{digit * 8}" for digit in "01"]
    theirs[0].mkdir()
    _left(theirs[1])
    _left(tmp_path / f"{PREFIX}{'2' * 8}")
    for path in theirs:
        os.chown(path, 4711, 4711)
    with scratch_dir(FileSystem(), tmp_path, PREFIX) as path:
        assert sorted(tmp_path.iterdir()) == sorted([*theirs, path])
    assert len(list(theirs[1].iterdir())) == 2


def test_what_is_no_scratch_directory_stays(tmp_path: Path) -> None:
    """A link to a directory, a file, another name, and one with files of which none is a lock."""
    _left(tmp_path / "elsewhere")
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}{'1' * 8}").touch()
    _left(tmp_path / f"{PREFIX}backup")
    (tmp_path / f"{PREFIX}{'2' * 8}").mkdir()
    (tmp_path / f"{PREFIX}{'2' * 8}" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with scratch_dir(FileSystem(), tmp_path, PREFIX):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_directory_without_locks_is_not_removed_by_others(tmp_path: Path) -> None:
    """On a file system that has none; nor, since nobody can tell, when its process was killed."""
    fs = Steps(lambda: None, locks=False)
    with (
        scratch_dir(fs, tmp_path, PREFIX) as path,
        scratch_dir(fs, tmp_path, PREFIX) as other,
        scratch_dir(FileSystem(), tmp_path, PREFIX),
    ):
        assert path.exists()
        assert other.exists()
    assert list(tmp_path.iterdir()) == []


def test_forked_child_removes_nothing(tmp_path: Path) -> None:
    """It may leave the block by an exception, and its parent works on."""
    stack = contextlib.ExitStack()
    path = stack.enter_context(scratch_dir(FileSystem(), tmp_path, PREFIX))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            stack.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.exists()
    with scratch_dir(FileSystem(), tmp_path, PREFIX):
        assert path.exists()
    stack.close()
    assert not path.exists()


def test_missing_base_is_the_disk_s_error(tmp_path: Path) -> None:
    """Not an endless attempt."""
    with (
        pytest.raises(LogDirOfflineError, match="No such file or directory"),
        scratch_dir(FileSystem(), tmp_path / "missing", PREFIX),
    ):
        pass
