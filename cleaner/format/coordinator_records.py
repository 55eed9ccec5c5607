"""
Writes the records of Kafka's coordinators that this project keeps, too: committed offsets, and transactions.

    __consumer_offsets     group, topic, partition  ->  the next offset to read
    __transaction_state    transactional id         ->  producer, state, and the partitions of its transaction

Their tables are in `group_messages.py` and `other_messages.py`, by which they are read. Written are the oldest versions
that say all there is to say: every broker since 2.1 reads them.

Source: `GroupCoordinatorRecordHelpers.java`, `TransactionLog.scala`, `TransactionMetadata.java`, `Utils.java` (abs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from cleaner.base.model import TopicPartition
from cleaner.format.fields import FieldReader
from cleaner.format.group_messages import GROUP_RECORDS
from cleaner.format.message_schema import UnknownVersionError, parse_table, read_key
from cleaner.format.other_messages import TRANSACTION_RECORDS

CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"

_COMMIT_KEY, _COMMIT_VALUE = 1, 3
_TRANSACTION_KEY, _TRANSACTION_VALUE = 0, 0
_NO_EPOCH = -1
_LONGEST_TEXT = 2**15 - 1


class TransactionStatus(IntEnum):
    """Kafka's states of a transaction, by their numbers on disk."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


@dataclass(frozen=True)
class TransactionRecord:
    """
    What a transaction log says of a transactional id.

    Attributes:
        status: one of `TransactionStatus`, or a number that only later releases know.
        version: of the client's transactions: from 2 on, a prepared end has the epoch after that of the data.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: int
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int
    version: int = 0

    def key(self) -> bytes:
        """Return the record's key."""
        return struct.pack(">h", _TRANSACTION_KEY) + _text(self.transactional_id)

    def value(self) -> bytes:
        """Return the record's value."""
        head = struct.pack(">hqhib", _TRANSACTION_VALUE, self.producer_id, self.epoch, self.timeout_ms, self.status)
        return head + _grouped(self.partitions) + struct.pack(">qq", self.updated_ms, self.started_ms)

    @staticmethod
    def read(key: bytes | None, value: bytes) -> TransactionRecord | None:
        """
        Read a record; None: of a type or version that is not known, which a broker passes over, too.

        Raises:
            ValueError: the bytes are no such record.
        """
        table = parse_table(TRANSACTION_RECORDS)
        try:
            _, fields = read_key(table, key)
            data = FieldReader(value)
            body = None if fields is None else table["value", 0].read(data, data.integer(2))
        except UnknownVersionError:
            return None
        if fields is None or body is None:
            return None
        partitions = {
            TopicPartition(each["topic"], number)
            for each in body["transactionPartitions"] or ()
            for number in each["partitionIds"]
        }
        return TransactionRecord(
            fields["transactionalId"],
            body["producerId"],
            body["producerEpoch"],
            body["transactionTimeoutMs"],
            body["transactionStatus"],
            frozenset(partitions),
            body["transactionLastUpdateTimestampMs"],
            body["transactionStartTimestampMs"],
            body.get("clientTransactionVersion", 0),
        )


def commit_key(group: str, partition: TopicPartition) -> bytes:
    """Return the key of a committed offset."""
    number = struct.pack(">i", partition.partition)
    return struct.pack(">h", _COMMIT_KEY) + _text(group) + _text(partition.topic) + number


def commit_value(offset: int, metadata: str, now_ms: int) -> bytes:
    """Return the value of a committed offset."""
    head = struct.pack(">hqi", _COMMIT_VALUE, offset, _NO_EPOCH)
    return head + _text(metadata) + struct.pack(">q", now_ms)


def read_commit(key: bytes | None, value: bytes) -> tuple[str, TopicPartition, int, str] | None:
    """
    Return group, partition, offset and metadata of a committed offset; None: a record of another kind.

    Raises:
        ValueError: the bytes are no such record.
    """
    table = parse_table(GROUP_RECORDS)
    try:
        number, fields = read_key(table, key)
        if fields is None or number > _COMMIT_KEY:
            return None
        data = FieldReader(value)
        body = table["value", number].read(data, data.integer(2))
    except UnknownVersionError:
        return None
    partition = TopicPartition(fields["topic"], fields["partition"])
    return fields["group"], partition, body["offset"], body["metadata"]


def coordinator_partition(name: str, partition_count: int) -> int:
    """Return the partition of a coordinator's topic that has a group or a transactional id."""
    units = name.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = hashed * 31 + int.from_bytes(units[at : at + 2], "big") & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > _LONGEST_TEXT:
        raise ValueError(f"{len(data)} bytes, Kafka's texts have at most {_LONGEST_TEXT}")
    return struct.pack(">h", len(data)) + data


def _grouped(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the partitions of a transaction, by topic."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    written = [_text(topic) + struct.pack(f">i{len(ids)}i", len(ids), *ids) for topic, ids in topics.items()]
    return struct.pack(">i", len(written)) + b"".join(written)
