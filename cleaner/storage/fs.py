"""
The only door to the operating system: every file the cleaner reads or changes goes through here.

One door lets a test slip in a disk that forgets what was not synced (`testing/forgetful_fs.py`), lets reads refuse
symbolic links and pipes in one place, and turns a failed write or fsync into `LogDirOfflineError` once.

Rules every method keeps:
- a path is opened without following a link in its last component, and only regular files are opened;
- an fsync that fails is final (rule R3): the error is raised and the caller drops the file.

What it opens is a `File` (`file.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import LogDirOfflineError
from cleaner.storage.file import File, disk_errors
from cleaner.storage.many_files import SYNCFS_FROM, large_ones, share_out, sync_at_once

__all__ = ["UNFINISHED", "File", "FileSystem", "Found", "Space", "disk_errors", "real_path"]

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

UNFINISHED = ".tmp"
"""Behind the name of a small file while it is written; a crash may leave one."""


class Found(NamedTuple):
    """A file of a directory: name, inode, bytes, and modification time (ns)."""

    name: str
    inode: int
    size: int
    mtime_ns: int


class Space(NamedTuple):
    """What a file system says of itself: room for an unprivileged process, room in all, whether it may be changed."""

    free_bytes: int
    total_bytes: int
    is_read_only: bool


def real_path(path: Path) -> Path:
    """Return a path with all links followed; unlike `Path.resolve`, links that lead in a circle stay as they are."""
    return Path(os.path.realpath(path))


class FileSystem:
    """The real file system. Stateless: one instance serves all threads."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """
        Open an existing regular file.

        Raises:
            FileNotFoundError: there is none.
            LogDirOfflineError: it is a link, a pipe, a device, or the disk refused.
        """
        try:
            descriptor = os.open(path, _WRITE_FLAGS if write else _READ_FLAGS)
        except FileNotFoundError:
            raise
        except OSError as error:
            # Of a socket, and of a device that is not there, the system says what it says of a disk that has gone.
            if error.errno == errno.ENXIO and not stat.S_ISREG(os.lstat(path).st_mode):
                raise LogDirOfflineError(path, OSError(errno.EINVAL, "not a regular file")) from error
            raise LogDirOfflineError(path, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise LogDirOfflineError(path, OSError(errno.EINVAL, "not a regular file"))
        return File(path, descriptor)

    def create(self, path: Path, *, like: Path | None) -> File:
        """
        Create a file that must not exist yet, open for reading and writing.

        Args:
            path: the new file.
            like: a file or directory whose owner, group, mode and extended attributes it takes over; None leaves it to
                this process's user, and lets others read it.
        """
        with disk_errors(path):
            descriptor = os.open(path, _WRITE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600 if like else 0o644)
        file = File(path, descriptor)
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
        model = os.lstat(like)
        mode = stat.S_IMODE(model.st_mode)
        if stat.S_ISDIR(model.st_mode):
            # A directory's mode is no file's: keep who may read and write, drop execute, set-id and sticky bits.
            mode &= 0o666
        mine = file.stat()
        with disk_errors(file.path):
            if (mine.st_uid, mine.st_gid) != (model.st_uid, model.st_gid):
                os.fchown(file.fileno(), model.st_uid, model.st_gid)
            os.fchmod(file.fileno(), mode)
            for name in os.listxattr(like, follow_symlinks=False):
                if stat.S_ISDIR(model.st_mode) and not name.startswith("user."):
                    continue  # default ACLs and labels of the directory were applied by the kernel at creation
                os.setxattr(file.fileno(), name, os.getxattr(like, name, follow_symlinks=False))

    def exists(self, path: Path) -> bool:
        """Tell whether something (even a dangling link) has this name."""
        return os.path.lexists(path)

    def stat(self, path: Path) -> os.stat_result:
        """Return the status of `path` itself, links not followed. Raises FileNotFoundError."""
        return os.lstat(path)

    def stat_followed(self, path: Path) -> os.stat_result:
        """Return the file's attributes; of a link those of what it leads to. For files that an operator names."""
        return os.stat(path)

    def list_dir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def list_files(self, path: Path) -> list[str]:
        """Return the names in a directory that are no directories, sorted; links are listed."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))

    def look_through(self, directory: Path, suffixes: tuple[str, ...]) -> list[Found]:
        """
        List the regular files with one of these endings, in no order; links and what vanishes meanwhile are left out.

        One pass for thousands of directories: other files cost nothing but their names.
        """
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        found.append(Found(entry.name, about.st_ino, about.st_size, about.st_mtime_ns))
        return found

    def list_dirs(self, path: Path) -> list[str]:
        """Return the names in a directory that are directories or links, sorted."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) or entry.is_symlink())

    def find(self, directory: Path, names: Sequence[str]) -> list[str]:
        """Return those of some names that are there, dangling links too."""
        prefix = f"{directory}{os.sep}"
        return [name for name in names if os.path.lexists(prefix + name)]

    def read_bytes(self, path: Path, limit: int = 1 << 30) -> bytes:
        """Return a whole small file. Raises FileNotFoundError; LogDirOfflineError if larger than `limit` bytes."""
        with self.open(path) as file:
            size = file.size()
            if size > limit:
                raise LogDirOfflineError(path, OSError(errno.EFBIG, f"{size} bytes, at most {limit} expected"))
            return file.read(size, 0)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within a directory, replacing `target`. Durable only after `fsync_dir`."""
        with disk_errors(source):
            os.rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is already gone is fine."""
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; False, with nothing done, where file systems do not allow that."""
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                return False
            with disk_errors(target):
                raise error
        return True

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename files of a directory, in this order; those that are missing are passed over."""
        prefix = f"{directory}{os.sep}"
        for source, target in pairs:
            try:
                os.rename(prefix + source, prefix + target)
            except FileNotFoundError:
                continue
            except OSError as error:
                with disk_errors(directory / source):
                    raise error

    def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
        """
        Remove files of a directory, in any order; those that are already gone are fine.

        Each removal waits for the disk, that of a large file until all its blocks are free. So many files, or large
        ones, are shared out over threads, which end before it returns.
        """

        def remove(share: Sequence[str]) -> None:
            prefix = f"{directory}{os.sep}"
            for name in share:
                try:
                    os.unlink(prefix + name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    with disk_errors(directory / name):
                        raise error

        large = large_ones(directory, names) if threads > 1 else []
        share_out(remove, large, threads, fewest=1)
        share_out(remove, names, threads)

    def fsync_all(self, directory: Path, names: Sequence[str]) -> None:
        """
        Force files of a directory to disk; those that are missing are passed over. Durable names need `fsync_dir`.

        An error is final, as for `File.fsync` (R3).
        """
        if len(names) >= SYNCFS_FROM:
            with disk_errors(directory):
                if sync_at_once(directory, names):
                    return
        for name in names:
            try:
                with self.open(directory / name) as file:
                    file.fsync()
            except FileNotFoundError:
                continue

    def fsync_dir(self, path: Path) -> None:
        """Force the names in a directory to disk."""
        with disk_errors(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_dir(self, path: Path, mode: int) -> None:
        """
        Create a directory with exactly this mode, whatever the umask; its parent must be there.

        Raises:
            FileExistsError: something has this name.
        """
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            raise
        except OSError as error:
            with disk_errors(path):
                raise error
        self.set_mode(path, mode)

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; one that is already gone is fine."""
        with disk_errors(path), contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def set_mode(self, path: Path, mode: int) -> None:
        """Set who may read, write and execute; of a link, what it leads to is changed."""
        with disk_errors(path):
            os.chmod(path, mode)

    def set_mtime_ns(self, path: Path, mtime_ns: int) -> None:
        """Set a file's modification time, nanoseconds."""
        with disk_errors(path):
            os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    def free_bytes(self, path: Path) -> int:
        """Return the bytes an unprivileged process may still write on the file system of `path`."""
        return self.space(path).free_bytes

    def space(self, path: Path) -> Space:
        """Ask the file system of `path` for its room."""
        with disk_errors(path):
            about = os.statvfs(path)
        unit = about.f_frsize
        return Space(about.f_bavail * unit, about.f_blocks * unit, bool(about.f_flag & os.ST_RDONLY))

    def write_atomically(self, path: Path, data: bytes) -> None:
        """
        Replace a small file so that a crash leaves the old or the new content: `.tmp`, fsync, rename, directory fsync.

        The new file has owner, group, mode and attributes of the one it replaces, else of the directory.
        """
        temporary = path.with_name(path.name + UNFINISHED)
        self.remove(temporary)
        with self.create(temporary, like=path if self.exists(path) else path.parent) as file:
            file.write(data, 0)
            file.fsync()
        self.rename(temporary, path)
        self.fsync_dir(path.parent)
