"""
The only access to files: every file the cleaner reads or changes goes through here.

A test can therefore pass in a disk that forgets what was not synced (`tests/support/forgetful_fs.py`), reads refuse
symbolic links and pipes in one place, and a failed write or fsync becomes `LogDirOfflineError` in one place.

Rules every method keeps:
- an `OSError` becomes one of the cleaner's errors here (`errors.disk_error`), except the FileNotFoundError of a method
  that documents it: there it is an answer;
- a path is opened without following a link in its last component, and only regular files are opened;
- below a held directory (`hold`) no link is followed at all, and work stays in that same directory even if it is
  renamed or replaced (`held.py`); owner and mode of a new file come from an open descriptor, never from a path;
- root writes to no file that has a second name in another user's directory (`_require_one_name`);
- an fsync that fails is final (rule C-2): the error is raised and the caller drops the file.

Opened files are `File` objects (`open_file.py`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeGuard

from cleaner.base.remote_path import RemotePath, is_remote
from cleaner.errors import LogDirOfflineError, disk_error
from cleaner.storage.fs.held import HeldDirectories, HeldName, Hold
from cleaner.storage.fs.many_files import SYNCFS_FROM, Freeing, open_large, share_out, sync_at_once
from cleaner.storage.fs.open_file import File, disk_errors
from cleaner.storage.fs.shred import Shredder

__all__ = ["UNFINISHED", "DirectoryEntry", "File", "FileState", "FileSystem", "Space", "disk_errors", "real_path"]

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Opens any kind of file, sockets too; used only to change the mode. O_PATH exists on Linux only.
_MODE_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC

_FILE_MODE = 0o777
"""The mode bits a new file may copy from another: set-id bits would turn it into a program that runs as root."""

# Errors that mean a path does not exist for us. Others, such as running out of descriptors, do not mean that.
_NO_WAY_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)

UNFINISHED = ".tmp"
"""Suffix of a small file while it is being written; a crash may leave one."""


class FileState(NamedTuple):
    """
    What stays the same only as long as a file or directory does: inode, bytes, and both times (ns).

    `cp -p` and `rsync` set the time of modification back, but no program sets the other one. A copy has another inode
    and another time of change: what two files have in common is compared by name and not by state.
    """

    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0

    @classmethod
    def of(cls, about: os.stat_result) -> FileState:
        """Take over what the system tells."""
        return cls(about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


class DirectoryEntry(NamedTuple):
    """A name in a directory, of no other directory; not a regular file: of a link, a pipe, a socket or a device."""

    name: str
    state: FileState
    is_regular: bool = True


class Space(NamedTuple):
    """A file system's room for an unprivileged process, its total size, and whether it is mounted read-only."""

    free_bytes: int
    total_bytes: int
    is_read_only: bool


def real_path(path: Path) -> Path:
    """Return a path with all links followed; unlike `Path.resolve`, links that lead in a circle stay as they are."""
    return path if isinstance(path, RemotePath) else Path(os.path.realpath(path))


def once_each(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return directories, each under the first of its names only: `/data`, `/data/` and a link to it are one."""
    found: dict[Path, Path] = {}
    for path in paths:
        found.setdefault(real_path(path), path)
    return tuple(found.values())


class FileSystem:
    """The real file system. One instance serves all threads; its state is the held directories, and `shredding`."""

    is_local_disk = True  # so locks and published watermarks are there for readers; a wrapper passes it on
    freed_behind_bytes = 1 << 19  # of a removed file from which on nobody waits for its blocks to be free
    _shredder: Shredder | None = None
    _held: HeldDirectories
    _freeing: Freeing

    def __new__(cls, *_args: object, **_named: object) -> Self:
        """Start with no held directory; done here because subclasses have their own constructors."""
        self = super().__new__(cls)
        self._held, self._freeing = HeldDirectories(), Freeing()
        return self

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a copy in another process, such as Spark's: the copy holds no directory."""
        return {name: value for name, value in vars(self).items() if name not in ("_held", "_freeing")}

    def hold(self, directory: Path, *, follow_above: bool = False) -> Hold:
        """
        Hold a directory: until it is released, every call below it through this object works in this same directory.

        It is opened without following any link in its path, so pass a path with links resolved. A path below a
        directory that is already held is looked up from there. Several callers may hold the same directory.

        Args:
            directory: the path that later calls use.
            follow_above: follow links above it; for a path from another machine, where other links were resolved.
        Raises:
            LogDirOfflineError: no such directory; a link; or a different directory is already held by this path.
        """
        with disk_errors(directory):
            return self._held.hold(directory, self.accept, follow_above=follow_above)

    def is_in_place(self, directory: Path) -> bool:
        """
        Tell whether a held directory still has the name by which it is held.

        Raises:
            LogDirOfflineError: the disk.
        """
        with disk_errors(directory):
            return self._held.is_in_place(directory)

    def accept(self, directory: Path, status: os.stat_result | None = None) -> None:
        """
        Raise if work in a directory is not allowed; for subclasses.

        Args:
            directory: its path.
            status: of the opened directory, if it is about to be held; None: the implementation looks it up.
        """

    def open(self, path: Path, *, write: bool = False) -> File:
        """
        Open an existing regular file.

        Raises:
            FileNotFoundError: the file does not exist.
            LogDirOfflineError: it is a link, a pipe, a device, a file root must not write to, or the disk refused.
        """
        try:
            with self._held.parent(path) as at:
                descriptor = os.open(at.name, _WRITE_FLAGS if write else _READ_FLAGS, dir_fd=at.descriptor)
                try:
                    about = os.fstat(descriptor)
                    if not stat.S_ISREG(about.st_mode):
                        raise OSError(errno.EINVAL, "not a regular file")
                    if write:
                        _require_one_name(about, at)
                except BaseException:
                    os.close(descriptor)
                    raise
        except FileNotFoundError:
            raise
        except OSError as error:
            # The system gives this error for a socket and for a missing device, as it does for a disk that is gone.
            if error.errno == errno.ENXIO and not stat.S_ISREG(self.stat(path).st_mode):
                error = OSError(errno.EINVAL, "not a regular file")
            raise disk_error(path, error) from error
        return File(path, io.FileIO(descriptor))

    def create(self, path: Path, *, like: Path | None) -> File:
        """
        Create a file that must not exist yet, open for reading and writing.

        Args:
            path: the new file.
            like: a file or directory whose owner, group, mode and extended attributes are copied; None: this process's
                user owns the file, and others may read it.
        """
        with disk_errors(path), self._held.parent(path) as at:
            flags = _WRITE_FLAGS | os.O_CREAT | os.O_EXCL
            descriptor = os.open(at.name, flags, 0o600 if like else 0o644, dir_fd=at.descriptor)
        file = File(path, io.FileIO(descriptor))
        if like is None:
            return file
        try:
            self._take_ownership(file, like)
        except BaseException:
            file.close()
            self.remove(path)
            raise
        return file

    def _take_ownership(self, file: File, like: Path) -> None:
        with disk_errors(file.path), self._held.itself(like) as at:
            model = os.open(at.name, _READ_FLAGS, dir_fd=at.descriptor)
        try:
            with disk_errors(file.path):
                _make_like(file, model)
        finally:
            os.close(model)

    def exists(self, path: Path) -> bool:
        """Tell whether something (even a dangling link) has this name."""
        try:
            with disk_errors(path), self._held.parent(path) as at:
                return _is_there(at, at.name)
        except LogDirOfflineError as error:
            if not isinstance(error.cause, _NO_WAY_THERE):
                raise
            return False

    def stat(self, path: Path) -> os.stat_result:
        """Return the status of `path` itself, links not followed. Raises FileNotFoundError."""
        if self._held.is_empty:
            # The same, faster: this is called constantly for tens of thousands of logs.
            try:
                return os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise disk_error(path, error) from error
        with disk_errors(path, may_be_missing=True), self._held.itself(path) as at:
            return os.stat(at.name, dir_fd=at.descriptor, follow_symlinks=False)

    def stat_followed(self, path: Path) -> os.stat_result:
        """Return a file's status, links followed; for files that an operator names. Raises FileNotFoundError."""
        with disk_errors(path, may_be_missing=True):
            return os.stat(path)

    def list_dir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        with disk_errors(path, may_be_missing=True), self._listed(path) as directory:
            return sorted(os.listdir(directory))

    @contextlib.contextmanager
    def _listed(self, path: Path) -> Iterator[int | str]:
        """Yield what to list: a new descriptor, because the read position belongs to the descriptor, or a path."""
        with self._held.inside(path) as at:
            if at.descriptor is None:
                yield at.name
                return
            descriptor = os.open(at.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at.descriptor)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def list_files(self, path: Path) -> list[str]:
        """Return the names in a directory that are not directories, sorted; links are included."""
        with disk_errors(path, may_be_missing=True), self._listed(path) as directory, os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))

    def scan_dir(self, directory: Path, suffixes: tuple[str, ...]) -> list[DirectoryEntry]:
        """
        List what is no directory and has one of these suffixes, unordered, without files that vanish during this.

        Cheap enough for thousands of directories: other files cost only the read of their names.
        """
        found = []
        missing = disk_errors(directory, may_be_missing=True)
        with missing, self._listed(directory) as listed, os.scandir(listed) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes) and not entry.is_dir(follow_symlinks=False):
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    found.append(DirectoryEntry(entry.name, FileState.of(about), stat.S_ISREG(about.st_mode)))
        return found

    def list_dirs(self, path: Path) -> list[str]:
        """Return the names in a directory that are directories or links, sorted."""
        with disk_errors(path, may_be_missing=True), self._listed(path) as directory, os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) or entry.is_symlink())

    def find(self, directory: Path, names: Sequence[str]) -> list[str]:
        """Return the names that exist in a directory, dangling links included."""
        try:
            with disk_errors(directory), self._held.inside(directory) as at:
                return [name for name in names if _is_there(at, at.below(name))]
        except LogDirOfflineError as error:
            if not isinstance(error.cause, _NO_WAY_THERE):
                raise
            return []

    def read_bytes(self, path: Path, limit: int = 1 << 30) -> bytes:
        """Return a whole small file. Raises FileNotFoundError; LogDirOfflineError if larger than `limit` bytes."""
        with self.open(path) as file:
            size = file.size()
            if size > limit:
                raise LogDirOfflineError(path, OSError(errno.EFBIG, f"{size} bytes, at most {limit} expected"))
            return file.read(size, 0)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within a directory, replacing `target`. Durable only after `fsync_dir`."""
        with disk_errors(source), self._held.parent(source) as old, self._held.parent(target) as new:
            os.rename(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)
            self._held.renamed(source, target)

    @contextlib.contextmanager
    def shredding(self) -> Iterator[Shredder]:
        """Overwrite every file that is removed through this object in the `with` block, by any thread."""
        self._shredder = shredder = Shredder()
        try:
            yield shredder
        finally:
            self._shredder = None

    def remove(self, path: Path) -> None:
        """Remove a file; one that is already gone is fine."""
        if self._shredder is not None:
            self._shredder.overwrite(self, path)
        with disk_errors(path), contextlib.suppress(FileNotFoundError), self._held.parent(path) as at:
            os.unlink(at.name, dir_fd=at.descriptor)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; False, with nothing changed, where the file system does not allow that."""
        try:
            with self._held.parent(source) as old, self._held.parent(target) as new:
                os.link(
                    old.name,
                    new.name,
                    src_dir_fd=old.descriptor,
                    dst_dir_fd=new.descriptor,
                    follow_symlinks=False,
                )
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                return False
            with disk_errors(target):
                raise error
        return True

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename files of a directory, in this order; missing ones are skipped."""
        with disk_errors(directory), contextlib.suppress(FileNotFoundError), self._held.inside(directory) as at:
            for source, target in pairs:
                try:
                    os.rename(at.below(source), at.below(target), src_dir_fd=at.descriptor, dst_dir_fd=at.descriptor)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    with disk_errors(directory / source):
                        raise error

    def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
        """
        Remove files of a directory, in any order; files that are already gone are fine.

        Each removal waits for the disk, so many files are divided among threads, which all end before this returns.
        Then all names are gone; the blocks of large files are freed behind the caller, see `wait_until_freed`.
        """
        if not names:
            return
        if self._shredder is not None:
            for name in names:
                self._shredder.overwrite(self, directory / name)
        with disk_errors(directory), contextlib.suppress(FileNotFoundError), self._held.inside(directory) as at:

            def remove(share: Sequence[str]) -> None:
                for name in share:
                    try:
                        os.unlink(at.below(name), dir_fd=at.descriptor)
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        with disk_errors(directory / name):
                            raise error

            large = open_large(at, names, self.freed_behind_bytes)
            try:
                share_out(remove, names, threads)
            finally:
                self._freeing.begin(large)

    def wait_until_freed(self) -> None:
        """Return when the blocks of all files that `remove_all` has removed are free."""
        self._freeing.wait()

    def fsync_all(self, directory: Path, names: Sequence[str]) -> None:
        """
        Force files of a directory to disk; missing ones are skipped. Durable names need `fsync_dir`.

        An error is final, as for `File.fsync` (C-2).
        """
        if len(names) >= SYNCFS_FROM:
            with disk_errors(directory), self._held.inside(directory) as at:
                if sync_at_once(at, names):
                    return
        for name in names:
            try:
                with self.open(directory / name) as file:
                    file.fsync()
            except FileNotFoundError:
                continue

    def fsync_dir(self, path: Path) -> None:
        """Force the names in a directory to disk."""
        with disk_errors(path), self._held.inside(path) as at:
            descriptor = os.open(at.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at.descriptor)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_dir(self, path: Path, mode: int, *, like: Path | None = None) -> None:
        """
        Create a directory with exactly this mode, whatever the umask; its parent must exist.

        Args:
            path: the new directory.
            mode: its permission bits.
            like: a directory whose owner and group are copied; None: this process's user owns it.
        Raises:
            FileExistsError: something has this name.
        """
        try:
            with self._held.parent(path) as at:
                os.mkdir(at.name, mode, dir_fd=at.descriptor)
        except FileExistsError:
            raise
        except OSError as error:
            with disk_errors(path):
                raise error
        if like is not None:
            self._give_directory(path, self.stat(like))
        self.set_mode(path, mode)

    def _give_directory(self, path: Path, about: os.stat_result) -> None:
        with disk_errors(path), self._held.parent(path) as at:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(at.name, flags, dir_fd=at.descriptor)
            try:
                mine = os.fstat(descriptor)
                if (mine.st_uid, mine.st_gid) != (about.st_uid, about.st_gid):
                    os.fchown(descriptor, about.st_uid, about.st_gid)
            finally:
                os.close(descriptor)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; one that is already gone is fine."""
        with disk_errors(path), contextlib.suppress(FileNotFoundError), self._held.parent(path) as at:
            os.rmdir(at.name, dir_fd=at.descriptor)

    def set_mode(self, path: Path, mode: int) -> None:
        """
        Set permission bits.

        Raises:
            OSError: it is a symbolic link, or for root a file with a second name that others could change.
        """
        with disk_errors(path), self._held.parent(path) as at:
            descriptor = os.open(at.name, _MODE_FLAGS, dir_fd=at.descriptor)
            try:
                about = os.fstat(descriptor)
                if stat.S_ISLNK(about.st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                _require_one_name(about, at)
                os.chmod(f"/proc/self/fd/{descriptor}", mode)
            finally:
                os.close(descriptor)

    def set_mtime_ns(self, path: Path, mtime_ns: int) -> None:
        """Set a file's modification time, nanoseconds."""
        with disk_errors(path), self._held.parent(path) as at:
            _require_one_name(os.stat(at.name, dir_fd=at.descriptor, follow_symlinks=False), at)
            os.utime(at.name, ns=(mtime_ns, mtime_ns), dir_fd=at.descriptor, follow_symlinks=False)

    def free_bytes(self, path: Path) -> int:
        """Return how many bytes an unprivileged process can still write on the file system of `path`."""
        return self.space(path).free_bytes

    def space(self, path: Path) -> Space:
        """Return the room on the file system of `path`."""
        with disk_errors(path), self._held.inside(path) as at:
            about = os.statvfs(at.name if at.descriptor is None else at.descriptor)
        unit = about.f_frsize
        return Space(about.f_bavail * unit, about.f_blocks * unit, bool(about.f_flag & os.ST_RDONLY))

    def write_atomically(self, path: Path, data: bytes) -> None:
        """
        Replace a small file so that a crash leaves the old or the new content: `.tmp`, fsync, rename, directory fsync.

        The new file gets owner, group, mode and attributes of the file it replaces, or else of the directory.
        """
        temporary = path.with_name(path.name + UNFINISHED)
        self.remove(temporary)
        try:
            with self.create(temporary, like=path if self.exists(path) else path.parent) as file:
                file.write(data, 0)
                file.fsync()
            self.rename(temporary, path)
        except BaseException:
            self.remove(temporary)
            raise
        self.fsync_dir(path.parent)


def _is_there(at: HeldName, name: str) -> bool:
    """Tell whether a name exists, dangling links included."""
    if at.descriptor is None:
        return os.path.lexists(name)
    # The one call that asks only for existence and does not raise for a missing file.
    return os.access(name, os.F_OK, dir_fd=at.descriptor, follow_symlinks=False)


def _make_like(file: File, model: int) -> None:
    """Copy owner, group, mode and extended attributes to a new file from another open file or directory."""
    about, mine = os.fstat(model), file.stat()
    is_directory = stat.S_ISDIR(about.st_mode)
    if (mine.st_uid, mine.st_gid) != (about.st_uid, about.st_gid):
        os.fchown(file.fileno(), about.st_uid, about.st_gid)
    # From a directory's mode keep who may read and write; drop execute, set-id and sticky bits.
    os.fchmod(file.fileno(), about.st_mode & (0o666 if is_directory else _FILE_MODE))
    for name in os.listxattr(model):
        if is_directory and not name.startswith("user."):
            continue  # the kernel applied the directory's default ACLs and labels when the file was created
        os.setxattr(file.fileno(), name, os.getxattr(model, name))


def _require_one_name(about: os.stat_result, at: HeldName) -> None:
    """
    Refuse, as root, to change a file with a second name: any user who may write to the directory could have made it.

    That user need not be allowed to change the file: where `fs.protected_hardlinks` is off, a user can link to another
    user's file. Our own second names (`clean --keep-old`) pass: there, file and directory have one owner and others
    cannot write. For processes that are not root, the system's permissions suffice.
    """
    if os.geteuid() != 0 or about.st_nlink < 2 or stat.S_ISDIR(about.st_mode):
        return
    directory = at.status()
    if about.st_uid != directory.st_uid or directory.st_mode & 0o022:
        reason = "has another name elsewhere (a hard link), which root does not write through; copy it in its place"
        raise OSError(errno.EMLINK, reason)


def is_local_disk(fs: object, path: Path) -> TypeGuard[FileSystem]:
    """Tell whether `path` has locks and published watermarks: on the local disk, and through a wrapper around it."""
    return getattr(fs, "is_local_disk", False) is True and not is_remote(path)
