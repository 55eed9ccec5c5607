"""Keeps files in a second place: by a hard link or a clone, which cost nothing, or else by a copy."""

from __future__ import annotations

import errno
import fcntl
import zlib
from collections.abc import Sequence
from pathlib import Path

from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.fs.mounts import kind_of_file_system

# Small enough to stay in a core's cache: with pieces of 1 MiB, a copy took three times as long in a measurement.
_PIECE_BYTES = 64 << 10
# File systems whose files may share blocks; for "overlay" and network ones it depends on the file system below.
_WITH_CLONES = frozenset(("xfs", "btrfs", "bcachefs", "ocfs2", "zfs", "overlay", "nfs", "nfs4", "cifs", "smb3"))
_FICLONE = 0x40049409  # _IOW(0x94, 9, int) of <linux/fs.h>
# Two file systems; one that cannot clone, or not these files; a kernel or a sandbox that refuses.
_NO_CLONES = frozenset((errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM))


def keep_files(fs: FileSystem, source: Path, target: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """
    Link or copy files of a directory to another one, with their times and owners; durable on return.

    Args:
        pairs: names in `source` and in `target`. An existing file in `target` is replaced.
    Raises:
        NoSpaceError, LogDirOfflineError: the disk; some files may be in `target` then.
    """
    for old, new in pairs:
        fs.remove(target / new)
        if not fs.link(source / old, target / new):
            _copy(fs, source / old, target / new)
    fs.fsync_all(target, [new for _, new in pairs])
    fs.fsync_dir(target)


def _copy(fs: FileSystem, source: Path, target: Path) -> None:
    with fs.open(source) as file:
        write_range(fs, file, 0, file.size(), target)
        fs.set_mtime_ns(target, file.stat().st_mtime_ns)


def write_range(
    fs: FileSystem, file: File, position: int, size: int, target: Path, *, like: Path | None = None
) -> None:
    """Write a part of an open file to a new one, durable except its name; owner as of `like`, else of the file."""
    piece = memoryview(bytearray(_PIECE_BYTES))
    with fs.create(target, like=like or file.path) as copy:
        done = 0
        while done < size and (count := file.read_into(piece[: size - done], position + done)):
            copy.write(piece[:count], done)
            done += count
        copy.fsync()


def clone(fs: FileSystem, file: File, target: Path, *, like: Path) -> bool:
    """
    Create a file that shares the disk's blocks with an open one until either changes; not durable yet.

    Args:
        like: a file or directory whose owner is copied.
    Returns:
        False, with nothing changed, if they are on two file systems, or theirs cannot do it (ext4; XFS and Btrfs can).
    """
    with fs.create(target, like=like) as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, file.fileno())
        except OSError as error:
            if error.errno not in _NO_CLONES:
                with disk_errors(target):
                    raise error
        else:
            return True
    fs.remove(target)
    return False


def may_clone(fs: FileSystem, source: Path, target: Path) -> bool:
    """Tell whether `clone` may work from one directory to another; writes nothing to find out."""
    kind = kind_of_file_system(fs, source)
    return kind in _WITH_CLONES and kind == kind_of_file_system(fs, target)


def crc32_of(fs: FileSystem, path: Path) -> tuple[int, int]:
    """
    Return a file's size in bytes and its CRC-32, as `gzip` and `crc32` compute it.

    Raises:
        FileNotFoundError: the file does not exist.
        LogDirOfflineError: the disk failed, or it is not a regular file.
    """
    with fs.open(path) as file:
        checksum = done = 0
        while piece := file.read(_PIECE_BYTES, done):
            checksum = zlib.crc32(piece, checksum)
            done += len(piece)
    return done, checksum
