"""Two states of logs, as the caller names them: log dirs, partition directories, what `clean --keep-old` kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.app.kept_before import is_kept, kept_log, kept_partitions
from cleaner.app.options import CallContext
from cleaner.app.session import parse_names
from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.log_dir import LogDir, LogDirListing, OffsetKind
from cleaner.storage.which_dir import Nature, nature_of, require_log_dir
from cleaner.verification.proof.side import LogSide


@dataclass(frozen=True)
class LogPair:
    """A partition on both sides: its directories."""

    topic_partition: TopicPartition
    before: Path
    after: Path


def homes_of(fs: FileSystem, pairs: Sequence[LogPair]) -> dict[Path, LogDir]:
    """Return the log dirs that hold the partitions, by path."""
    return {path: LogDir(fs, path) for pair in pairs for path in (pair.before.parent, pair.after.parent)}


def sides_of(fs: FileSystem, pair: LogPair, homes: Mapping[Path, LogDir]) -> tuple[LogSide, LogSide, int | None]:
    """
    Open a partition's two logs; also returns where the first round began, None if no checkpoint says so.

    Args:
        homes: of `homes_of`.
    Raises:
        UncleanableError: no segment, or a swap that was interrupted.
        CorruptCheckpointError: what `clean --keep-old` kept cannot be read.
    """
    name = pair.topic_partition
    old_home, new_home = homes[pair.before.parent], homes[pair.after.parent]
    after = LogSide(fs, pair.after, new_home.log_start_offsets.get(name))
    if is_kept(fs, pair.before):
        segments, kept = kept_log(fs, pair.before, after.segments)
        # The newest producer snapshot belongs to the log's end, which rounds do not move.
        return LogSide(fs, pair.after, after.log_start_offset, segments), after, kept.checkpoint
    before = LogSide(fs, pair.before, old_home.log_start_offsets.get(name))
    return before, after, old_home.offsets(OffsetKind.CLEANER).get(name)


def pairs_of(
    context: CallContext,
    before: Path,
    after: Path,
    partitions: Sequence[str],
    is_wanted: Callable[[TopicPartition], bool] = lambda _: True,
) -> list[LogPair]:
    """
    Return the partitions that are on both sides; neither is read.

    Args:
        before, after: two log dirs, or two directories of one partition; `before` may be one of `clean --keep-old`.
        partitions: names; if empty, all that are in either log dir; a link draws a warning then.
        is_wanted: of those only these; not asked about partitions that are named.
    Raises:
        UsageError: no such directory or partition.
    """
    fs = context.fs
    natures = [nature_of(fs, directory) for directory in (before, after)]
    for directory, nature in zip((before, after), natures, strict=True):
        if nature is not Nature.PARTITION and (nature is not Nature.KEPT or directory is after):
            require_log_dir(fs, directory)
    if Nature.PARTITION in natures:
        if natures != [Nature.PARTITION] * 2:
            raise UsageError(
                f"{before} is {natures[0].value}, {after} is {natures[1].value}: give two log dirs, or two directories "
                "of one partition"
            )
        if partitions:
            raise UsageError("two partition directories and names of partitions; give two log dirs, or no names")
        before, after = real_path(before), real_path(after)
        return [LogPair(_name_of(after) or _name_of(before) or TopicPartition(after.name, 0), before, after)]
    kept = kept_partitions(fs, before) if natures[0] is Nature.KEPT else {}
    sides = [real_path(path) for path in (before, after)]
    listings = [LogDirListing(kept) if kept else LogDir(fs, sides[0]).listing(), LogDir(fs, sides[1]).listing()]
    if partitions:
        wanted = parse_names(partitions)
    elif kept:
        wanted = sorted(filter(is_wanted, kept))
    else:
        wanted = sorted(filter(is_wanted, listings[0].current.keys() | listings[1].current.keys()))
        for sentence in (each for listing in listings for each in listing.left_out()):
            context.warn(sentence)
    old, new = listings
    return [LogPair(each, old.find(each, sides[0]), new.find(each, sides[1])) for each in wanted]


def _name_of(directory: Path) -> TopicPartition | None:
    try:
        return TopicPartition.parse(directory.name)
    except ValueError:
        return None
