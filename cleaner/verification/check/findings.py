"""What a check has to say: one finding a place, of a kind whose name is kept for ever (`docs/check.md`)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class FindingKind(enum.Enum):
    """What is wrong; the values are names in JSON, fixed for ever."""

    BATCH_LENGTH = "batch-length"
    BATCH_MAGIC = "batch-magic"
    BATCH_CUT_OFF = "batch-cut-off"
    BATCH_CHECKSUM = "batch-checksum"
    BATCH_HEADER = "batch-header"
    BATCH_OFFSETS = "batch-offsets"
    BATCH_STREAM = "batch-stream"
    BATCH_TOO_LARGE = "batch-too-large"
    BATCH_RECORDS = "batch-records"
    BATCH_TRANSACTION = "batch-transaction"
    TORN_END = "torn-end"
    INDEX_MISSING = "index-missing"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epochs"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    CHECKPOINT = "checkpoint"
    FOREIGN_FILE = "foreign-file"
    FOREIGN_DIRECTORY = "foreign-directory"
    LEFTOVER = "leftover"
    SKIPPED = "skipped"
    UNREADABLE = "unreadable"
    KEY_TWICE = "key-twice"
    PARTITION_TWICE = "partition-twice"
    CHECKPOINT_LINE_TWICE = "checkpoint-line-twice"
    CLUSTER_DIFFERS = "cluster-differs"
    NODE_DIFFERS = "node-differs"
    DIRECTORY_ID_TWICE = "directory-id-twice"
    TOPIC_ID_DIFFERS = "topic-id-differs"


BATCH_KINDS = frozenset(
    (
        FindingKind.BATCH_LENGTH,
        FindingKind.BATCH_MAGIC,
        FindingKind.BATCH_CUT_OFF,
        FindingKind.BATCH_CHECKSUM,
        FindingKind.BATCH_HEADER,
        FindingKind.BATCH_OFFSETS,
        FindingKind.BATCH_STREAM,
        FindingKind.BATCH_TOO_LARGE,
        FindingKind.BATCH_RECORDS,
        FindingKind.BATCH_TRANSACTION,
    )
)
"""Damage to a `.log`: what is in it no longer says what its indexes should be."""


@dataclass(frozen=True)
class Finding:
    """
    Something that is not as it should be.

    Attributes:
        kind: what.
        path: the file or directory.
        reason: in words; never a byte of a key or value.
        position: byte position in the file; None where it is about the whole.
        offset: the batch's base offset, or the record's; None where it cannot be told.
        is_damage: False for what the next start of a broker, or `cleaner recover`, settles by itself.
    """

    kind: FindingKind
    path: Path
    reason: str
    position: int | None = None
    offset: int | None = None
    is_damage: bool = True


OnFinding = Callable[[Finding], None]
