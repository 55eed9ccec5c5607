"""
Reads the records of KRaft's metadata log that describe topics, their settings, and the cluster's feature levels.

A cluster's settings are in the log `__cluster_metadata-0` and in snapshots of it. Both consist of ordinary record
batches, never compressed. A record's value is

    frame version  unsigned varint, 1
    api key        unsigned varint, which kind of record
    version        unsigned varint, of that kind; 0 for all kinds read here but partitions, whose first fields stay
    fields         by the kind's schema

where strings are an unsigned varint (length + 1, 0 for null) and UTF-8, ids are 16 bytes, and tagged fields end each
record. Unknown kinds are skipped: they describe brokers, quotas and similar things.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cleaner.format.checksums import crc32c
from cleaner.format.fields import FieldReader
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    size_of,
)

# KRaft writes batches of at most 8 MiB; a longer one is not a torn batch but a damaged length.
MAX_BATCH_BYTES = 9 << 20

_FRAME_VERSION = 1
_TOPIC = 2
_PARTITION = 3
_CONFIG = 4
_PARTITION_CHANGE = 5
_REMOVE_TOPIC = 9
_FEATURE_LEVEL = 12
_BEGIN_TRANSACTION = 23
_END_TRANSACTION = 24
_ABORT_TRANSACTION = 25
_OF_PARTITIONS = (_PARTITION, _PARTITION_CHANGE)
_LAST_PARTITION_VERSION = 2
_KNOWN = (
    _TOPIC,
    _CONFIG,
    _REMOVE_TOPIC,
    _FEATURE_LEVEL,
    *_OF_PARTITIONS,
    _BEGIN_TRANSACTION,
    _END_TRANSACTION,
    _ABORT_TRANSACTION,
)
# Tagged field of a PartitionChangeRecord.
_CHANGED_REPLICAS = 2

# ConfigResource.Type: whose setting a ConfigRecord is.
_RESOURCE_TOPIC = 2
_RESOURCE_BROKER = 4


class MetadataBatch(NamedTuple):
    """One record batch: its offsets, its size in bytes, and the values of its records (none of a control batch)."""

    base_offset: int
    last_offset: int
    size: int
    is_control: bool
    values: list[bytes]


@dataclass
class MetadataImage:
    """
    The state after all records so far.

    `topic_ids` maps a topic's name to its id, `replicas` an id to how many replicas each of its partitions has.
    `topic_configs` maps a topic's name, `broker_configs` a node id (or the
    empty string, for all brokers), to the settings given to it. `feature_levels` maps a feature's name, such as
    `metadata.version`, to its finalized level.
    """

    topic_ids: dict[str, UUID] = field(default_factory=dict)
    replicas: dict[UUID, dict[int, int]] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    feature_levels: dict[str, int] = field(default_factory=dict)
    _before_transaction: MetadataImage | None = field(default=None, repr=False, compare=False)

    def apply(self, value: bytes) -> None:
        """
        Apply the value of one record.

        Between the start and the end of a metadata transaction changes are provisional: an abort undoes them.

        Raises:
            ValueError: not a metadata record, or of a version that is not known here.
        """
        read = FieldReader(value)
        frame_version = read.varint()
        if frame_version != _FRAME_VERSION:
            raise ValueError(f"metadata record with frame version {frame_version}, only {_FRAME_VERSION} is known")
        api_key, version = read.varint(), read.varint()
        if api_key not in _KNOWN:
            return
        if api_key in _OF_PARTITIONS:
            # Only a warning depends on these: a later version is no reason to refuse the settings.
            if version <= _LAST_PARTITION_VERSION:
                self._count_replicas(read, is_change=api_key == _PARTITION_CHANGE)
            return
        if api_key == _FEATURE_LEVEL:
            # Settings do not depend on it either.
            if version == 0:
                name = read.text()
                self.feature_levels[name] = read.integer(2)
            return
        if version != 0:
            raise ValueError(f"metadata record of kind {api_key} with version {version}, only 0 is known")
        if api_key == _TOPIC:
            name = read.text()
            self.topic_ids[name] = read.uuid()
        elif api_key == _REMOVE_TOPIC:
            self._remove_topic(read.uuid())
        elif api_key == _CONFIG:
            self._change_config(read)
        elif api_key == _BEGIN_TRANSACTION:
            if self._before_transaction is not None:
                raise ValueError("a metadata transaction begins inside another")
            self._before_transaction = copy.deepcopy(self)
        elif api_key == _END_TRANSACTION:
            self._before_transaction = None
        else:
            self.drop_unfinished_transaction()

    def drop_unfinished_transaction(self) -> None:
        """Undo the changes of an open metadata transaction; also call it at the end of the log."""
        before = self._before_transaction
        if before is not None:
            self.topic_ids = before.topic_ids
            self.replicas = before.replicas
            self.topic_configs = before.topic_configs
            self.broker_configs = before.broker_configs
            self.feature_levels = before.feature_levels
            self._before_transaction = None

    def _remove_topic(self, topic_id: UUID) -> None:
        for name in [name for name, known_id in self.topic_ids.items() if known_id == topic_id]:
            del self.topic_ids[name]
            # The settings are deleted with the topic: a new topic of the same name starts without them.
            self.topic_configs.pop(name, None)
        self.replicas.pop(topic_id, None)

    def _count_replicas(self, read: FieldReader, *, is_change: bool) -> None:
        """Add a partition's replicas: the first list of a PartitionRecord, or a tagged field of a change."""
        partition, topic_id = read.integer(4), read.uuid()
        if is_change:
            replicas = read.tagged_fields().get(_CHANGED_REPLICAS)
            count = None if replicas is None else FieldReader(replicas).count()
        else:
            count = read.count()
        if count is not None:
            self.replicas.setdefault(topic_id, {})[partition] = count

    def _change_config(self, read: FieldReader) -> None:
        resource_type, resource, key, value = read.integer(1), read.text(), read.text(), read.nullable_text()
        if resource_type == _RESOURCE_TOPIC:
            settings = self.topic_configs.setdefault(resource, {})
        elif resource_type == _RESOURCE_BROKER:
            settings = self.broker_configs.setdefault(resource, {})
        else:
            return
        if value is None:
            settings.pop(key, None)
        else:
            settings[key] = value


def read_batch(data: memoryview, start: int) -> MetadataBatch | None:
    """
    Read the batch at `start`; None if the data ends before the batch.

    Raises:
        ValueError: the batch is bad: length, magic, checksum, codec or a record.
    """
    if len(data) - start < LOG_OVERHEAD_BYTES:
        return None
    size = size_of(data[start : start + LOG_OVERHEAD_BYTES])
    if not HEADER_BYTES <= size <= MAX_BATCH_BYTES:
        raise ValueError(f"a batch of {size} bytes")
    if len(data) - start < size:
        return None
    batch = data[start : start + size]
    base_offset, _, _, magic, crc, attributes, last_offset_delta, *_, count = HEADER.unpack_from(batch)
    if magic != MAGIC:
        raise ValueError(f"magic {magic}, only 2 is used for metadata")
    if crc32c(bytes(batch[CRC_FROM:])) != crc:
        raise ValueError("wrong CRC-32C")
    if attributes & COMPRESSION_MASK:
        raise ValueError("a compressed batch; metadata is never compressed")
    is_control = bool(attributes & CONTROL_FLAG)
    values = [] if is_control else _record_values(batch, count)
    return MetadataBatch(base_offset, base_offset + last_offset_delta, size, is_control, values)


def _record_values(batch: memoryview, count: int) -> list[bytes]:
    """Return the values of a batch's records; keys and headers are not used for metadata."""
    read = FieldReader(bytes(batch[HEADER_BYTES:]))
    values = []
    for _ in range(count):
        record = FieldReader(read.take(read.zigzag()))
        record.integer(1)
        record.zigzag()
        record.zigzag()
        key_length = record.zigzag()
        record.take(max(key_length, 0))
        values.append(record.take(record.zigzag()))
    return values
