"""
The file that says which tombstones may go (D-17): `check --replicas` writes it, `clean --safe-tombstones` reads it.

Of each partition it has the safe offset: every replica that was compared has seen every tombstone and marker below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.app.plan_report import PlanEntry
from cleaner.base.json_values import (
    FORMAT_VERSION,
    NotJsonError,
    WrongValueError,
    described,
    format_json,
    from_json,
    parse_json,
)
from cleaner.base.model import TopicPartition
from cleaner.errors import UncleanableError, UsageError
from cleaner.policy.reasons import Reason
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import PARTITION_METADATA

FORMAT = "safe-tombstones"

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class SeenReplica:
    """
    A replica as it was compared.

    Attributes:
        path: its directory.
        log_start_offset, log_end_offset: of what it had.
        high_watermark: its line in `replication-offset-checkpoint`; None without one.
    """

    path: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None = None


@dataclass(frozen=True)
class SafePoint:
    """
    Attributes:
        partition: as its directory is named.
        safe_offset: tombstones and markers below it may go.
        bounded_by: why not more of them, in words.
        topic_id: of the topic, as `partition.metadata` has it; None if no replica has one.
        replicas: those that were compared.
    """

    partition: TopicPartition
    safe_offset: int
    bounded_by: str
    topic_id: str | None
    replicas: tuple[SeenReplica, ...]


@dataclass(frozen=True)
class SafeTombstones:
    """
    The content of a file.

    Attributes:
        made_ms: when the comparison began, milliseconds since 1970.
        partitions: those that were compared.
        path: the file; empty before it is written.
    """

    made_ms: int
    partitions: tuple[SafePoint, ...]
    path: str = ""

    def offset_of(self, fs: FileSystem, partition: TopicPartition, directory: Path, log_end_offset: int) -> int:
        """
        Return the safe offset for the log in a directory; its topic id is compared if it has one.

        Raises:
            UncleanableError: the file says nothing about this log.
            CorruptCheckpointError: `partition.metadata` is damaged.
        """
        again = "`cleaner check --replicas` compares them, --safe-tombstones writes the file"
        found = next((each for each in self.partitions if each.partition == partition), None)
        if found is None:
            raise UncleanableError(Path(self.path), f"no replicas of {partition} were compared: {again}")
        known = read_topic_id(fs, directory / PARTITION_METADATA)
        topic_id = None if known is None else format_uuid(known)
        if topic_id is not None and found.topic_id is not None and topic_id != found.topic_id:
            reason = f"it is about a {partition} with the topic id {found.topic_id}, this one has {topic_id}: {again}"
            raise UncleanableError(Path(self.path), reason)
        if log_end_offset < found.safe_offset:
            reason = (
                f"{partition} ends at {log_end_offset}, below its safe offset {found.safe_offset}: it was cut since"
            )
            raise UncleanableError(Path(self.path), f"{reason}; {again}")
        return found.safe_offset


def with_safe_offsets(entries: Sequence[PlanEntry], fs: FileSystem, log_dir: Path, file: Path) -> list[PlanEntry]:
    """
    Add each partition's safe offset; one that could be cleaned, but that the file says nothing about, gets its error.

    Raises:
        UsageError: the file cannot be read.
    """
    safe = read_safe_tombstones(fs, file)
    found = []
    for entry in entries:
        if not entry.error and entry.log_end_offset is not None:
            partition = TopicPartition.parse(entry.partition)
            try:
                offset = safe.offset_of(fs, partition, log_dir / entry.partition, entry.log_end_offset)
                entry = replace(entry, safe_offset=offset)
            except UncleanableError as error:
                if entry.first_dirty_offset is not None:
                    entry = replace(entry, error=str(error), why=Reason.UNREADABLE)
        found.append(entry)
    return found


def require_place(fs: FileSystem, path: Path) -> None:
    """
    Refuse a place where the file cannot be written, before hours of reading.

    Raises:
        UsageError: its directory does not exist, or something else has its name.
    """
    if not fs.exists(path.parent):
        raise UsageError(f"{path}: there is no directory {path.parent}")
    if fs.exists(path):
        read_safe_tombstones(fs, path)


def write_safe_tombstones(fs: FileSystem, path: Path, made_ms: int, partitions: Sequence[SafePoint]) -> None:
    """Write the file whole and durable; an earlier one is replaced."""
    document = described(FORMAT, {"made_ms": made_ms, "partitions": tuple(partitions)})
    fs.write_atomically(path, format_json(document, indent=1).encode("ascii") + b"\n")


def read_safe_tombstones(fs: FileSystem, path: Path) -> SafeTombstones:
    """
    Read the file.

    Raises:
        UsageError: no such file, or not what `check --replicas` writes.
    """
    try:
        document = parse_json(fs.read_bytes(path, _MOST_BYTES))
        if document.get("format") != f"cleaner-{FORMAT}" or document.get("format_version") != FORMAT_VERSION:
            raise WrongValueError(f"its format is {document.get('format')!r}, version {document.get('format_version')}")
        found = from_json(SafeTombstones, document)
        if any(each.safe_offset < 0 for each in found.partitions):
            raise WrongValueError("a negative offset")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; `cleaner check --replicas` writes it") from None
    except (NotJsonError, WrongValueError) as error:
        raise UsageError(f"{path}: not a file of `cleaner check --replicas`: {error}") from error
    return SafeTombstones(found.made_ms, found.partitions, str(path))
