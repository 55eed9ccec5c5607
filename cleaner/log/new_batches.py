"""
Records made into the batches of one topic: compressed as its settings say, none larger than they allow.

This is done before the log is locked, in buffers that a thread keeps for its next append. A single record that is as
records mostly are needs no columns and has memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cleaner.base import concurrency
from cleaner.base.clock import require_set
from cleaner.config.values import TopicConfig
from cleaner.errors import ClockError, InvalidTimestampError, KeylessRecordError, RecordTooLargeError, UsageError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.encode import (
    NO_PRODUCER,
    BatchProducer,
    NewBatch,
    RecordArrays,
    encode_batches,
    join_columns,
    marker_batch,
    single_batch,
)
from cleaner.kernels.codec_table import CODEC_NAMES, NONE
from cleaner.log.record import ProducerStamp, Record, RecordColumns, Records, as_records, checked_columns

_MAX_EXPANSION = 16  # a producer's batch may take this many times the limit uncompressed, if it compresses well enough

_KEPT_BUFFER_BYTES = 16 << 20
_UNCOMPRESSED = ("producer", "uncompressed")  # a producer's default is no compression
_PLAIN = (bytes, type(None))
_ODD_RECORDS = (AttributeError, TypeError, ValueError, OverflowError, BufferError)
_MAX_LONG = 2**63 - 1
LOG_APPEND_TIME = "LogAppendTime"


class _Buffers:
    """Memory that an append is encoded into."""

    def __init__(self) -> None:
        self.batches = GrowingBuffer()
        self.records = GrowingBuffer()


# The buffers kept for the thread's next append. Taken out while in use: a signal handler that appends, to any log, runs
# in the middle of another append of its thread, and must not overwrite what that has encoded.
_kept = concurrency.local()


def _take_buffers() -> _Buffers:
    buffers: _Buffers | None = _kept.__dict__.pop("buffers", None)
    return _Buffers() if buffers is None else buffers


class NewBatches(NamedTuple):
    """
    Batches that are to be appended, without offsets yet.

    Attributes:
        data: the memory they are in.
        batches: their places in it; at least one, in order and without gaps.
        record_count: of all batches.
        append_time_ms: their log append time; None if records have their own times.
        buffers: the owner of the memory, kept for the next append; None: it is not reused.
    """

    data: memoryview
    batches: Sequence[NewBatch]
    record_count: int
    append_time_ms: int | None
    buffers: _Buffers | None = None

    def return_buffers(self) -> None:
        """Give the memory to the thread's next append, unless it is very large; the batches are no longer valid."""
        if self.buffers is not None:
            self.buffers.batches.shrink(_KEPT_BUFFER_BYTES)
            self.buffers.records.shrink(_KEPT_BUFFER_BYTES)
            _kept.buffers = self.buffers


def build_batches(
    where: str,
    records: Records,
    topic: TopicConfig,
    *,
    now_ms: int,
    batch_bytes: int | None,
    producer: ProducerStamp | None,
) -> NewBatches:
    """
    Build the batches of an append; call `return_buffers` when they are written.

    One batch where the topic's limit allows it, so that no crash leaves a part of it. A producer outside of
    transactions gets one batch or an error, as from Kafka: its repeats are recognised by batch.

    Args:
        where: the partition, for errors.
        batch_bytes: the most that a batch of several records may take unpacked; None: the topic's limit.
        producer: with the sequence of the first record.
    Raises:
        ClockError: the clock was not set.
        UsageError: no records, columns of different lengths, or values that are not bytes; names record and field.
        KeylessRecordError, InvalidTimestampError, RecordTooLargeError: see there.
    """
    single = _build_single(records, topic, now_ms, producer)
    if single is not None:
        return single
    columns = _join(records, require_set(now_ms))
    if topic.compact and columns.measured.null_keys:
        row = int(columns.key_lengths.argmin())
        raise KeylessRecordError(where, f"record {row} has no key, and the topic is compacted")
    append_time_ms = now_ms if topic.message_timestamp_type == LOG_APPEND_TIME else None
    if append_time_ms is None:
        _check_times(where, columns, topic, now_ms)
    stamp = _batch_producer(producer)
    whole = producer is not None and not producer.is_transactional
    buffers = _take_buffers()
    batches = _encode(where, columns, topic, append_time_ms, stamp, batch_bytes, buffers, whole=whole)
    return NewBatches(buffers.batches.view, batches, len(columns), append_time_ms, buffers)


def _build_single(
    records: Records, topic: TopicConfig, now_ms: int, producer: ProducerStamp | None
) -> NewBatches | None:
    """
    Build the batch of a single record; None: it takes columns.

    Columns take several times as long as one write. But they decide all that is unusual: what is compressed, converted
    or refused.
    """
    record = records[0] if isinstance(records, list | tuple) and len(records) == 1 else records
    if type(record) is not Record or topic.compression_type not in _UNCOMPRESSED or now_ms <= 0:
        return None
    key, value, time = record.key, record.value, record.timestamp_ms
    if type(value) not in _PLAIN or type(key) not in _PLAIN or (key is None and topic.compact):
        return None
    if time is None:
        time = now_ms
    elif type(time) is not int or not _earliest(topic, now_ms) <= time <= _latest(topic, now_ms):
        return None
    append_time_ms = now_ms if topic.message_timestamp_type == LOG_APPEND_TIME else None
    stamp = _batch_producer(producer)
    try:
        data, batch = single_batch(key, value, time, record.headers, append_time_ms=append_time_ms, producer=stamp)
    except _ODD_RECORDS:
        return None
    if batch.size > _max_bytes(topic):
        return None
    return NewBatches(memoryview(data), (batch,), 1, append_time_ms)


def _batch_producer(producer: ProducerStamp | None) -> BatchProducer:
    return NO_PRODUCER if producer is None else BatchProducer(*producer)


def _earliest(topic: TopicConfig, now_ms: int) -> int:
    return max(now_ms - topic.message_timestamp_before_max_ms, 0)


def _latest(topic: TopicConfig, now_ms: int) -> int:
    return min(now_ms + topic.message_timestamp_after_max_ms, _MAX_LONG)


def _max_bytes(topic: TopicConfig) -> int:
    """Return the size of the largest batch: a segment takes none larger than itself either, as in Kafka."""
    return min(topic.max_message_bytes, topic.segment_bytes)


def _check_times(where: str, columns: RecordArrays, topic: TopicConfig, now_ms: int) -> None:
    """Refuse records whose times are too far off, as Kafka does; the two limits count from the log's clock."""
    earliest, latest = _earliest(topic, now_ms), _latest(topic, now_ms)
    times, measured = columns.timestamps, columns.measured
    if measured.first_timestamp < earliest or measured.last_timestamp > latest:
        row = int(times.argmin() if measured.first_timestamp < earliest else times.argmax())
        limit = "before" if int(times[row]) < earliest else "after"
        raise InvalidTimestampError(
            where,
            f"record {row} is of {int(times[row])}, which is not within {earliest} and {latest}: "
            f"message.timestamp.{limit}.max.ms",
        )


def build_marker(producer_id: int, epoch: int, topic: TopicConfig, *, commit: bool, now_ms: int) -> NewBatches:
    """
    Build the marker that ends a transaction.

    Its time may be the first moment of 1970, from a clock that was not set: a log must be closed in order even then.

    Raises:
        ClockError: `now_ms` is before 1970.
    """
    if now_ms < 0:
        raise ClockError
    append_time_ms = now_ms if topic.message_timestamp_type == LOG_APPEND_TIME else None
    data, batch = marker_batch(
        producer_id, epoch, commit=commit, timestamp_ms=now_ms, is_append_time=append_time_ms is not None
    )
    return NewBatches(memoryview(data), (batch,), 1, append_time_ms)


def _join(records: Records, now_ms: int) -> RecordArrays:
    given = as_records(records)
    try:
        joined = _join_columns(given if isinstance(given, RecordColumns) else RecordColumns.of(given, now_ms), now_ms)
    except _ODD_RECORDS:
        # Only now is each record checked: for an error to report, or a form that can be converted.
        columns = checked_columns(given, now_ms)
        try:
            joined = _join_columns(columns, now_ms)
        except _ODD_RECORDS as error:
            raise UsageError(f"records that cannot be appended: {error}") from error
    if not len(joined):
        raise UsageError("an append without records")
    return joined


def _join_columns(columns: RecordColumns, now_ms: int) -> RecordArrays:
    times = now_ms if columns.timestamps_ms is None else columns.timestamps_ms
    return join_columns(columns.values, columns.keys, times, columns.headers)


def _encode(
    where: str,
    columns: RecordArrays,
    topic: TopicConfig,
    append_time_ms: int | None,
    producer: BatchProducer,
    batch_bytes: int | None,
    buffers: _Buffers,
    *,
    whole: bool,
) -> list[NewBatch]:
    """Build the batches, with fewer records in each if compression has made one larger than the topic allows."""
    name = topic.compression_type
    codec = NONE if name in _UNCOMPRESSED else CODEC_NAMES.index(name)
    max_bytes = _max_bytes(topic)
    room = _MAX_EXPANSION * max_bytes if whole else min(batch_bytes or max_bytes, max_bytes)
    while True:
        batches = encode_batches(
            columns,
            buffers.batches,
            codec=codec,
            batch_bytes=room,
            append_time_ms=append_time_ms,
            producer=producer,
            scratch=buffers.records,
        )
        limit = "max.message.bytes" if max_bytes == topic.max_message_bytes else "segment.bytes"
        largest = max(batches, key=_size)
        if whole and (len(batches) > 1 or largest.size > max_bytes):
            size = sum(map(_size, batches))
            raise RecordTooLargeError(
                where,
                f"{len(columns)} records of a producer make a batch of {size} bytes; {limit} is {max_bytes}. Append "
                "fewer at a time, or in a transaction",
            )
        if largest.size <= max_bytes:
            return batches
        for batch in batches:
            if batch.size > max_bytes and batch.record_count == 1:
                raise RecordTooLargeError(
                    where, f"record {batch.first_record} makes a batch of {batch.size} bytes; {limit} is {max_bytes}"
                )
        room //= 2


def _size(batch: NewBatch) -> int:
    return batch.size
