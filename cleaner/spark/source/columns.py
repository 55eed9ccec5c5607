"""
The columns of a log as a DataFrame: those of Spark's own Kafka source, and on request fields of a record's batch.

Source: Spark's `KafkaRecordToRowConverter.scala` for the first eight; the others by the names of `kafka-dump-log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BAD_BATCH: Final = "badBatch"
"""The column in which `badBatches=report` reports damage; null in all rows that are records."""

HEADERS: Final = "headers"

_KAFKA: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_HEADERS: Final = {HEADERS: "array<struct<key:string,value:binary>>"}

# Fields of the batch that holds the record: column of BATCH_DTYPE, and type.
BATCH_FIELDS: Final = {
    "batchBaseOffset": ("base_offset", "bigint"),
    "batchLastOffset": ("last_offset", "bigint"),
    "batchPosition": ("position", "bigint"),
    "batchSize": ("size", "bigint"),
    "batchMaxTimestamp": ("max_timestamp", "bigint"),
    "magic": ("magic", "int"),
    "producerId": ("producer_id", "bigint"),
    "producerEpoch": ("producer_epoch", "int"),
    "baseSequence": ("base_sequence", "int"),
    "partitionLeaderEpoch": ("leader_epoch", "int"),
}
# Computed from a batch's attributes, or from its place.
_OTHERS: Final = {"compression": "string", "isTransactional": "boolean", "file": "string"}
_REPORT: Final = {BAD_BATCH: "struct<file:string,position:bigint,reason:string>"}

TYPES: Final = _KAFKA | _HEADERS | {name: kind for name, (_, kind) in BATCH_FIELDS.items()} | _OTHERS | _REPORT
"""The type of each column, in Spark's words."""

SELECTABLE: Final = tuple(name for name in TYPES if name != BAD_BATCH)
"""The columns that a query may name."""


def usual_columns(*, headers: bool) -> tuple[str, ...]:
    """Return the columns of Spark's Kafka source; headers only if `headers` is set."""
    return (*_KAFKA, *(_HEADERS if headers else ()))


def ddl(columns: Sequence[str]) -> str:
    """Return a schema in Spark's words."""
    return ", ".join(f"`{name}` {TYPES[name]}" for name in columns)
