"""
Kafka's file and directory names: makes them, and parses those found on disk.

A partition directory is `topic-3`; with a suffix it is no longer (or not yet) the partition's own directory:

    topic-3.0123456789abcdef0123456789abcdef-delete    waiting to be removed
    topic-3.0123456789abcdef0123456789abcdef-stray     renamed by a broker that does not know the partition
    topic-3.0123456789abcdef0123456789abcdef-future    being copied here from another log dir

Inside it, a segment's files share a prefix of 20 digits, its base offset. Temporary files carry one more suffix after
the full name: `.cleaned`, `.swap`, `.deleted`.

Source: rules R-102 to R-105, R-120 to R-122, R-642.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

from cleaner.base.model import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
"""A segment's files in the order in which Kafka renames and deletes them (R-601, R-610)."""

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
TEMPORARY_SUFFIXES = (CLEANED, SWAP, DELETED)

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
GENERATIONS = ".cleaner-generations"
PUBLISHED = ".cleaner-high-watermarks"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
TRANSACTIONAL_IDS = "cleaner-transactional-ids"
KEPT_MANIFEST = "manifest.json"
UNDONE_MANIFEST = "undone.json"

REMOTE_LOG_INDEX_CACHE = "remote-log-index-cache"
METADATA_TOPIC = "__cluster_metadata"


def _one_of(*suffixes: str) -> str:
    return "|".join(map(re.escape, suffixes))


_MAX_NAME_LENGTH = 255
_MIN_OFFSET, _MAX_OFFSET = -(2**63), 2**63 - 1
_OFFSET = re.compile(r"[+-]?[0-9]{1,30}\Z")
_UNIQUE = re.compile(r"[0-9a-f]{32}\Z")
_LOG_FILE = re.compile(rf"([0-9]{{20}})({_one_of(*SEGMENT_SUFFIXES, SNAPSHOT)})({_one_of(*TEMPORARY_SUFFIXES)}|)")


class DirKind(enum.Enum):
    """The kind of a partition directory. Only `CURRENT` ones are ever cleaned (R-105)."""

    CURRENT = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class PartitionDir(NamedTuple):
    """
    A parsed directory name.

    The topic of a `DELETE` or `STRAY` directory may have been cut to fit into 255 characters (R-103).
    """

    topic_partition: TopicPartition
    kind: DirKind


def parse_partition_dir(name: str) -> PartitionDir:
    """
    Parse the name of a sub-directory of a log dir (R-104).

    Stricter than Kafka in one point: characters that Kafka refuses in topics are refused here too.

    Raises:
        ValueError: not a partition directory; a broker would not start with such a name in a log dir (R-102).
    """
    for kind in (DirKind.DELETE, DirKind.STRAY, DirKind.FUTURE):
        if name.endswith(kind.value):
            if not _has_unique_part(name.removesuffix(kind.value)):
                raise ValueError(f"{name!r} ends like a renamed partition directory but has no unique part")
            return PartitionDir(TopicPartition.parse(name[: name.rindex(".")]), kind)
    return PartitionDir(TopicPartition.parse(name), DirKind.CURRENT)


def may_be_of_topic(name: str, topic: str) -> bool:
    """Tell whether the directory `name` of a partition may be one of a topic, whose name in it may have been cut."""
    topic_partition, kind = parse_partition_dir(name)
    may_be_cut = kind in (DirKind.DELETE, DirKind.STRAY) and len(name) == _MAX_NAME_LENGTH
    return topic == topic_partition.topic or (may_be_cut and topic.startswith(topic_partition.topic))


def _has_unique_part(stem: str) -> bool:
    """Tell whether a name is `topic-partition.unique`, none of the three empty and without white space (R-103)."""
    dash = stem.find("-", 1)
    dot = stem.rfind(".", 0, len(stem) - 1)
    return 0 < dash < dot - 1 and not any(letter.isspace() for letter in stem)


def partition_dir_name(topic_partition: TopicPartition, kind: DirKind = DirKind.CURRENT, unique: str = "") -> str:
    """
    Name a partition's directory (R-103).

    Args:
        topic_partition: the partition.
        kind: its kind; any except `CURRENT` needs `unique`.
        unique: 32 lower-case hex digits (a UUID without dashes).
    Raises:
        ValueError: `unique` is needed, and is not that.
    """
    if kind is DirKind.CURRENT:
        return str(topic_partition)
    if not _UNIQUE.match(unique):
        raise ValueError(f"{unique!r} is not 32 hex digits")
    topic, partition = topic_partition
    tail = f"-{partition}.{unique}{kind.value}"
    if kind is not DirKind.FUTURE:
        topic = topic[: _MAX_NAME_LENGTH - len(tail)]
    return topic + tail


def offset_prefix(offset: int) -> str:
    """Return the 20 digits with which the file names of this offset begin (R-120). Raises ValueError: not an offset."""
    if not 0 <= offset <= _MAX_OFFSET:
        raise ValueError(f"{offset} is not an offset")
    return f"{offset:020d}"


def segment_file_name(base_offset: int, suffix: str, temporary: str = "") -> str:
    """
    Name a file of a segment, or a producer snapshot.

    Args:
        base_offset: the segment's base offset; for a snapshot the offset it goes up to, exclusive.
        suffix: one of `SEGMENT_SUFFIXES`, or `SNAPSHOT`.
        temporary: "" or one of `TEMPORARY_SUFFIXES`.
    """
    return offset_prefix(base_offset) + suffix + temporary


def cleaned_file_name(base_offset: int, suffix: str, attempt: str = "") -> str:
    """
    Name a segment's `.cleaned` file, or one that one of several attempts writes.

    Invariant: an attempt's name begins with the highest possible number, not the segment's. A loader removes the file
    like every other `.cleaned` file, and takes the lowest number of one as the point up to which a swap was complete.
    So a file left by a process that died, or by an abandoned attempt, can never undo a swap that is decided.

    Args:
        base_offset: the segment's base offset.
        suffix: one of `SEGMENT_SUFFIXES`.
        attempt: unique name of the attempt, letters, digits and dashes; empty for the segment's own file.
    """
    if not attempt:
        return segment_file_name(base_offset, suffix, CLEANED)
    return f"{offset_prefix(_MAX_OFFSET)}.{offset_prefix(base_offset)}-{attempt}{suffix}{CLEANED}"


def attempt_of(name: str) -> str | None:
    """Return the attempt's name from the name of one of its files; None for any other file."""
    front = f"{offset_prefix(_MAX_OFFSET)}."
    if not name.startswith(front) or not name.endswith(CLEANED):
        return None
    return name.removeprefix(front).partition("-")[2].partition(".")[0] or None


def name_in_place_of(name: str) -> str:
    """Return the name that an attempt's file gets when it is accepted; any other name unchanged."""
    if attempt_of(name) is None:
        return name
    base_offset, _, rest = name.partition(".")[2].partition("-")
    return base_offset + rest[rest.index(".") :]


def snapshot_file_name(offset: int) -> str:
    """Name the snapshot of the producers' state up to `offset`, exclusive."""
    return segment_file_name(offset, SNAPSHOT)


def offset_of(name: str) -> int:
    """
    Parse the number before the first dot, as Kafka does: `12.log` and `+12.log` are offset 12 too (R-121).

    Raises:
        ValueError: no dot, no number, or more than 64 bits.
    """
    prefix, dot, _ = name.partition(".")
    if not dot or not _OFFSET.match(prefix) or not _MIN_OFFSET <= int(prefix) <= _MAX_OFFSET:
        raise ValueError(f"{name!r} does not begin with an offset and a dot")
    return int(prefix)


class LogFile(NamedTuple):
    """A parsed name of a file in a partition directory: `<offset><suffix><temporary>`."""

    offset: int
    suffix: str
    temporary: str

    @property
    def name(self) -> str:
        """The name as Kafka writes it, with 20 digits."""
        return segment_file_name(self.offset, self.suffix, self.temporary)


def parse_file_name(name: str) -> LogFile | None:
    """
    Parse the name of a segment file or snapshot; None for a foreign file, which is left alone (R-642).

    Only names that Kafka itself writes are recognised: 20 digits, a known suffix, at most one temporary suffix.
    """
    found = _LOG_FILE.fullmatch(name)
    if found is None or (offset := int(found[1])) > _MAX_OFFSET:
        return None
    return LogFile(offset, found[2], found[3])


def is_deleted(name: str) -> bool:
    """Tell whether a file waits for its removal; KRaft's own snapshots are left alone (R-630)."""
    return name.endswith(DELETED) and not name.endswith(".checkpoint" + DELETED)


def offsets_of(files: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets of the files with a suffix and no temporary one, ascending: segments' logs, snapshots."""
    parsed = map(parse_file_name, files)
    return sorted(file.offset for file in parsed if file and file.suffix == suffix and not file.temporary)
