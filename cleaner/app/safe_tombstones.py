"""
The file that says which tombstones may go (D-17): `check --replicas` writes it, `clean --safe-tombstones` reads it.

Of each partition it has the safe offset: every replica that was compared has seen every tombstone and marker below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from cleaner.storage.fs.file_system import FileSystem

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

    def offset_of(self, partition: TopicPartition, topic_id: str | None, log_end_offset: int) -> int:
        """
        Return the safe offset for a log.

        Args:
            topic_id: of the log; None: unknown, and not compared.
            log_end_offset: of the log.
        Raises:
            UncleanableError: the file says nothing about this log.
        """
        again = "`cleaner check --replicas` compares them, --safe-tombstones writes the file"
        found = next((each for each in self.partitions if each.partition == partition), None)
        if found is None:
            raise UncleanableError(Path(self.path), f"no replicas of {partition} were compared: {again}")
        if topic_id is not None and found.topic_id is not None and topic_id != found.topic_id:
            reason = f"it is about a {partition} with the topic id {found.topic_id}, this one has {topic_id}: {again}"
            raise UncleanableError(Path(self.path), reason)
        if log_end_offset < found.safe_offset:
            reason = (
                f"{partition} ends at {log_end_offset}, below its safe offset {found.safe_offset}: it was cut since"
            )
            raise UncleanableError(Path(self.path), f"{reason}; {again}")
        return found.safe_offset


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
