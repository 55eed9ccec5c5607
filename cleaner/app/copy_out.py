"""
`bulk --to`: a compacted copy of a log dir in a bucket. The log dir itself is only read.

    copy_in     all partitions and checkpoints into a directory of this machine, where they are then cleaned
    copy_out    the result into the bucket, each object read back and compared, and a manifest put last
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.base.json_values import described, format_json
from cleaner.base.remote_path import RemotePath
from cleaner.errors import LogChangedError, LogDirOfflineError, UsageError
from cleaner.storage.fs.file_system import File, FileState, FileSystem, real_path
from cleaner.storage.fs.new_copy import NewCopy
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment import names
from cleaner.storage.which_dir import place_around, require_log_dir
from cleaner.verification.check.log_dirs import is_in_use

MANIFEST = "cleaner-copy.json"
_PIECE = 8 << 20
_OF_THIS_PROCESS = (names.LOCK,)


@dataclass(frozen=True)
class CopiedFile:
    """A file of the copy: its name below the copy's place, its size in bytes, and its SHA-256 in hex."""

    name: str
    bytes: int
    sha256: str


def copy_in(log_dir: Path, scratch: Path, context: CallContext) -> None:
    """
    Copy a log dir to a new, or empty, directory, with the times of its files.

    Raises:
        UsageError: the directory is not empty, or in the log dir; or `log_dir` is no log dir, or in use.
        LogChangedError: a file has changed meanwhile.
    """
    fs = context.fs
    require_log_dir(fs, log_dir)
    source, target = real_path(log_dir), real_path(scratch)
    around = place_around(fs, target) or (source if target.is_relative_to(source) else None)
    if around is not None:
        raise UsageError(f"{scratch}: inside of {around}; name a directory outside with --scratch")
    if fs.exists(target) and fs.list_dir(target):
        raise UsageError(f"{scratch}: is not empty; name a new directory with --scratch, or remove what is in it")
    if is_in_use(fs, source):
        raise UsageError(f"{log_dir}: in use by another process; stop it first, or copy from a snapshot of its disk")
    directories = [source, *LogDir(fs, source).partitions().values()]
    for directory in directories:
        place = target / directory.relative_to(source)
        if not fs.exists(place):
            fs.make_dir(place, stat.S_IMODE(fs.stat(directory).st_mode))
        for name in fs.list_files(directory):
            if name not in _OF_THIS_PROCESS:
                context.check_done()
                _copy(fs, directory / name, place / name)


def _copy(fs: FileSystem, source: Path, target: Path) -> None:
    with fs.open(source) as file, fs.create(target, like=None) as copy:
        before = file.stat()
        copy.copy_from(file, before.st_size, 0)
        if FileState.of(file.stat()) != FileState.of(before) or copy.size() != before.st_size:
            raise LogChangedError(f"{source}: has changed while it was copied; stop what writes it")
    fs.set_mtime_ns(target, before.st_mtime_ns)


def copy_out(log_dir: Path, scratch: Path, copy: NewCopy, place: RemotePath, context: CallContext) -> list[CopiedFile]:
    """
    Put a copy into a bucket, read it back, and then put its manifest.

    Args:
        log_dir: of which it is a copy, for the manifest.
        scratch: the copy.
        copy: writes to the bucket.
        place: where in it.
    Returns:
        The files.
    Raises:
        LogDirOfflineError: the service refuses, does not answer, or has other bytes than were put.
    """
    fs, done = context.fs, []
    copy.check_done = context.check_done
    for name in _files_below(fs, real_path(scratch)):
        context.check_done()
        with fs.open(real_path(scratch) / name) as file:
            size, digest = copy.put(place / name, file), _digest(file)
        done.append(CopiedFile(name, size, digest))
    for each in done:
        context.check_done()
        with copy.open(place / each.name) as file:
            if file.size() != each.bytes or _digest(file) != each.sha256:
                reason = OSError(5, "the service gives other bytes than it was given")
                raise LogDirOfflineError(place / each.name, reason)
    about = {"source": str(log_dir), "made_ms": context.clock.now_ms(), "files": [asdict(each) for each in done]}
    manifest = real_path(scratch) / MANIFEST
    fs.write_atomically(manifest, format_json(described("copy", about), indent=1).encode() + b"\n")
    with fs.open(manifest) as file:
        copy.put(place / MANIFEST, file)
    return done


def remove_scratch(fs: FileSystem, scratch: Path) -> None:
    """Remove a copy that is in the bucket now."""
    root = real_path(scratch)
    for directory in (*(root / name for name in fs.list_dirs(root)), root):
        for name in fs.list_files(directory):
            fs.remove(directory / name)
        fs.remove_dir(directory)


def _files_below(fs: FileSystem, root: Path) -> Iterator[str]:
    """Yield the names of a copy's files, those of its partitions first."""
    for directory in sorted(fs.list_dirs(root)):
        yield from (f"{directory}/{name}" for name in sorted(fs.list_files(root / directory)))
    yield from (name for name in sorted(fs.list_files(root)) if name not in _OF_THIS_PROCESS)


def _digest(file: File) -> str:
    digest, position = hashlib.sha256(), 0
    while piece := file.read(_PIECE, position):
        digest.update(piece)
        position += len(piece)
    return digest.hexdigest()
