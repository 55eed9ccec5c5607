"""
Logs quarantined after an unexpected error, with the reason, until an operator releases them.

Kafka's cleaner forgets at a restart which partitions it could not clean (R-452) and fails on each of them again. Here
they are remembered, and released by command when the cause is fixed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from cleaner.base import concurrency
from cleaner.base.json_values import JsonValue, from_json
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptLogError, RecordAboveLimitError, UncleanableError
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.fs.file_system import FileSystem

FILE_NAME = "quarantine.json"
VERSION = 1  # Value on disk, never changes; another meaning of a field is another version.


@dataclass(frozen=True, kw_only=True)
class QuarantinedLog:
    """
    One quarantined log.

    Attributes:
        topic_partition, log_dir: which log. A partition may be in two log dirs (R-442): each has its own entry.
        reason: what is wrong, for the operator.
        kind: the error's class.
        file: the damaged file, if known.
        position: byte position in it. An entry written by hand may lack both.
        since_ms: when, wall clock.
        topic_id: of its topic, as in `partition.metadata`; None: unknown. A topic that is made again has another one.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("partition",)

    topic_partition: TopicPartition
    log_dir: str
    reason: str
    kind: str
    file: str | None = None
    position: int | None = None
    since_ms: int
    topic_id: str | None = None

    @property
    def partition(self) -> TopicPartition:
        """The partition, under the name used in all output for programs."""
        return self.topic_partition

    @staticmethod
    def of(
        topic_partition: TopicPartition, log_dir: Path, error: Exception, now_ms: int, topic_id: UUID | None = None
    ) -> QuarantinedLog:
        """Create the entry for an error."""
        named = error if isinstance(error, CorruptLogError | UncleanableError) else None
        return QuarantinedLog(
            topic_partition=topic_partition,
            log_dir=str(log_dir),
            reason=named.reason if named else str(error) or type(error).__name__,
            kind=type(error).__name__,
            file=str(named.path) if named else None,
            position=error.position if isinstance(error, CorruptLogError | RecordAboveLimitError) else None,
            since_ms=now_ms,
            topic_id=format_uuid(topic_id) if topic_id else None,
        )


_Key = tuple[TopicPartition, str]
_Entries = dict[_Key, QuarantinedLog]


class Quarantine:
    """
    The quarantined logs. Thread-safe; every change is on disk when the call returns.

    If the disk of the state directory refuses a change, the change still counts for this process, and is written with
    the next one, or by `save`.

    Args:
        fs: the file system.
        state_dir: an existing directory.
        warn: called if the existing file cannot be used; says where it was moved.
    Raises:
        LogDirOfflineError: the disk failed.
    """

    def __init__(self, fs: FileSystem, state_dir: Path, warn: Callable[[str], None]) -> None:
        self._file = _state_file(fs, state_dir)
        self._lock = concurrency.Lock()  # guards all below, and the order of the file's versions
        found = self._file.load()
        if found.moved_to is not None:
            warn(f"{self._file.path}: {found.reason}; kept as {found.moved_to.name}, the quarantine is empty now")
        self._entries: _Entries = found.content or {}
        self._is_saved = True

    def entries(self) -> list[QuarantinedLog]:
        """Return all entries by partition."""
        with self._lock:
            return [self._entries[key] for key in sorted(self._entries)]

    def add(self, entry: QuarantinedLog) -> None:
        """
        Quarantine a log; replaces an earlier entry.

        Raises:
            NoSpaceError, LogDirOfflineError: not on disk; it counts for this process anyway.
        """
        with self._lock:
            self._entries[entry.topic_partition, entry.log_dir] = entry
            self._save()

    def release(self, topic_partition: TopicPartition, log_dir: Path | None = None) -> list[QuarantinedLog]:
        """
        Release a partition, in one log dir or (None) in all; returns the removed entries.

        Raises:
            NoSpaceError, LogDirOfflineError: not on disk; it counts for this process anyway.
        """
        with self._lock:
            keys = [key for key in sorted(self._entries) if key[0] == topic_partition]
            released = [self._entries.pop(key) for key in keys if log_dir is None or key[1] == str(log_dir)]
            if released:
                self._save()
            return released

    def save(self) -> None:
        """
        Write changes that could not be written before, if any.

        Raises:
            NoSpaceError, LogDirOfflineError: they still could not be written.
        """
        with self._lock:
            if not self._is_saved:
                self._save()

    def _save(self) -> None:
        self._is_saved = False
        self._file.save(self._entries)
        self._is_saved = True


def read_quarantine(fs: FileSystem, state_dir: Path) -> list[QuarantinedLog]:
    """
    Return another process's entries from its state directory; changes nothing there.

    Raises:
        BadStateError: its file cannot be used.
        LogDirOfflineError: the disk failed, or this user may not read it.
    """
    found = _state_file(fs, state_dir).peek() or {}
    return [found[key] for key in sorted(found)]


def _state_file(fs: FileSystem, state_dir: Path) -> StateFile[_Entries]:
    path = state_dir / FILE_NAME
    return StateFile(fs, path, format_name="cleaner-quarantine", version=VERSION, read=_read, write=_write)


def _write(entries: _Entries) -> Mapping[str, object]:
    rows = [dataclasses.asdict(entries[key]) | {"topic_partition": str(key[0])} for key in sorted(entries)]
    return {"entries": rows}


def _read(_version: int, values: Mapping[str, JsonValue]) -> _Entries:
    rows = values.get("entries")
    if not isinstance(rows, list):
        raise BadStateError("it has no list of entries")
    found = [_entry(row, number) for number, row in enumerate(rows)]
    return {(entry.topic_partition, entry.log_dir): entry for entry in found}


def _entry(row: JsonValue, number: int) -> QuarantinedLog:
    try:
        entry = from_json(QuarantinedLog, row)
        TopicPartition.parse(str(entry.topic_partition))
        return entry
    except ValueError as error:
        raise BadStateError(f"entry {number}: {error}") from error
