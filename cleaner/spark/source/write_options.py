"""The options of `df.write.format("kafkalog")`, and the columns a DataFrame must have for it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cleaner.errors import UsageError
from cleaner.kernels.codec_table import CODEC_NAMES
from cleaner.spark.source.options import choice, given_options, number, size
from cleaner.storage.files.kafka_uuid import parse_uuid

WRITE_DEFAULTS: Final = {
    "path": "",
    "topic": "",
    "numPartitions": "1",
    "compression": "none",
    "segmentBytes": "1g",
    "batchBytes": "64k",
    "meta": "write",
    "clusterId": "",
    "nodeId": "",
    "topicIds": "",
}
"""Every option of a write, with the text of its default."""

TAKEN: Final = ("key", "value", "topic", "partition", "timestamp", "headers")
"""The columns that are written."""
IGNORED: Final = ("offset", "timestampType")
"""Columns that a read has, and that the log assigns itself in a write."""

_MAX_SEGMENT_BYTES = 2**31 - 1
_MAX_PARTITIONS = 1 << 20


@dataclass(frozen=True)
class WriteOptions:
    """
    What to write, and how.

    Attributes:
        path: the log dir.
        topic: for rows without a topic; None: every row has one.
        partition_count: of a topic; the key chooses the partition of a row without one.
        codec: number of the compression.
        segment_bytes: size of a full segment.
        batch_bytes: size of a full batch, unpacked.
        writes_meta: write `meta.properties` and `partition.metadata`.
        cluster_id, node_id: for `meta.properties`; None: the directory's own if it has them, else new.
        topic_ids: for `partition.metadata`; other topics get new ones.
    """

    path: str
    topic: str | None
    partition_count: int
    codec: int
    segment_bytes: int
    batch_bytes: int
    writes_meta: bool
    cluster_id: str | None
    node_id: int | None
    topic_ids: dict[str, uuid.UUID]


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """
    Parse the options of a write.

    Raises:
        UsageError: an unknown option, or an invalid text.
    """
    texts = given_options(options, WRITE_DEFAULTS)
    if not texts["path"].startswith("/"):
        raise UsageError(f"kafkalog needs the whole path of a log dir, not {texts['path']!r}: save('/data/kafka')")
    segment_bytes = size(texts, "segmentBytes", 1024)
    if segment_bytes > _MAX_SEGMENT_BYTES:
        raise UsageError(f"segmentBytes={texts['segmentBytes']}: a segment has at most {_MAX_SEGMENT_BYTES} bytes")
    partition_count = number(texts, "numPartitions", 1)
    if partition_count > _MAX_PARTITIONS:
        raise UsageError(f"numPartitions={partition_count}: at most {_MAX_PARTITIONS}")
    return WriteOptions(
        path=texts["path"],
        topic=texts["topic"] or None,
        partition_count=partition_count,
        codec=CODEC_NAMES.index(choice(texts, "compression", CODEC_NAMES)),
        segment_bytes=segment_bytes,
        batch_bytes=size(texts, "batchBytes", 1),
        writes_meta=choice(texts, "meta", ("write", "leave")) == "write",
        cluster_id=texts["clusterId"] or None,
        node_id=number(texts, "nodeId", 0) if texts["nodeId"] else None,
        topic_ids=_topic_ids(texts["topicIds"]),
    )


def _topic_ids(text: str) -> dict[str, uuid.UUID]:
    try:
        found = json.loads(text or "{}")
        return {topic: parse_uuid(topic_id) for topic, topic_id in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        reason = 'must be JSON with Kafka\'s ids, as {"prices": "IvGBsEpRQHy0e2ZFbihfbw"}'
        raise UsageError(f"topicIds={text}: {reason}") from error


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """
    Refuse a DataFrame that cannot be written as a log.

    Args:
        columns: names and types, as Spark writes them.
        topic: of the option, None without it.
    Raises:
        UsageError: a column is missing, unknown, or of the wrong type.
    """
    for name, kind in columns.items():
        if name in IGNORED:
            continue
        if name not in TAKEN:
            raise UsageError(f"there is no place for column {name!r} in a log; select {', '.join(TAKEN)}")
        if not any(re.fullmatch(allowed, kind) for allowed in _TYPES[name]):
            raise UsageError(f"column {name!r} is of type {kind}; it must be {_TYPES[name][0]}")
    if "value" not in columns:
        raise UsageError("a log needs a column 'value'")
    if "topic" not in columns and topic is None:
        raise UsageError("a log needs a column 'topic', or the option topic=NAME")


_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "key": ("binary", "string", "void"),
    "value": ("binary", "string", "void"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": (r"array<struct<key:string,value:binary>>", r"array<struct<.*:string,.*:binary>>"),
}
