"""Where a log dir may hold records of some topics: every directory of theirs, and left-over files in it."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition, name_without_place
from cleaner.errors import UsageError
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem
from cleaner.storage.load.leftovers import find_leftovers, unfinished_snapshots
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment import names

Place = Literal["log", "future", "stray", "delete", "kept", "cut"]

_PLACES: dict[names.DirKind, Place] = {names.DirKind.STRAY: "stray", names.DirKind.DELETE: "delete"}
_KNOWN = (names.LEADER_EPOCHS, names.PARTITION_METADATA, names.TRANSACTIONAL_IDS)


@dataclass(frozen=True)
class LogPlace:
    """
    A directory with a log of a partition.

    Attributes:
        place: which kind.
        topic_partition: as its name says; the topic of a `-delete` or `-stray` directory may be cut short.
        directory: where.
        is_linked: it is a symbolic link.
    """

    place: Place
    topic_partition: TopicPartition
    directory: Path
    is_linked: bool = False

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.directory.name


def find_places(log_dir: LogDir, given: Sequence[str], elsewhere: Sequence[Path] = ()) -> list[LogPlace]:
    """
    Return all directories of some topics and partitions, each once, in the order of the names given.

    Args:
        log_dir: where to look.
        given: names of topics and of partitions.
        elsewhere: what `--kept` and `--cut` name; a name may also be only there, and has no place in the log dir then.
    Raises:
        UsageError: a name is of no topic and of no partition, or of both.
    """
    kept = {each for above in elsewhere for each, _ in _partitions_in(log_dir.fs, above)}
    there = list(_all_places(log_dir))
    found: dict[Path, LogPlace] = {}
    for name in map(name_without_place, given):
        of_partition = [each for each in there if _is_of_partition(each, name)]
        of_topic = [each for each in there if names.may_be_of_topic(each.name, name)]
        if of_partition and of_topic:
            raise UsageError(f"{name}: a partition, and also a topic with {of_topic[0].name}; name the partitions")
        if not of_partition and not of_topic and not any(name in (each.topic, str(each)) for each in kept):
            known = {str(each.topic_partition) for each in there} | {each.topic_partition.topic for each in there}
            raise UsageError(f"{log_dir.path}: no topic and no partition {name}{did_you_mean(name, sorted(known))}")
        found.update((each.directory, each) for each in (*of_partition, *of_topic))
    return list(found.values())


def kept_alone(
    fs: FileSystem, above: Path, given: Sequence[str], places: Sequence[LogPlace]
) -> list[tuple[TopicPartition, Path]]:
    """
    Return what is kept of the topics and partitions named that have no place in the log dir.

    Args:
        fs: the file system.
        above: what `--kept` or `--cut` names.
        given: names of topics and of partitions.
        places: what `find_places` has found for them.
    """
    there = {each.topic_partition for each in places}
    wanted = set(map(name_without_place, given)) - {str(each) for each in there}
    return [
        (each, directory)
        for each, directory in _partitions_in(fs, above)
        if each not in there and not wanted.isdisjoint((each.topic, str(each)))
    ]


def _partitions_in(fs: FileSystem, above: Path) -> Iterator[tuple[TopicPartition, Path]]:
    for name in fs.list_dirs(above):
        with suppress(ValueError):
            yield TopicPartition.parse(name), above / name


def _all_places(log_dir: LogDir) -> Iterator[LogPlace]:
    listing = log_dir.listing()
    for topic_partition, path in sorted(listing.current.items()):
        yield LogPlace("log", topic_partition, path)
    for topic_partition, path in sorted(listing.linked.items()):
        yield LogPlace("log", topic_partition, path, is_linked=True)
    for topic_partition, path in sorted(listing.future.items()):
        yield LogPlace("future", topic_partition, path)
    for name in listing.delete_or_stray:
        topic_partition, kind = names.parse_partition_dir(name)
        yield LogPlace(_PLACES[kind], topic_partition, log_dir.path / name)


def _is_of_partition(place: LogPlace, name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return number == str(place.topic_partition.partition) and names.may_be_of_topic(place.name, topic)


@dataclass(frozen=True)
class LeftOvers:
    """
    Files of a directory besides its segments.

    Attributes:
        files, bytes: left by a swap, a deletion or a copy; a load removes them, or completes the swap.
        linked: of these, the ones that have another name elsewhere.
        unknown: names of which nothing is known, directories and links too.
    """

    files: int
    bytes: int
    linked: tuple[Path, ...]
    unknown: tuple[str, ...]


def left_overs(fs: FileSystem, directory: Path) -> LeftOvers:
    """
    Look at the files of a partition's directory that are not its own.

    Raises:
        CorruptLogError: a foreign file that a broker cannot load.
    """
    names_here = fs.list_dir(directory)
    states = {name: fs.stat(directory / name) for name in names_here}
    files = [name for name in names_here if stat.S_ISREG(states[name].st_mode)]
    found = find_leftovers(directory, files)
    gone = {*found.condemned_swaps, *found.unfinished, *found.deleted, *found.swaps, *unfinished_snapshots(files)}
    own = {name for name in files if names.parse_file_name(name) or name.removesuffix(UNFINISHED) in _KNOWN}
    return LeftOvers(
        files=len(gone),
        bytes=sum(states[name].st_size for name in gone),
        linked=tuple(directory / name for name in sorted(gone) if states[name].st_nlink > 1),
        unknown=tuple(name for name in names_here if name not in gone | own),
    )
