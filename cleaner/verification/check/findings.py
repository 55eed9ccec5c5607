"""The findings of a check: one for each place, of a kind whose name never changes (`docs/check.md`)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class FindingKind(enum.Enum):
    """The kind of a finding; the values are names in JSON, which never change."""

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
    UNCLEANABLE = "uncleanable"
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
"""Damage to a `.log`: its indexes can no longer be derived from it."""


@dataclass(frozen=True)
class Finding:
    """
    One problem that a check found.

    Attributes:
        kind: of the problem.
        path: the file or directory.
        reason: in words; never a byte of a key or value.
        position: byte position in the file; None if it concerns the whole file.
        offset: the batch's base offset, or the record's offset; None if it is unknown.
        is_damage: False if the next start of a broker, or `cleaner recover`, fixes it.
    """

    kind: FindingKind
    path: Path
    reason: str
    position: int | None = None
    offset: int | None = None
    is_damage: bool = True


OnFinding = Callable[[Finding], None]
