"""Files kept in a second place: by a hard link or as a clone, which cost nothing, or copied where that cannot be."""

from __future__ import annotations

import errno
import fcntl
import zlib
from collections.abc import Sequence
from pathlib import Path

from cleaner.storage.fs.file_system import File, FileSystem, disk_errors
from cleaner.storage.fs.mounts import kind_of_file_system

# Small enough to stay in a core's cache: with pieces of a MiB a copy was measured to take three times as long.
_PIECE_BYTES = 64 << 10
# File systems whose files may share blocks; "overlay" and those of a network go by what is below.
_WITH_CLONES = frozenset(("xfs", "btrfs", "bcachefs", "ocfs2", "zfs", "overlay", "nfs", "nfs4", "cifs", "smb3"))
_FICLONE = 0x40049409  # _IOW(0x94, 9, int) of <linux/fs.h>
# Two file systems; one that knows no such thing, or not of these files; a kernel or a sandbox that says no.
_NO_CLONES = frozenset((errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM))


def keep_files(fs: FileSystem, source: Path, target: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """
    Give files of a directory names in another one, with their times and owners; all durable when it returns.

    Args:
        pairs: names in `source` and in `target`. One that is in `target` already is replaced.
    Raises:
        NoSpaceError, LogDirOfflineError: the disk; some may be in `target` then.
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
    """Write a part of an open file to a new one, durably but for its name; `like` gives the owner, else the file."""
    piece = memoryview(bytearray(_PIECE_BYTES))
    with fs.create(target, like=like or file.path) as copy:
        done = 0
        while done < size and (count := file.read_into(piece[: size - done], position + done)):
            copy.write(piece[:count], done)
            done += count
        copy.fsync()


def clone(fs: FileSystem, file: File, target: Path, *, like: Path) -> bool:
    """
    Make a file that shares the disk's blocks with an open one until either changes; not durable yet.

    Args:
        like: gives the owner.
    Returns:
        False, nothing done, where they are on two file systems, or theirs cannot do that (ext4; XFS and Btrfs can).
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
    """Tell whether `clone` may do it for files of one directory in another; nothing is written to find out."""
    kind = kind_of_file_system(fs, source)
    return kind in _WITH_CLONES and kind == kind_of_file_system(fs, target)


def crc32_of(fs: FileSystem, path: Path) -> tuple[int, int]:
    """
    Return a file's bytes and the CRC-32 of them, as `gzip` and `crc32` compute it.

    Raises:
        FileNotFoundError: there is none.
        LogDirOfflineError: the disk failed, or it is no regular file.
    """
    with fs.open(path) as file:
        checksum = done = 0
        while piece := file.read(_PIECE_BYTES, done):
            checksum = zlib.crc32(piece, checksum)
            done += len(piece)
    return done, checksum
