"""
Finds the partitions of a path: a log dir, a partition directory, or a pattern of either.

The content of a directory decides what it is (`storage/which_dir.py`); the name of a partition directory must give the
topic and partition. Patterns use the wildcards of a shell: `*`, `?`, `[ab]` and `{a,b}`.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable
from pathlib import Path

from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import KINDS, SCHEMES, TIERED, RemotePath, any_path
from cleaner.errors import UnknownTopicError, UsageError
from cleaner.spark.source.options import ReadOptions
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment import names
from cleaner.storage.which_dir import Nature, nature_of, why_no_log_dir

_BRACES = re.compile(r"\{([^{}]*)\}")
_SIGNS = re.compile(r"[*?\[]")

Found = dict[TopicPartition, list[Path]]


def to_stderr(text: str) -> None:
    """Tell the user of a query something; Spark shows what its driver writes there."""
    print(text, file=sys.stderr, flush=True)


def find_partitions(fs: FileSystem, options: ReadOptions, warn: Callable[[str], None] = to_stderr) -> Found:
    """
    Return the directories of each wanted partition, usually one, in the order of the partitions.

    Raises:
        UsageError: the path leads to no log, a directory with segments is not named after a partition, or a partition
            that the options name does not exist.
        UnknownTopicError: a topic that the options name does not exist.
    """
    found: Found = {}
    for directory in _expanded(fs, options.path):
        for topic_partition, path in _partitions_in(fs, directory, warn):
            paths = found.setdefault(topic_partition, [])
            if path not in paths:
                paths.append(path)
    if not found:
        reason = None if _is_pattern(options.path) else why_no_log_dir(fs, _path_of(options.path))
        what = "no Kafka log; give a log dir, partition directories, or a pattern of them"
        raise UsageError(f"{options.path}: {what}{f': {reason}' if reason else ''}")
    for topic in sorted(options.topics or ()):
        if not any(each.topic == topic for each in found):
            likely = did_you_mean(topic, (each.topic for each in found))
            raise UnknownTopicError(topic, f"not in {options.path}{likely}")
    for topic_partition in sorted(options.assigned or ()):
        if topic_partition not in found:
            raise UsageError(f"assign: {topic_partition} is not in {options.path}")
    return {name: found[name] for name in sorted(found) if options.selects(name)}


def _expanded(fs: FileSystem, pattern: str) -> list[Path]:
    """Return the directories that match a pattern, sorted, with symbolic links resolved."""
    match = _BRACES.search(pattern)
    if match is not None:
        parts = [pattern[: match.start()] + word + pattern[match.end() :] for word in match[1].split(",")]
        return sorted({path for part in parts for path in _expanded(fs, part)})
    if _is_in_bucket(pattern):
        return sorted(_expanded_remote(fs, any_path(pattern)))
    found = [Path("/") if pattern.startswith(("/", "file:")) else Path.cwd()]
    for part in Path(_plain(pattern)).parts:
        if part == "/":
            continue
        if _SIGNS.search(part):
            found = [path / name for path in found for name in fnmatch.filter(fs.list_dirs(path), part)]
        else:
            found = [path / part for path in found if fs.exists(path / part)]
        found = [path for path in found if path.is_dir()]
    return sorted({real_path(path) for path in found})


def _expanded_remote(fs: FileSystem, pattern: Path) -> list[Path]:
    """Return the directories of a bucket that match; what is above the first sign is not listed, nor need be."""
    signs = [number for number, part in enumerate(pattern.parts) if _SIGNS.search(part)]
    fixed = signs[0] if signs else len(pattern.parts)
    found: list[Path] = [RemotePath(*pattern.parts[:fixed])]
    for part in pattern.parts[fixed:]:
        if _SIGNS.search(part):
            found = [path / name for path in found for name in fnmatch.filter(fs.list_dirs(path), part)]
        else:
            found = [path / part for path in found]
    return [path for path in found if fs.exists(path)]


def _plain(pattern: str) -> str:
    """Return a path without its URL scheme."""
    scheme, colon, rest = pattern.partition("://")
    if colon and scheme != "file":
        raise UsageError(
            f"{pattern}: logs are read from file systems that are mounted, and from {KINDS}, not from {scheme}://"
        )
    return rest if colon else pattern.removeprefix("file:")


def _is_in_bucket(text: str) -> bool:
    return text.startswith((TIERED, *(f"{scheme}://" for scheme in SCHEMES)))


def _path_of(text: str) -> Path:
    return any_path(text) if _is_in_bucket(text) else Path(_plain(text))


def _is_pattern(text: str) -> bool:
    return bool(_SIGNS.search(text) or _BRACES.search(text))


def _partitions_in(fs: FileSystem, directory: Path, warn: Callable[[str], None]) -> list[tuple[TopicPartition, Path]]:
    if _is_not_current(directory.name):
        return []
    nature = nature_of(fs, directory)
    if nature is Nature.PARTITION:
        topic_partition = _partition_of(directory.name)
        if topic_partition is None:
            raise UsageError(
                f"{directory}: has segments, and its name is not that of a topic and partition, as prices-0; rename it"
            )
        return [(topic_partition, directory)]
    if nature is not Nature.LOG_DIR:
        return []
    listing = LogDir(fs, directory).listing(lambda error: warn(f"kafkalog: {error}: left out"))
    for sentence in listing.left_out():
        warn(f"kafkalog: {sentence}")
    # A reader looks for a partition by its usual name.
    return [(each, path) for each, path in listing.current.items() if str(each) == path.name]


def _is_not_current(name: str) -> bool:
    try:
        return names.parse_partition_dir(name).kind is not names.DirKind.CURRENT
    except ValueError:
        return False


def _partition_of(name: str) -> TopicPartition | None:
    try:
        found = names.parse_partition_dir(name)
    except ValueError:
        return None
    is_plain = found.kind is names.DirKind.CURRENT and str(found.topic_partition) == name
    return found.topic_partition if is_plain else None
