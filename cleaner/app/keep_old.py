"""
Keeps data before it is removed: for `clean --keep-old DIR` and `recover --save-cut DIR`.

`clean --keep-old DIR` keeps the files that a round replaces, so that `cleaner undo DIR` can put them back.

For each group, before its swap: the old files get second names below `DIR/TOPIC-PARTITION/`, durably; then the manifest
lists them, durably; then comes the swap. After any crash, a group that is swapped is in the manifest with all its old
files. A round that swaps none still has a manifest before it writes its checkpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cleaner.app.session import Session
from cleaner.errors import UsageError
from cleaner.state.kept_manifest import GROUP_DIGITS, KeptFile, KeptGroup, KeptPartition, manifest
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem, real_path
from cleaner.storage.fs.new_dir import make_durable_dir
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment import names
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.backup import crc32_of, keep_files, write_range
from cleaner.storage.which_dir import place_around

_DIRECTORY_MODE = 0o700


def check_outside(session: Session, directory: Path, option: str) -> None:
    """
    Refuse a directory for kept files inside a log dir, where a broker would take it for a partition (R-102).

    Raises:
        UsageError: it is inside one.
    """
    resolved = real_path(directory)
    for log_dir in (session.log_dir.path, *map(Path, session.settings.cleaner.log_dirs)):
        if resolved.is_relative_to(real_path(log_dir)):
            raise UsageError(f"{option} {directory}: inside of the log dir {log_dir}; name a directory outside")
    around = place_around(session.context.fs, resolved)
    if around is not None:
        raise UsageError(f"{option} {directory}: inside of {around}; name a directory outside")


def make_directory(fs: FileSystem, path: Path) -> None:
    """Make a directory and its parents durably; existing ones are fine. The path must be free of links."""
    missing = list(itertools.takewhile(lambda each: not each.is_dir(), (path, *path.parents)))
    there = missing[-1].parent if missing else path
    make_durable_dir(fs, there, _DIRECTORY_MODE)
    with fs.hold(there):
        for each in reversed(missing):
            make_durable_dir(fs, each, _DIRECTORY_MODE)


class CutSaver:
    """
    `recover --save-cut DIR`: keeps the bytes that recovery cuts off a partition's segments.

    Args:
        fs: the file system.
        directory: the partition's place in the operator's directory; links to it are followed once, here.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = real_path(directory.parent) / directory.name

    def save(self, path: Path, position: int) -> None:
        """
        Keep a `.log` from a position on, as `NAME.FROM-TO`, both in bytes; durable when it returns.

        If other bytes from an earlier recovery have that name, they stay: the new file is `NAME.FROM-TO.2`.
        """
        make_directory(self._fs, self._directory)
        with self._fs.hold(self._directory):
            self._save(path, position)

    def _save(self, path: Path, position: int) -> None:
        with self._fs.open(path) as file:
            size = file.size()
            unfinished = self._directory / f"{path.name}{UNFINISHED}"
            self._fs.remove(unfinished)
            write_range(self._fs, file, position, size - position, unfinished)
        content = crc32_of(self._fs, unfinished)
        for number in itertools.count(1):
            target = self._directory / (f"{path.name}.{position}-{size}" + (f".{number}" if number > 1 else ""))
            if not self._fs.exists(target) or crc32_of(self._fs, target) == content:
                break
        self._fs.rename(unfinished, target)
        self._fs.fsync_dir(self._directory)


class Keeper:
    """
    Keeps the segments that rounds of one log replace.

    Args:
        session: the log dir.
        log: loaded.
        kept_dir: the operator's directory; links to it are followed once, here.
    """

    def __init__(self, session: Session, log: LoadedLog, kept_dir: Path) -> None:
        self._fs = session.context.fs
        self._log = log
        self._directory = real_path(kept_dir) / str(log.topic_partition)
        active = log.active_segment
        self._kept = KeptPartition(
            log_dir=str(session.log_dir.path),
            partition=str(log.topic_partition),
            checkpoint=session.log_dir.cleaner_offsets.get(log.topic_partition),
            active_base=active.base_offset,
            active_bytes=active.size,
            groups=(),
        )

    def keep(self, group: Sequence[Segment]) -> None:
        """
        Keep a group's files, and record the finished `.cleaned` files that are about to replace them.

        Raises:
            UsageError: the directory keeps segments of another log, or from before records were appended.
            NoSpaceError, LogDirOfflineError: the disk failed; nothing was swapped.
        """
        make_directory(self._fs, self._directory)
        with self._fs.hold(self._directory):
            self._keep(group)

    def keep_checkpoint(self) -> None:
        """
        Record the earlier cleaner checkpoint, which is about to be replaced: a round may replace nothing else.

        Raises:
            UsageError, NoSpaceError, LogDirOfflineError: as `keep`.
        """
        make_directory(self._fs, self._directory)
        with self._fs.hold(self._directory):
            file, found = self._manifest()
            if found is None:
                file.save(self._kept)

    def _manifest(self) -> tuple[StateFile[KeptPartition], KeptPartition | None]:
        """Return the manifest and what it holds."""
        file = manifest(self._fs, self._directory)
        try:
            found = file.peek()
        except BadStateError as error:
            raise UsageError(f"{file.path}: {error}; keep old segments in another directory") from error
        if found is not None and replace(found, checkpoint=None, groups=()) != replace(self._kept, checkpoint=None):
            raise UsageError(
                f"{self._directory}: keeps segments of another log, or older ones of this log; undo or remove "
                "those, or keep these in another directory"
            )
        # Of an earlier undo: these files are not undone. Its removal is durable with the manifest that is saved next.
        self._fs.remove(self._directory / names.UNDONE_MANIFEST)
        return file, found

    def _keep(self, group: Sequence[Segment]) -> None:
        file, found = self._manifest()
        found = found or self._kept
        name = str(len(found.groups) + 1).zfill(GROUP_DIGITS)
        make_directory(self._fs, self._directory / name)
        source = self._log.directory
        suffixes = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)
        wanted = [names.segment_file_name(one.base_offset, suffix) for one in group for suffix in suffixes]
        old = self._fs.find(source, wanted)
        keep_files(self._fs, source, self._directory / name, [(each, each) for each in old])
        new_base = group[0].base_offset
        cleaned = [names.cleaned_file_name(new_base, suffix) for suffix in names.SEGMENT_SUFFIXES]
        entry = KeptGroup(name, self._files(old, ""), self._files(self._fs.find(source, cleaned), names.CLEANED))
        file.save(replace(found, groups=(*found.groups, entry)))

    def _files(self, found: Sequence[str], temporary: str) -> tuple[KeptFile, ...]:
        source = self._log.directory
        return tuple(KeptFile(name.removesuffix(temporary), *crc32_of(self._fs, source / name)) for name in found)
