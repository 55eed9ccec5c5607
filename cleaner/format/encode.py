"""
Encodes records into batches of magic 2, as Kafka's producer would build them from the same records.

The caller gives columns; they are joined and measured in bulk, so that no Python code runs for a single record, and a
kernel writes the records. A batch is full when the next record would take it, unpacked, beyond `batch_bytes`; a larger
record gets its own batch. Only the log knows base offset and leader epoch, which are outside a batch's checksum:
`place` fills them in afterwards, so that everything else can be done before the log is locked.

A batch of one record, as a marker is and what a caller appends who waits for each record, is joined in Python
(`single_batch`): columns pay from a few records on.

Source: rules R-210, R-211, R-220 to R-224, R-230, R-231, R-250 to R-254; `MemoryRecordsBuilder.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import compress
from cleaner.format.control import ControlType
from cleaner.format.varints import encode_varint
from cleaner.kernels import crc32c as checksum_kernel
from cleaner.kernels import encode as kernel
from cleaner.kernels.batch_header import (
    CONTROL_FLAG,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
)
from cleaner.kernels.codec_table import NONE

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_MAX_SEQUENCE = 2**31 - 1
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_NO_BYTES = np.frombuffer(b"", np.uint8)
_NO_HEADERS = encode_varint(0)
_FIRST_RECORD = bytes(3)  # of a batch: no attributes, and both deltas are 0
_ROOM_FOR_HEADER = bytes(HEADER_BYTES)

Field = bytes | bytearray | memoryview


class BatchProducer(NamedTuple):
    """The producer fields of a batch; the default is no producer (R-211)."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


NO_PRODUCER = BatchProducer()


class NewBatch(NamedTuple):
    """
    A built batch: its place in the buffer, and the facts that a log needs.

    `first_record` counts from the first record of the call; base offset and sequence follow from it.
    """

    start: int
    size: int
    first_record: int
    record_count: int
    max_timestamp: int


class Measured(NamedTuple):
    """What `measure_records` finds, in its order."""

    key_bytes: int
    value_bytes: int
    header_bytes: int
    null_keys: int
    largest_bytes: int
    first_timestamp: int
    last_timestamp: int


@dataclass(frozen=True)
class RecordArrays:
    """
    Records, joined and measured.

    Attributes:
        keys, values, headers: uint8, shape (bytes,), the bytes of all records, concatenated.
        key_lengths, value_lengths: int64, shape (records,), -1 for null.
        header_lengths: int64, shape (records,), of the encoded headers with their count; -1 for a record without.
        timestamps: int64, shape (records,), milliseconds.
    """

    keys: npt.NDArray[np.uint8]
    key_lengths: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]
    value_lengths: npt.NDArray[np.int64]
    headers: npt.NDArray[np.uint8]
    header_lengths: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]

    @cached_property
    def measured(self) -> Measured:
        """Sums and extremes, all from one pass: for a single record each pass of numpy's takes longer than a write."""
        found = np.empty(kernel.MEASURE_CELLS, np.int64)
        kernel.measure_records(self.key_lengths, self.value_lengths, self.header_lengths, self.timestamps, found)
        return Measured(*found.tolist())

    def __len__(self) -> int:
        return len(self.timestamps)


def join_columns(
    values: Sequence[Field | None],
    keys: Sequence[Field | None] | None,
    timestamps: int | Sequence[int] | npt.NDArray[np.int64],
    headers: Sequence[Sequence[tuple[str, Field | None]]] | None = None,
) -> RecordArrays:
    """
    Join and measure columns.

    Args:
        values, keys, headers: one for each record; None instead of a column: no record has one.
        timestamps: one for each record, or one for all; not negative.
    Raises:
        ValueError, TypeError: columns of different lengths, a negative timestamp, or a field that is not bytes.
    """
    count = len(values)
    value_bytes, value_lengths = _join(values)
    key_bytes, key_lengths = (_NO_BYTES, _filled(count, -1)) if keys is None else _join(keys)
    header_bytes, header_lengths = (
        (_NO_BYTES, _filled(count, kernel.NO_HEADERS)) if headers is None else _join_headers(headers)
    )
    times = _filled(count, timestamps) if isinstance(timestamps, int) else _times(timestamps)
    if not len(key_lengths) == len(header_lengths) == len(times) == count or times.ndim != 1:
        lengths = f"{count} values, {len(key_lengths)} keys, {times.size} timestamps, {len(header_lengths)} headers"
        raise ValueError(f"columns of different lengths: {lengths}")
    joined = RecordArrays(key_bytes, key_lengths, value_bytes, value_lengths, header_bytes, header_lengths, times)
    measured = joined.measured
    if measured[:2] != (len(key_bytes), len(value_bytes)):
        raise ValueError("a key or value that is not made of single bytes, or that changed while it was read")
    if count and measured.first_timestamp < 0:
        raise ValueError(f"a timestamp of {measured.first_timestamp}: it counts milliseconds since 1970")
    return joined


def _filled(count: int, number: int) -> npt.NDArray[np.int64]:
    numbers = np.empty(count, np.int64)
    numbers.fill(number)
    return numbers


def _times(timestamps: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    times = np.array(timestamps)
    if times.dtype.kind not in "iu" and times.size:
        raise TypeError("timestamps that are not integers")
    return times.astype(np.int64, copy=False)


def _join(fields: Sequence[Field | None]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    try:
        joined = b"".join(fields)  # type: ignore[arg-type]  # a null makes `join` fail: faster than a check
        lengths = np.fromiter(map(len, fields), np.int64, len(fields))  # type: ignore[arg-type]
    except TypeError:
        joined = b"".join([field for field in fields if field is not None])
        lengths = np.array([-1 if field is None else len(field) for field in fields], np.int64)
    return np.frombuffer(joined, np.uint8), lengths


def _join_headers(
    headers: Sequence[Sequence[tuple[str, Field | None]]],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    encoded = [encode_headers(each) if each else b"" for each in headers]
    lengths = [len(each) or kernel.NO_HEADERS for each in encoded]
    return np.frombuffer(b"".join(encoded), np.uint8), np.array(lengths, np.int64)


def encode_headers(headers: Collection[tuple[str, Field | None]]) -> bytes:
    """
    Return a record's headers with their count in front (R-220).

    Raises:
        TypeError, ValueError: a name that is no text or has no UTF-8 form, or a value that is not bytes; or an
            iterator, which nobody could read again to say what is wrong.
    """
    if not isinstance(headers, Collection):
        raise TypeError(f"headers are a sequence, not a {type(headers).__name__}")
    out = bytearray(encode_varint(len(headers)))
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is text, not {type(name).__name__}")
        key = name.encode()
        out += encode_varint(len(key)) + key
        if value is None:
            out += encode_varint(-1)
            continue
        if not isinstance(value, Field):
            raise TypeError(f"a header's value is bytes, not {type(value).__name__}")
        data = bytes(value)  # the length of a view counts items, which may be larger
        out += encode_varint(len(data)) + data
    return bytes(out)


def encode_batches(
    columns: RecordArrays,
    out: GrowingBuffer,
    *,
    codec: int = NONE,
    batch_bytes: int,
    append_time_ms: int | None = None,
    producer: BatchProducer = NO_PRODUCER,
    scratch: GrowingBuffer | None = None,
) -> list[NewBatch]:
    """
    Build batches of all records at the head of `out`, one after the other.

    Args:
        columns: the records.
        out: takes the batches; its old content is lost.
        codec: compression of a batch's records.
        batch_bytes: largest size of a batch with more than one record, unpacked, with its header.
        append_time_ms: gives the batches this log append time (R-222).
        producer: of the first batch; the sequence continues in the others.
        scratch: takes records before they are packed; needed with a codec.
    """
    batches: list[NewBatch] = []
    state = np.zeros(kernel.STATE_CELLS, np.int64)
    max_body = max(batch_bytes - HEADER_BYTES, 0)
    largest = max(max_body, columns.measured.largest_bytes + kernel.MAX_OVERHEAD_BYTES)
    attributes = _attributes(codec, append_time_ms is not None, producer.is_transactional)
    at = record = 0
    while record < len(columns):
        body = out if codec == NONE else _needed(scratch)
        body_at = at + HEADER_BYTES if codec == NONE else 0
        body.ensure(body_at + largest, keep=at if codec == NONE else 0)
        end = int(
            kernel.encode_records(
                columns.keys,
                columns.key_lengths,
                columns.values,
                columns.value_lengths,
                columns.headers,
                columns.header_lengths,
                columns.timestamps,
                state,
                body.array,
                body_at,
                max_body,
            )
        )
        if codec != NONE:
            end = at + HEADER_BYTES + compress(codec, body.view[:end], out, at + HEADER_BYTES)
        following = int(state[kernel.NEXT_RECORD])
        times = (int(columns.timestamps[record]), int(state[kernel.MAX_TIMESTAMP]))
        batch = NewBatch(
            at, end - at, record, following - record, times[1] if append_time_ms is None else append_time_ms
        )
        _write_header(out.view, out.array, batch, times[0], attributes, producer)
        batches.append(batch)
        at, record = end, following
    return batches


def _needed(scratch: GrowingBuffer | None) -> GrowingBuffer:
    if scratch is None:
        raise ValueError("a codec needs a second buffer")
    return scratch


def _attributes(codec: int, is_append_time: bool, is_transactional: bool) -> int:
    return codec | (TIMESTAMP_TYPE_FLAG if is_append_time else 0) | (TRANSACTIONAL_FLAG if is_transactional else 0)


def _write_header(
    data: memoryview | bytearray,
    array: npt.NDArray[np.uint8],
    batch: NewBatch,
    base_timestamp: int,
    attributes: int,
    producer: BatchProducer,
) -> None:
    """
    Write a header without offset and leader epoch, and the checksum; everything else must be in place.

    Args:
        data, array: the same memory.
    """
    start, size, first_record, record_count, max_timestamp = batch
    producer_id, epoch, sequence, _ = producer
    if sequence >= 0:
        sequence = (sequence + first_record) % (_MAX_SEQUENCE + 1)
    HEADER.pack_into(
        data,
        start,
        first_record,
        size - LOG_OVERHEAD_BYTES,
        -1,
        MAGIC,
        0,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        epoch,
        sequence,
        record_count,
    )
    _CRC.pack_into(data, start + CRC_AT, checksum_kernel.crc32c_range(array, start + CRC_FROM, start + size))


def place(data: memoryview, batches: Iterable[NewBatch], base_offset: int, leader_epoch: int) -> None:
    """Set the offsets and the leader epoch of batches, which no checksum covers."""
    for batch in batches:
        _BASE_OFFSET.pack_into(data, batch.start, base_offset + batch.first_record)
        _LEADER_EPOCH.pack_into(data, batch.start + LEADER_EPOCH_AT, leader_epoch)


def single_batch(
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    headers: Sequence[tuple[str, Field | None]] = (),
    *,
    append_time_ms: int | None = None,
    producer: BatchProducer = NO_PRODUCER,
) -> tuple[bytearray, NewBatch]:
    """
    Build a batch of one record, not compressed; the same as `encode_batches` makes, and quicker than its columns are.

    Raises:
        TypeError, ValueError: headers as in `encode_headers`.
    """
    attributes = _attributes(NONE, append_time_ms is not None, producer.is_transactional)
    encoded = encode_headers(headers) if headers else _NO_HEADERS
    max_timestamp = timestamp if append_time_ms is None else append_time_ms
    return _batch_of_one(key, value, encoded, timestamp, max_timestamp, attributes, producer)


def _batch_of_one(
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int,
    producer: BatchProducer,
) -> tuple[bytearray, NewBatch]:
    key_length = encode_varint(-1 if key is None else len(key))
    value_length = encode_varint(-1 if value is None else len(value))
    record = b"".join((_FIRST_RECORD, key_length, key or b"", value_length, value or b"", headers))
    data = bytearray().join((_ROOM_FOR_HEADER, encode_varint(len(record)), record))
    batch = NewBatch(0, len(data), 0, 1, max_timestamp)
    _write_header(data, np.frombuffer(data, np.uint8), batch, base_timestamp, attributes, producer)
    return data, batch


def marker_batch(
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    timestamp_ms: int,
    is_append_time: bool = False,
) -> tuple[bytearray, NewBatch]:
    """Return the marker that ends a transaction (R-230, R-231); call `place` on it."""
    key = _MARKER_KEY.pack(0, ControlType.COMMIT if commit else ControlType.ABORT)
    value = _MARKER_VALUE.pack(0, 0)
    attributes = CONTROL_FLAG | _attributes(NONE, is_append_time, is_transactional=True)
    producer = BatchProducer(producer_id, epoch)
    return _batch_of_one(key, value, _NO_HEADERS, timestamp_ms, timestamp_ms, attributes, producer)
