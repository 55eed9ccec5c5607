"""
`meta.properties`: which cluster, node and directory a log dir belongs to.

Read to distinguish a broker's log dir from a bare copy, and to name the node in messages; cleaning never writes it.

Source: rule R-110; `MetaProperties.java`, `PropertiesUtils.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cleaner.base.properties import format_properties, parse_properties
from cleaner.errors import ConfigError, CorruptCheckpointError
from cleaner.storage.files.checkpoint import read_bounded, read_number
from cleaner.storage.files.kafka_uuid import format_uuid, parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import ReadableFiles

LIMIT_BYTES = 64 << 10
"""Far more than the hundred-odd bytes Kafka writes."""


@dataclass(frozen=True)
class MetaProperties:
    """
    The contents of `meta.properties`.

    Attributes:
        version: 0 (from ZooKeeper times, nothing guaranteed) or 1 (cluster and node are known).
        cluster_id: the cluster's id, any text.
        node_id: the node's number; `broker.id` in version 0, `node.id` in version 1.
        directory_id: the log dir's own id.
    """

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


def read_meta_properties(fs: ReadableFiles, path: Path) -> MetaProperties | None:
    """
    Read `meta.properties`; None if it does not exist.

    Raises:
        CorruptCheckpointError: content with which a broker would not start: another version, a version 1 without
            cluster or node, an invalid number or id, a broken escape.
    """
    data = read_bounded(fs, path, LIMIT_BYTES)
    if data is None:
        return None
    try:
        values = parse_properties(data, str(path))
    except ConfigError as error:
        raise CorruptCheckpointError(
            path, max(data.find(b"\\u"), 0) if "\\u" in error.reason else 0, error.reason
        ) from error
    version = _number(values, "version", "0", path, data)
    if version not in (0, 1):
        raise CorruptCheckpointError(path, _position(data, "version"), f"version {version}, only 0 and 1 are known")
    node_key = "node.id" if version == 1 else "broker.id"
    cluster_id = values.get("cluster.id")
    if version == 1 and (node_key not in values or cluster_id is None):
        missing = node_key if cluster_id is not None else "cluster.id"
        raise CorruptCheckpointError(path, len(data), f"version 1 without {missing}")
    return MetaProperties(
        version=version,
        cluster_id=cluster_id,
        node_id=_number(values, node_key, "", path, data) if node_key in values else None,
        directory_id=_directory_id(values, path, data),
    )


def _number(values: Mapping[str, str], key: str, default: str, path: Path, data: bytes) -> int:
    word = values.get(key, default)
    if key == "version":
        word = word.strip()  # only this one is trimmed by Kafka
    return read_number(word.encode("utf-8", "backslashreplace"), 32, path, _position(data, key), key)


def _directory_id(values: Mapping[str, str], path: Path, data: bytes) -> UUID | None:
    if "directory.id" not in values:
        return None
    try:
        return parse_uuid(values["directory.id"])
    except ValueError as error:
        raise CorruptCheckpointError(path, _position(data, "directory.id"), str(error)) from error


def _position(data: bytes, key: str) -> int:
    """Return where the key's last line starts (the last one counts); 0 if it is written in an unusual way."""
    return data.rfind(b"\n" + key.encode("ascii")) + 1


def write_meta_properties(fs: FileSystem, path: Path, properties: MetaProperties) -> None:
    """Write or replace `meta.properties` durably. A broker reads it back as the same values."""
    values = {"version": str(properties.version)}
    if properties.cluster_id is not None:
        values["cluster.id"] = properties.cluster_id
    if properties.node_id is not None:
        values["node.id" if properties.version == 1 else "broker.id"] = str(properties.node_id)
    if properties.directory_id is not None:
        values["directory.id"] = format_uuid(properties.directory_id)
    fs.write_atomically(path, format_properties(values))
