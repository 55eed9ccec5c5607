"""
A file system that reports every change.

`before` is called before each call that changes something and may raise, so that a test can make the n-th call fail;
`after` is called afterwards. The forgetful disk and the failing disk are built on this.
"""

from __future__ import annotations

import errno
import functools
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cleaner.storage.fs.file_system import File, FileSystem, disk_errors

Kind = Literal[
    "create",
    "write",
    "truncate",
    "set_mtime",
    "fsync",
    "rename",
    "remove",
    "fsync_dir",
    "make_dir",
    "remove_dir",
    "rot",
]


class Operation(NamedTuple):
    """
    One requested change of the file system.

    `inode` identifies the file, whatever its name is by then (0: unknown, or a directory). `target` is the new
    name of a rename; `number` the length of a truncate or the nanoseconds of a set_mtime. In a journal, files and
    directories have numbers of its own; `directory` is that of the directory of the name.
    """

    kind: Kind
    path: Path
    inode: int = 0
    target: Path | None = None
    position: int = 0
    data: bytes = b""
    number: int = 0
    directory: int = 0

    def __str__(self) -> str:
        renamed = f" -> {self.target.name}" if self.target else ""
        return f"{self.kind} {self.path.name}{renamed}"


class WatchedFile(File):
    """An open file that reports its writes to a `WatchedFileSystem`."""

    def __init__(self, path: Path, handle: io.FileIO, watcher: WatchedFileSystem) -> None:
        super().__init__(path, handle)
        self._watcher = watcher

    @functools.cached_property
    def _inode(self) -> int:
        return os.fstat(self.fileno()).st_ino

    def _write_some(self, data: memoryview, position: int) -> int:
        """Write as `File._write_some`; each call of the system is a change of its own."""
        operation = Operation("write", self.path, self._inode, position=position, data=bytes(data))
        self._watcher.before(operation)
        count = super()._write_some(data, position)
        if count < len(data):
            operation = Operation("write", self.path, self._inode, position=position, data=operation.data[:count])
        self._watcher.after(operation)
        return count

    def _copy_some(self, source: File, position: int, size: int) -> int:
        """Copy by reading and writing: what is copied within the system cannot be forgotten."""
        return self._write_some(memoryview(source.read(min(size, 1 << 16), position)), position)

    def truncate(self, size: int) -> None:
        """Cut or extend as `File.truncate`."""
        operation = Operation("truncate", self.path, self._inode, number=size)
        with disk_errors(self.path):
            self._watcher.before(operation)
        super().truncate(size)
        self._watcher.after(operation)

    def fsync(self, *, data_only: bool = False) -> None:
        """Report the fsync, and do it if `syncs_really` is set."""
        operation = Operation("fsync", self.path, self._inode)
        with disk_errors(self.path):
            self._watcher.before(operation)
        if self._watcher.syncs_really:
            super().fsync(data_only=data_only)
        self._watcher.after(operation)


class WatchedFileSystem(FileSystem):
    """
    The real file system, with `before` and `after` around every call that changes something.

    Attributes:
        syncs_really: make real fsyncs. Most of these disks are in memory, where they would only be slow.
    """

    syncs_really = False

    def before(self, operation: Operation) -> None:
        """Called before a change. An `OSError` raised here counts as the disk's."""

    def after(self, operation: Operation) -> None:
        """Called after a change."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open as `FileSystem.open`; a file opened for reading can be fsynced too."""
        return self._watched(super().open(path, write=write))

    def create(self, path: Path, *, like: Path | None) -> File:
        """Create as `FileSystem.create`."""
        with disk_errors(path):
            self.before(Operation("create", path))
        file = self._watched(super().create(path, like=like))
        if like is None:
            self._note_created(file)
        return file

    def _take_ownership(self, file: File, like: Path) -> None:
        """Note the file first: others see it already, and if this fails it is removed."""
        self._note_created(file)
        super()._take_ownership(file, like)

    def _note_created(self, file: File) -> None:
        self.after(Operation("create", file.path, os.fstat(file.fileno()).st_ino))

    def _watched(self, file: File) -> File:
        return WatchedFile(file.path, file.handle, self)

    def link(self, source: Path, target: Path) -> bool:
        """
        Link as `FileSystem.link`; reported as a new file with the same content, which is durable once fsynced.

        A real disk gives more: two names are one file. But each name can be forgotten separately.
        """
        with disk_errors(target):
            self.before(Operation("create", target))
        if not super().link(source, target):
            return False
        about = self.stat(target)
        self.after(Operation("create", target, about.st_ino))
        self.after(Operation("write", target, about.st_ino, data=self.read_bytes(target)))
        self.after(Operation("set_mtime", target, about.st_ino, number=about.st_mtime_ns))
        return True

    def rename(self, source: Path, target: Path) -> None:
        """Rename as `FileSystem.rename`, within one directory only."""
        if source.parent != target.parent:
            raise ValueError(f"{source} -> {target}: renames between directories are not modelled")
        operation = Operation("rename", source, target=target)
        with disk_errors(source):
            self.before(operation)
        super().rename(source, target)
        self.after(operation)

    def remove(self, path: Path) -> None:
        """Remove as `FileSystem.remove`; a missing file is no operation."""
        if not self.exists(path):
            return
        operation = Operation("remove", path)
        with disk_errors(path):
            self.before(operation)
        is_there = FileSystem.exists(self, path)  # another process may have removed it meanwhile
        super().remove(path)
        if is_there:
            self.after(operation)

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename one by one."""
        for source, target in pairs:
            if self.exists(directory / source):
                self.rename(directory / source, directory / target)

    def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
        """Remove one by one, in this order."""
        for name in names:
            self.remove(directory / name)

    def fsync_all(self, directory: Path, names: Sequence[str]) -> None:
        """Fsync one by one, whatever their number: each can be left out, forgotten, or fail."""
        for name in self.find(directory, names):
            with self.open(directory / name) as file:
                file.fsync()

    def make_dir(self, path: Path, mode: int, *, like: Path | None = None) -> None:
        """Make as `FileSystem.make_dir`."""
        operation = Operation("make_dir", path)
        with disk_errors(path):
            self.before(operation)
        super().make_dir(path, mode, like=like)
        self.after(operation)

    def remove_dir(self, path: Path) -> None:
        """Remove as `FileSystem.remove_dir`; a missing one is no operation."""
        if not self.exists(path):
            return
        operation = Operation("remove_dir", path)
        with disk_errors(path):
            self.before(operation)
        super().remove_dir(path)
        self.after(operation)

    def fsync_dir(self, path: Path) -> None:
        """Report the fsync, and do it if `syncs_really` is set."""
        operation = Operation("fsync_dir", path)
        with disk_errors(path):
            self.before(operation)
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if self.syncs_really:
            super().fsync_dir(path)
        self.after(operation)

    def set_mtime_ns(self, path: Path, mtime_ns: int) -> None:
        """Set as `FileSystem.set_mtime_ns`."""
        operation = Operation("set_mtime", path, self.stat(path).st_ino, number=mtime_ns)
        with disk_errors(path):
            self.before(operation)
        super().set_mtime_ns(path, mtime_ns)
        self.after(operation)


class FailingFileSystem(WatchedFileSystem):
    """
    A disk on which one change fails: the `fail_at`-th (from 0), and with `lasting` every later one too.

    `kinds` limits it to some kinds of change; `calls` then counts those. A failing write first writes half of its
    bytes, as a full disk does.
    """

    def __init__(
        self,
        fail_at: int | None,
        error: int,
        *,
        kinds: frozenset[Kind] = frozenset(("create", "write", "truncate", "rename", "remove", "fsync", "fsync_dir")),
        lasting: bool = False,
    ) -> None:
        self.calls = 0
        self.failed: Operation | None = None
        self._fail_at = fail_at
        self._error = error
        self._kinds = kinds
        self._lasting = lasting

    def before(self, operation: Operation) -> None:
        """Count the call, and fail it if it is the chosen one."""
        if operation.kind not in self._kinds:
            return
        number, self.calls = self.calls, self.calls + 1
        if self._fail_at is None or number < self._fail_at or (number > self._fail_at and not self._lasting):
            return
        self.failed = self.failed or operation
        if operation.kind == "write":
            descriptor = os.open(operation.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, operation.data[: len(operation.data) // 2], operation.position)
            finally:
                os.close(descriptor)
        raise OSError(self._error, os.strerror(self._error), str(operation.path))
