"""
`partition.metadata`: the id of the topic a partition directory belongs to.

    version: 0
    topic_id: YtvD2zgwZDjoVl7HCIonJw

A broker renames a directory to `-stray` if this id is missing or not the cluster's id of the topic (R-107), so cleaning
reads the file and never changes it. It has no newline at its end.

Source: rule R-124; `PartitionMetadata.java`, `PartitionMetadataReadBuffer.java`.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.checkpoint import read_bounded, read_number
from cleaner.storage.files.kafka_uuid import format_uuid, parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import ReadableFiles

LIMIT_BYTES = 4096
"""Far more than the 44 bytes Kafka writes."""

VERSION = 0  # Value on disk, never changes.

_FIRST_LINE = re.compile(rb"version:[ \t]++([^\r\n]*+)(?:\r\n|\r|\n)")
_SECOND_LINE = re.compile(rb"topic_id:[ \t]++([^\r\n]*+)")


def read_topic_id(fs: ReadableFiles, path: Path) -> UUID | None:
    """
    Read the topic id from a `partition.metadata` file; None if it does not exist.

    A version above 0 is accepted, as in Kafka: newer brokers keep these two lines.

    Raises:
        CorruptCheckpointError: not these two lines, a negative version, an invalid UUID, or the all-zero one.
    """
    data = read_bounded(fs, path, LIMIT_BYTES)
    if data is None:
        return None
    first = _FIRST_LINE.match(data)
    if first is None:
        raise CorruptCheckpointError(path, 0, "the first line is not 'version: 0'")
    if read_number(first.group(1), 32, path, first.start(1), "the version") < VERSION:
        raise CorruptCheckpointError(path, first.start(1), "the version is negative")
    second = _SECOND_LINE.match(data, first.end())
    if second is None:
        raise CorruptCheckpointError(path, first.end(), "the second line is not 'topic_id: ' and an id")
    try:
        topic_id = parse_uuid(second.group(1).decode("ascii", "backslashreplace"))
    except ValueError as error:
        raise CorruptCheckpointError(path, second.start(1), str(error)) from error
    if topic_id.int == 0:
        raise CorruptCheckpointError(path, second.start(1), "the topic id is all zeros")
    return topic_id


def write_topic_id(fs: FileSystem, path: Path, topic_id: UUID) -> None:
    """Write or replace a `partition.metadata` file durably. Raises ValueError: the id is all zeros."""
    if topic_id.int == 0:
        raise ValueError("the all-zero id belongs to no topic")
    fs.write_atomically(path, f"version: {VERSION}\ntopic_id: {format_uuid(topic_id)}".encode("ascii"))
