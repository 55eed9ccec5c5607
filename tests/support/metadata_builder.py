"""Builds the records, batches and files of a KRaft metadata log, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from cleaner.kernels.checksums import crc32c

TOPIC = 2
BROKER = 4


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """Return a signed varint."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value: str | None) -> bytes:
    """Return a compact string."""
    if value is None:
        return varint(0)
    data = value.encode()
    return varint(len(data) + 1) + data


def record(api_key: int, fields: bytes, *, version: int = 0, frame_version: int = 1) -> bytes:
    """Return a record's value: the frame, the fields, no tagged fields."""
    return varint(frame_version) + varint(api_key) + varint(version) + fields + varint(0)


def topic_record(name: str, topic_id: UUID) -> bytes:
    """Return a TopicRecord."""
    return record(2, text(name) + topic_id.bytes)


def remove_topic_record(topic_id: UUID) -> bytes:
    """Return a RemoveTopicRecord."""
    return record(9, topic_id.bytes)


def partition_record(topic_id: UUID, partition: int, replicas: Sequence[int]) -> bytes:
    """Return a PartitionRecord, without the fields after the in-sync replicas."""
    return record(3, struct.pack(">i", partition) + topic_id.bytes + 2 * int32s(replicas), version=2)


def partition_change_record(topic_id: UUID, partition: int, replicas: Sequence[int] | None) -> bytes:
    """Return a PartitionChangeRecord: a new leader, and new replicas unless None."""
    tagged = [varint(1) + varint(4) + struct.pack(">i", 1)]
    if replicas is not None:
        changed = int32s(replicas)
        tagged.append(varint(2) + varint(len(changed)) + changed)
    fields = struct.pack(">i", partition) + topic_id.bytes + varint(len(tagged)) + b"".join(tagged)
    return varint(1) + varint(5) + varint(1) + fields


def int32s(values: Sequence[int]) -> bytes:
    """Return a compact list of numbers."""
    return varint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def feature_record(name: str, level: int, *, version: int = 0) -> bytes:
    """Return a FeatureLevelRecord: a feature's finalized level."""
    return record(12, text(name) + level.to_bytes(2, "big", signed=True) + b"\0", version=version)


def config_record(resource_type: int, resource: str, key: str, value: str | None) -> bytes:
    """Return a ConfigRecord."""
    return record(4, struct.pack(">b", resource_type) + text(resource) + text(key) + text(value))


BEGIN = record(23, b"")
END = record(24, b"")
ABORT = record(25, b"")
NO_OP = record(20, b"")


def batch(base_offset: int, values: Sequence[bytes], *, attributes: int = 0) -> bytes:
    """Return a record batch of magic 2 with a correct checksum."""
    body = bytearray()
    for delta, value in enumerate(values):
        fields = b"\0" + zigzag(0) + zigzag(delta) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
        body += zigzag(len(fields)) + fields
    count = len(values)
    checked = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", base_offset, len(checked) + 9, 1, 2, crc32c(checked)) + checked


def footer(base_offset: int) -> bytes:
    """Return the control batch that ends a snapshot."""
    return batch(base_offset, [b"\0\0\0"], attributes=0x20)


def write_segment(directory: Path, base_offset: int, batches: Sequence[Sequence[bytes]], tail: bytes = b"") -> Path:
    """Write a segment of consecutive batches, and `tail` after them."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020}.log"
    data, offset = b"", base_offset
    for values in batches:
        data += batch(offset, values)
        offset += len(values)
    path.write_bytes(data + tail)
    return path


def write_snapshot(directory: Path, end_offset: int, values: Sequence[bytes]) -> Path:
    """Write a complete snapshot of the records before `end_offset`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{end_offset:020}-{1:010}.checkpoint"
    path.write_bytes(batch(0, values) + footer(len(values)))
    return path
