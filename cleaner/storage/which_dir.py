"""
Whether a given path is a log dir, or something easily mistaken for one.

Every command and call that takes a log dir checks the path here before it locks, writes or lists anything in it. A
partition's directory looks like a log dir without partitions, and a directory of log dirs named `kafka-1` and `kafka-2`
looks like one with two partitions of a topic `kafka`; a recovery would write its marker, or even logs, into them.

The contents of a directory decide, not its name: a log dir may be named `kafka-logs-1`.
"""

from __future__ import annotations

import enum
import errno
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from shlex import quote

from cleaner.base.remote_path import RemotePath
from cleaner.errors import LogDirOfflineError, UsageError
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.segment import names

_OF_LOG_DIR = (
    names.META_PROPERTIES,
    names.CLEANER_CHECKPOINT,
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
)
# Weaker evidence: they also remain in a directory that was once mistaken for a log dir.
_LEFT_BEHIND = (names.CLEAN_SHUTDOWN, names.GENERATIONS)
_OF_PARTITION = (names.LEADER_EPOCHS, names.PARTITION_METADATA)
_NEUTRAL_NAMES = {"lost+found", names.LOCK}  # the first is in every mounted file system; other programs use the second

_IMPOSSIBLE_PATH = (errno.ENOTDIR, errno.ENAMETOOLONG)
_MAX_LOOKED_AT = 100  # sub-directories inspected while nothing before them decides
_MAX_NAMED = 4
_LONGEST_NAME = 255  # bytes, in all of Linux's file systems


class Nature(enum.Enum):
    """What a path is; the values are shown to the operator."""

    LOG_DIR = "a log dir"
    PARTITION = "the directory of a partition"
    PARENT = "a directory of log dirs"
    KEPT = "what `clean --keep-old` kept"
    EMPTY = "an empty directory"
    FOREIGN = "a directory without anything of a log dir"
    FILE = "a file"
    MISSING = "no such directory"


def nature_of(fs: FileSystem, path: Path) -> Nature:
    """
    Tell what a path is; links are followed. Changes nothing; of thousands of partitions it inspects only one.

    Raises:
        LogDirOfflineError: the path cannot be read.
    """
    return _nature_of(fs, real_path(path), depth=1)


def is_partition_dir(fs: FileSystem, path: Path) -> bool:
    """Tell whether a path is a partition's directory, whatever its name. Raises as `nature_of`."""
    return nature_of(fs, path) is Nature.PARTITION


def require_log_dir(fs: FileSystem, path: Path, *, may_be_new: bool = False) -> None:
    """
    Make sure that a path is a log dir.

    Args:
        may_be_new: also accept a path that can become one: it is missing, or has nothing of another log in it.
    Raises:
        UsageError: it is not a log dir. Says what it is, and what was probably meant.
        LogDirOfflineError: the path cannot be read.
    """
    reason = why_no_log_dir(fs, path, may_be_new=may_be_new)
    if reason is not None:
        raise UsageError(f"{path}: {reason}")


def require_existing(fs: FileSystem, path: Path) -> None:
    """Raise UsageError, with what was probably meant, for a path that does not exist."""
    if nature_of(fs, path) is Nature.MISSING:
        require_log_dir(fs, path)


def why_no_log_dir(fs: FileSystem, path: Path, *, may_be_new: bool = False) -> str | None:
    """Say what a path is instead of a log dir, and what was probably meant; None for a log dir."""
    nature, real = nature_of(fs, path), real_path(path)
    match nature:
        case Nature.LOG_DIR:
            return None
        case Nature.MISSING | Nature.EMPTY | Nature.FOREIGN if may_be_new:
            return _why_not_below(fs, real)
        case Nature.MISSING:
            return f"no such directory{_suggestion(real)}"
        case Nature.EMPTY if _is_partition_name(real.name) and nature_of(fs, real.parent) is Nature.LOG_DIR:
            return f"an empty directory in a log dir, not a log dir{_of_partition(real)}"
        case Nature.EMPTY:
            return "an empty directory, not a log dir; is its disk mounted?"
        case Nature.FOREIGN:
            return "not a log dir: it has neither partitions nor a file of a log dir"
        case Nature.PARENT:
            return f"contains log dirs, but is not one; name one of them: {_some(path, _log_dirs_in(fs, real))}"
        case Nature.KEPT:
            return "not a log dir: `clean --keep-old` kept it; `cleaner undo` puts it back"
        case Nature.FILE:
            return _of_file(fs, real)
        case Nature.PARTITION:
            return f"the directory of a partition, not a log dir{_of_partition(real)}"


def place_around(fs: FileSystem, path: Path) -> str | None:
    """Say which log dir or partition a path is, or is in; None if there is none."""
    for above in (real_path(path), *real_path(path).parents):
        if any(fs.exists(above / name) for name in _OF_LOG_DIR):
            return f"the log dir {above}"
        if _nature_of(fs, above, depth=0) is Nature.PARTITION:
            return f"the partition's directory {above}"
    return None


def _nature_of(fs: FileSystem, path: Path, depth: int) -> Nature:
    try:
        if not stat.S_ISDIR(fs.stat(path).st_mode):
            return Nature.FILE
        entries = fs.list_dir(path)
    except FileNotFoundError:
        return Nature.MISSING
    except LogDirOfflineError as error:
        if error.cause.errno in _IMPOSSIBLE_PATH:
            return Nature.MISSING
        raise
    named = [name for name in entries if _is_partition_name(name)]
    if not named and any(names.parse_file_name(name) or name in _OF_PARTITION for name in entries):
        return Nature.PARTITION
    if any(name in entries for name in _OF_LOG_DIR):
        return Nature.LOG_DIR
    if depth:
        found = _nature_by_subdirs(fs, path, named, entries)
        if found is not None:
            return found
    if named or any(name in entries for name in _LEFT_BEHIND):
        return Nature.LOG_DIR
    return Nature.FOREIGN if set(entries) - _NEUTRAL_NAMES else Nature.EMPTY


def _nature_by_subdirs(fs: FileSystem, path: Path, named: Sequence[str], entries: Sequence[str]) -> Nature | None:
    """Tell what a directory without files of a log dir is, by its sub-directories; None if they do not decide."""
    is_parent = False
    for name in islice((*named, *(name for name in entries if name not in named)), _MAX_LOOKED_AT):
        try:
            below = _nature_of(fs, path / name, depth=0)
            if below is Nature.PARTITION and name in named:
                return Nature.LOG_DIR
            if name in named and names.KEPT_MANIFEST in fs.list_dir(path / name):
                return Nature.KEPT
        except (LogDirOfflineError, FileNotFoundError):
            continue  # unreadable, or gone: the other sub-directories decide
        is_parent |= below is Nature.LOG_DIR
    return Nature.PARENT if is_parent else None


def _log_dirs_in(fs: FileSystem, path: Path) -> list[str]:
    found = []
    for name in fs.list_dirs(path)[:_MAX_LOOKED_AT]:
        try:
            if _nature_of(fs, path / name, depth=0) is Nature.LOG_DIR:
                found.append(name)
        except LogDirOfflineError:
            continue
    return found


def _is_partition_name(name: str) -> bool:
    try:
        names.parse_partition_dir(name)
    except ValueError:
        return False
    return True


def _why_not_below(fs: FileSystem, real: Path) -> str | None:
    """Return why a new log dir cannot be created: it would be inside another one; else None."""
    around = place_around(fs, real.parent)
    return None if around is None else f"in {around}, where a log dir cannot be created"


def _of_file(fs: FileSystem, real: Path) -> str:
    above = nature_of(fs, real.parent)
    if above is Nature.PARTITION:
        return f"a file of a partition, not a log dir{_of_partition(real.parent)}"
    if above is Nature.LOG_DIR:
        return f"a file in a log dir; name the log dir: {real.parent}"
    return "not a directory"


def _of_partition(real: Path) -> str:
    """Say which log dir and partition was meant by a partition's directory."""
    try:
        found = names.parse_partition_dir(real.name)
    except ValueError:
        return f"; {real.name!r} is not the name of a partition, such as orders-0"
    log_dir = quote(str(real.parent))
    if found.kind is not names.DirKind.CURRENT:
        return f"; a broker has renamed it; the log dir is {log_dir}"
    return f"; the log dir is {log_dir}, as LOG_DIR PARTITION: {log_dir} {found.topic_partition}"


def _suggestion(real: Path) -> str:
    """Say which directory was probably meant by a missing one."""
    import difflib  # slow to load, and needed only here

    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in real.parts):
        return ": a name in it is too long"
    if isinstance(real, RemotePath):
        return ""
    if any((real.parent / name).exists() for name in _OF_LOG_DIR):
        return f"; the log dir is {quote(str(real.parent))}"
    missing = next(each for each in (real, *real.parents) if each.parent.is_dir())
    try:
        siblings = [each.name for each in missing.parent.iterdir()]
    except OSError:
        return ""
    for name in difflib.get_close_matches(missing.name, siblings, cutoff=0.75):
        candidate = missing.parent / name / real.relative_to(missing)
        if candidate.is_dir():
            return f"; did you mean {quote(str(candidate))}?"
    return ""


def _some(path: Path, found: Sequence[str]) -> str:
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    return ", ".join(quote(str(path / name)) for name in found[:_MAX_NAMED]) + more
