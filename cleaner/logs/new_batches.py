"""
Records made into the batches of one topic: packed as it says, none larger than it allows.

Done before the log is locked, in buffers that a thread keeps for its next append.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.config import TopicConfig
from cleaner.errors import KeylessRecordError, RecordTooLargeError, UsageError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import CODEC_NAMES, NONE
from cleaner.format.encode import (
    NO_PRODUCER,
    BatchProducer,
    Columns,
    NewBatch,
    encode_batches,
    join_columns,
    marker_batch,
)
from cleaner.logs.record import ProducerStamp, Record, RecordColumns

BATCH_BYTES = 64 << 10
"""A batch is full then, unpacked. Larger ones hardly pack better, and who reads one record has to unpack them all."""

_KEPT_BUFFER_BYTES = 16 << 20
_UNCOMPRESSED = ("producer", "uncompressed")  # what a producer packs with by default is nothing
LOG_APPEND_TIME = "LogAppendTime"


class _Buffers(threading.local):
    """What a thread encodes into."""

    def __init__(self) -> None:
        self.batches = GrowingBuffer()
        self.records = GrowingBuffer()


_buffers = _Buffers()


@dataclass(frozen=True)
class NewBatches:
    """
    Batches that are to be appended, without offsets yet.

    Attributes:
        data: the memory they are in.
        batches: where; at least one, one behind the other.
        record_count: of all.
        append_time_ms: their log append time, None where records have times of their own.
    """

    data: memoryview
    batches: Sequence[NewBatch]
    record_count: int
    append_time_ms: int | None


def build_batches(
    where: str,
    records: Sequence[Record] | RecordColumns,
    topic: TopicConfig,
    *,
    now_ms: int,
    batch_bytes: int,
    producer: ProducerStamp | None,
) -> NewBatches:
    """
    Build the batches of an append; they lie in this thread's buffer until it builds others, or `let_go`.

    Args:
        where: the partition, for errors.
        batch_bytes: what a batch of several records may take unpacked.
        producer: with the sequence of the first record.
    Raises:
        UsageError: no records, columns of different lengths, or what is not bytes.
        KeylessRecordError, RecordTooLargeError: see there.
    """
    columns = _join(records, now_ms)
    if topic.compact and columns.has_null_keys:
        row = int(columns.key_lengths.argmin())
        raise KeylessRecordError(where, f"record {row} has no key, and the topic is compacted")
    append_time_ms = now_ms if topic.message_timestamp_type == LOG_APPEND_TIME else None
    stamp = NO_PRODUCER if producer is None else BatchProducer(*producer)
    batches = _encode(where, columns, topic, append_time_ms, stamp, batch_bytes)
    return NewBatches(_buffers.batches.view, batches, len(columns), append_time_ms)


def let_go() -> None:
    """Give the memory of a very large append back."""
    _buffers.batches.shrink(_KEPT_BUFFER_BYTES)
    _buffers.records.shrink(_KEPT_BUFFER_BYTES)


def build_marker(producer_id: int, epoch: int, topic: TopicConfig, *, commit: bool, now_ms: int) -> NewBatches:
    """Build the marker that ends a transaction."""
    append_time_ms = now_ms if topic.message_timestamp_type == LOG_APPEND_TIME else None
    data = marker_batch(
        producer_id, epoch, commit=commit, timestamp_ms=now_ms, is_append_time=append_time_ms is not None
    )
    return NewBatches(memoryview(data), [NewBatch(0, len(data), 0, 1, now_ms)], 1, append_time_ms)


def _join(records: Sequence[Record] | RecordColumns, now_ms: int) -> Columns:
    if not len(records):
        raise UsageError("an append without records")
    try:
        columns = records if isinstance(records, RecordColumns) else RecordColumns.of(records, now_ms)
        times = now_ms if columns.timestamps_ms is None else columns.timestamps_ms
        return join_columns(columns.values, columns.keys, times, columns.headers)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"records that cannot be appended: {error}") from error


def _encode(
    where: str,
    columns: Columns,
    topic: TopicConfig,
    append_time_ms: int | None,
    producer: BatchProducer,
    batch_bytes: int,
) -> list[NewBatch]:
    """Build the batches, with fewer records in each where packing has made one larger than the topic allows."""
    name = topic.compression_type
    codec = NONE if name in _UNCOMPRESSED else CODEC_NAMES.index(name)
    # A segment takes no batch larger than itself either, as in Kafka.
    most_bytes = min(topic.max_message_bytes, topic.segment_bytes)
    room = min(batch_bytes, most_bytes)
    while True:
        batches = encode_batches(
            columns,
            _buffers.batches,
            codec=codec,
            batch_bytes=room,
            append_time_ms=append_time_ms,
            producer=producer,
            scratch=_buffers.records,
        )
        largest = max(batches, key=_size)
        if largest.size <= most_bytes:
            return batches
        for batch in batches:
            if batch.size > most_bytes and batch.record_count == 1:
                limit = "max.message.bytes" if most_bytes == topic.max_message_bytes else "segment.bytes"
                raise RecordTooLargeError(
                    where, f"record {batch.first_record} makes a batch of {batch.size} bytes; {limit} is {most_bytes}"
                )
        room //= 2


def _size(batch: NewBatch) -> int:
    return batch.size
