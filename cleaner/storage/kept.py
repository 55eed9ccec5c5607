"""Files kept in a second place: by a hard link, which costs nothing, or copied where the file system is another one."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from cleaner.storage.fs import File, FileSystem

_PIECE_BYTES = 1 << 20


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


def write_range(fs: FileSystem, file: File, position: int, size: int, target: Path) -> None:
    """Write a part of an open file to a new one, which is like it; not durable yet."""
    with fs.create(target, like=file.path) as copy:
        for done in range(0, size, _PIECE_BYTES):
            copy.write(file.read(min(_PIECE_BYTES, size - done), position + done), done)
        copy.fsync()


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
