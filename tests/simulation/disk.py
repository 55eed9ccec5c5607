"""
The machine's disk: a real directory in memory, and the forgetful disk's journal of all that was not synced.

`SimFiles` is one simulated process's door to it. Each of its calls is a step of the scheduler, takes simulated time,
may fail by the disk's present `Trouble`, and does nothing any more once its process is dead. Descriptors and locks are
the system's own, so locks of two simulated processes exclude each other as those of real ones do; a killed process
loses them at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cleaner.errors import disk_error
from cleaner.storage.fs.file_system import DirectoryEntry, File, Space
from cleaner.storage.fs.many_files import open_large
from cleaner.storage.segment.names import PUBLISHED
from tests.simulation.processes import Process
from tests.simulation.scheduler import Killed, Scheduler
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.power_cut import DiskState, PowerCut
from tests.support.watched_fs import Operation, WatchedFile, WatchedFileSystem

TOTAL_BYTES = 1 << 30
_LOST = (errno.EIO, errno.EROFS)  # errors of an fsync by which pages are lost
_READ_NS = 20_000
_WRITE_NS = 30_000
_SYNC_NS = 1_000_000
_SLOW_NS = 400_000_000
_GROWING = ("create", "write", "make_dir")
_NAMING = ("create", "rename", "remove", "make_dir", "remove_dir")
_LOOKING = {"read": errno.EIO, "open": errno.EMFILE}
_FAILING_SHARE = 0.05
_CHANGING = (*_NAMING, "write", "truncate", "set_mtime", "fsync", "fsync_dir")


@dataclass(frozen=True)
class Trouble:
    """What is wrong with the disk: the error that calls get, which calls, and how many of them (None: all)."""

    error: int
    kinds: tuple[str, ...]
    share: float = 1.0
    is_once: bool = False

    @staticmethod
    def full() -> Trouble:
        """Return a disk without room."""
        return Trouble(errno.ENOSPC, _GROWING)

    @staticmethod
    def failing(share: float) -> Trouble:
        """Return a disk of which some calls fail."""
        return Trouble(errno.EIO, (*_CHANGING, "read"), share)

    @staticmethod
    def failing_once() -> Trouble:
        """Return a disk of which the next change fails."""
        return Trouble(errno.EIO, _CHANGING, is_once=True)

    @staticmethod
    def read_only() -> Trouble:
        """Return a file system that was remounted read-only after an error."""
        return Trouble(errno.EROFS, (*_CHANGING, "open to write"))

    @staticmethod
    def no_descriptors() -> Trouble:
        """Return a process without descriptors."""
        return Trouble(errno.EMFILE, ("open", "open to write", "create"))


class Disk:
    """
    The disk that all simulated processes share.

    Args:
        root: the directory; the files in it now are durable.
        scheduler: each call is a step of it.
        rng: says what a power cut leaves, and which calls fail.
        habits: says what else it does: whether some calls take long, whether reads and writes are short, and when the
            page cache is dropped.
    Attributes:
        trouble: what is wrong now.
        has_lost_pages: a failed fsync has lost some since this was last set back.
        frees_behind: see `Plan`.
        torn_entries: how many writes of a published high watermark were short.
    """

    def __init__(self, root: Path, scheduler: Scheduler, rng: Random, habits: Random) -> None:
        self.root = root
        self.scheduler = scheduler
        self.trouble: Trouble | None = None
        self.has_lost_pages = False
        self.has_moved_directories = self.frees_behind = False
        self.torn_entries = 0
        self._rng = rng
        self._habits = habits
        self._is_slow = habits.random() < 0.3
        self._is_short = habits.random() < 0.3
        self._drops_at_once = habits.random() < 0.3  # the pages that a failed fsync has lost, as Btrfs does
        self._epoch_ns = 0
        self.journal = ForgetfulFileSystem(root)

    def now_ns(self) -> int:
        """Return the time that files get."""
        return self._epoch_ns + self.scheduler.now_ns()

    def date_from(self, epoch_ns: int) -> None:
        """Let files' times begin here."""
        self._epoch_ns = epoch_ns

    def step(self, what: str, path: Path, wanted: str) -> None:
        """Take the step of a call, and its time; raises what is wrong with the disk."""
        scheduler = self.scheduler
        scheduler.pause(what, path)
        nanos = _READ_NS if wanted == "read" else _SYNC_NS if wanted.startswith("fsync") else _WRITE_NS
        if self._is_slow and self._habits.random() < (0.05 if nanos == _SYNC_NS else 0.001):
            nanos = _SLOW_NS
        scheduler.take_time(nanos)
        trouble = self.trouble
        if trouble is not None and wanted in trouble.kinds and self._rng.random() < trouble.share:
            if not path.is_relative_to(self.root):
                return  # such as /proc
            if trouble.is_once:
                self.trouble = None
            raise OSError(trouble.error, os.strerror(trouble.error), str(path))

    def shortened(self, data: memoryview) -> memoryview:
        """Draw how much of it a call of the system reads or writes."""
        if self._is_short and len(data) > 1 and self._habits.random() < 0.1:
            return data[: 1 + int(self._habits.random() * (len(data) - 1))]  # one draw, however long it is
        return data

    def fails_to_sync(self, inode: int, error: int | None) -> None:
        """Lose pages of a file by an fsync that fails."""
        if error in _LOST:
            self.has_lost_pages = True
            self.journal.lose_pages(inode, self._habits)

    def opened(self, file: File) -> None:
        """Drop the lost pages of a file now and then."""
        if self.journal.has_lost_pages and (self._drops_at_once or self._habits.random() < 0.1):
            self.journal.drop_cache(file.fileno())

    def rot(self, path: Path, position: int, data: bytes) -> None:
        """Change a file at rest."""
        self.journal.rot(path, position, data)

    def draw_state(self, cut: PowerCut) -> DiskState:
        """Draw a state that a power cut may leave."""
        return cut.draw(self._rng)

    def come_back(self, cut: PowerCut) -> str:
        """
        Replace the files by what a power cut may have left; returns what was forgotten. No process may live.

        The page cache is gone with it: from now on all that is there is durable.
        """
        state = self.draw_state(cut)
        for entry in os.scandir(self.root):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
        state.write_to(self.root)
        self.journal = ForgetfulFileSystem(self.root)
        return state.note


class SimFile(WatchedFile):
    """An open file of a simulated process."""

    def __init__(self, file: File, owner: SimFiles) -> None:
        super().__init__(file.path, file.handle, owner)
        self._owner = owner

    def _read_some(self, buffer: memoryview, position: int) -> int:
        """Read as `File._read_some`."""
        self._owner.step("read", self.path, "read")
        return super()._read_some(self._owner.disk.shortened(buffer), position)

    def _write_some(self, data: memoryview, position: int) -> int:
        """Write as `File._write_some`."""
        disk = self._owner.disk
        shortened = disk.shortened(data)
        disk.torn_entries += len(shortened) < len(data) and self.path.name == PUBLISHED
        count = super()._write_some(shortened, position)
        self._owner.date(self.fileno())
        return count

    def truncate(self, size: int) -> None:
        """Cut as `File.truncate`."""
        super().truncate(size)
        self._owner.date(self.fileno())

    def drop_cache(self, position: int, size: int) -> None:
        """Have the file show what is on the disk: the pages that a failed fsync has lost are clean."""
        self._owner.disk.journal.drop_cache(self.fileno())

    def begin_writeback(self, position: int, size: int) -> None:
        """Do nothing."""

    def expect_sequential_reads(self) -> None:
        """Do nothing."""

    def is_cached(self, position: int) -> bool:
        """Tell that all is in memory."""
        return True


class SimFiles(WatchedFileSystem):
    """
    The files as one simulated process sees them.

    Args:
        disk: the machine's.
        process: whose door it is.
    Attributes:
        fails: says which of this process's reads and openings fail; None: none does.
    """

    def __init__(self, disk: Disk, process: Process) -> None:
        self.disk = disk
        self.process = process
        self.fails: Random | None = None
        # A call and its entry in the journal are one step: no thread is stopped between them.
        self._held._lock = threading.RLock()

    def step(self, what: str, path: Path, wanted: str) -> None:
        """Take a step; raises Killed in a dead process."""
        process = self.process
        if process.is_dead:
            raise Killed
        if process.frozen_until_ns > self.disk.scheduler.now_ns():
            self.disk.scheduler.block("stopped", process.frozen_until_ns)
        self.disk.step(what, path, wanted)
        if process.is_dead:
            raise Killed
        if self.fails is not None and wanted in _LOOKING and self.fails.random() < _FAILING_SHARE:
            error = _LOOKING[wanted]
            raise OSError(error, os.strerror(error), str(path))

    def before(self, operation: Operation) -> None:
        """Take the step of a change; a full disk takes half of a write first."""
        if operation.kind == "fsync_dir" and self.process.accidents_at_fences and not self.process.is_dead:
            self.process.begins_a_fence()
        try:
            self.step(operation.kind, operation.path, operation.kind)
        except OSError as error:
            if error.errno == errno.ENOSPC and operation.kind == "write" and len(operation.data) > 1:
                self._write_half(operation)
            elif operation.kind == "fsync":
                self.disk.fails_to_sync(operation.inode, error.errno)
            raise

    def _write_half(self, operation: Operation) -> None:
        half = operation.data[: len(operation.data) // 2]
        with contextlib.suppress(FileNotFoundError):
            if operation.path.stat().st_ino != operation.inode:
                return
            with operation.path.open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), half, operation.position)
            self.disk.journal.enter(
                Operation("write", operation.path, operation.inode, position=operation.position, data=half)
            )

    def after(self, operation: Operation) -> None:
        """Enter the change in the journal."""
        if self.disk.has_moved_directories:
            operation = self._where_it_is(operation)
        elif operation.kind == "rename" and operation.target is not None:
            self.disk.has_moved_directories = operation.target.is_dir()
        self.disk.journal.enter(operation)
        if self.process.accidents:
            self.process.has_changed_a_file()
        if operation.kind in _NAMING:
            self._date_path(operation.path.parent)
            if operation.kind in ("create", "make_dir"):
                self._date_path(operation.path)

    def _where_it_is(self, operation: Operation) -> Operation:
        """Return a change with the present name of its directory, which may have been renamed since it is held."""
        if operation.kind == "fsync_dir":
            name, directory = "", str(operation.path)
        else:
            directory, _, name = str(operation.path).rpartition("/")
        held = self._held._held.get(directory)
        if held is None or (there := os.readlink(f"/proc/self/fd/{held.descriptor}")) == directory:  # noqa: PTH115 - often the same, and a Path is slow
            return operation
        target = None if operation.target is None else Path(there, operation.target.name)
        return operation._replace(path=Path(there, name), target=target)

    def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
        """Remove one by one, in this order, and free what was in them behind the caller if the plan says so."""
        removed: list[io.FileIO] = []
        if self.disk.frees_behind:
            with contextlib.suppress(FileNotFoundError), self._held.inside(directory) as at:
                removed = open_large(at, names, 1)
        super().remove_all(directory, names, threads)
        self._freeing.begin(removed)

    def date(self, descriptor: int) -> None:
        """Give a file the simulated time."""
        now_ns = self.disk.now_ns()
        os.utime(descriptor, ns=(now_ns, now_ns))

    def _date_path(self, path: Path) -> None:
        now_ns = self.disk.now_ns()
        os.utime(path, ns=(now_ns, now_ns))

    def _watched(self, file: File) -> File:
        watched = SimFile(file, self)
        self.process.opened(watched)
        self.disk.opened(watched)
        return watched

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open as `FileSystem.open`."""
        self.look("open", path, "open to write" if write else "open")
        return super().open(path, write=write)

    def stat(self, path: Path) -> os.stat_result:
        """Return as `FileSystem.stat`."""
        self.look("stat", path)
        return super().stat(path)

    def exists(self, path: Path) -> bool:
        """Tell as `FileSystem.exists`."""
        self.look("exists", path)
        return super().exists(path)

    def list_dir(self, path: Path) -> list[str]:
        """List as `FileSystem.list_dir`."""
        self.look("list", path)
        return super().list_dir(path)

    def list_files(self, path: Path) -> list[str]:
        """List as `FileSystem.list_files`."""
        self.look("list", path)
        return super().list_files(path)

    def list_dirs(self, path: Path) -> list[str]:
        """List as `FileSystem.list_dirs`."""
        self.look("list", path)
        return super().list_dirs(path)

    def scan_dir(self, directory: Path, suffixes: tuple[str, ...]) -> list[DirectoryEntry]:
        """List as `FileSystem.scan_dir`, by name: the system's order is not the seed's."""
        self.look("list", directory)
        return sorted(super().scan_dir(directory, suffixes))

    def find(self, directory: Path, names: Sequence[str]) -> list[str]:
        """Find as `FileSystem.find`."""
        self.look("find", directory)
        return super().find(directory, names)

    def space(self, path: Path) -> Space:
        """Return a room that does not depend on this machine."""
        self.look("space", path)
        trouble = self.disk.trouble
        is_full = trouble is not None and trouble.error == errno.ENOSPC
        is_read_only = trouble is not None and trouble.error == errno.EROFS
        return Space(0 if is_full else TOTAL_BYTES // 2, TOTAL_BYTES, is_read_only)

    def look(self, what: str, path: Path, wanted: str = "read") -> None:
        """Take the step of a call that changes nothing."""
        try:
            self.step(what, path, wanted)
        except OSError as error:
            raise disk_error(path, error) from error
