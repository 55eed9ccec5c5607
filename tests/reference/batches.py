"""Record batches taken apart and put together again (R-201..R-243, R-570..R-579). Sound batches only."""

from __future__ import annotations

import codecs as python_codecs
import struct
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.codecs import compress, crc32c, decompress

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, LOG_APPEND_TIME = 0, 1
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Unbuildable(Exception):
    """Kafka's builder refuses these records (R-576), or an empty batch of magic 0 or 1 (R-546)."""


class AboveLimit(Exception):
    """Kafka 4.4 refuses a record of a compressed batch (R-511). Carries the records before it, if it has read them."""

    def __init__(self, before: list[Rec]) -> None:
        self.before = before
        super().__init__("a record above max.decompressed.message.bytes")


class Rec(NamedTuple):
    """One record, offsets and timestamps absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """A batch's bytes and header. Of a compressed wrapper of magic 0 or 1 only the last offset is known."""

    raw: bytes
    position: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: str
    timestamp_type: int
    transactional: bool
    control: bool
    delete_horizon: int | None
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


def wrap_64(number: int) -> int:
    """Keep 64 bits, as Java's long arithmetic does."""
    return (number + 2**63) % 2**64 - 2**63


def wrap_32(number: int) -> int:
    """Keep 32 bits, as Java's int arithmetic does."""
    return (number + 2**31) % 2**32 - 2**31


def read_batches(log: bytes) -> list[Batch]:
    """Take a `.log` apart; stops at an incomplete last entry (R-202)."""
    found = []
    position = 0
    while len(log) - position > 17:
        size = struct.unpack_from(">i", log, position + 8)[0] + 12
        if size < 26:
            raise ValueError(f"batch of {size} bytes at {position}")
        if position + size > len(log):
            break
        found.append(_read_batch(log[position : position + size], position))
        position += size
    return found


def _read_batch(raw: bytes, position: int) -> Batch:
    magic = raw[16]
    if magic < 2:
        (offset,) = struct.unpack_from(">q", raw)
        time = struct.unpack_from(">q", raw, 18)[0] if magic == 1 else -1
        return Batch(
            raw, position, magic, offset, offset, -1, CODECS[raw[17] & 7], (raw[17] >> 3) & 1 if magic else 0,
            False, False, None, time, time, -1, -1, -1, 1,
        )  # fmt: skip
    base, _, leader, _, _, attributes, delta, base_time, max_time, pid, epoch, sequence, count = _HEADER.unpack_from(
        raw
    )
    return Batch(
        raw, position, magic, base, base + delta, leader, CODECS[attributes & 7], (attributes >> 3) & 1,
        bool(attributes & 16), bool(attributes & 32), base_time if attributes & 64 else None, base_time, max_time,
        pid, epoch, sequence, count,
    )  # fmt: skip


def read_records(batch: Batch, limit: int | None = None) -> list[Rec]:
    """
    Return the records of a batch (R-212, R-222) or the entries of a legacy one (R-240..R-243).

    Args:
        limit: the most bytes that a record of a compressed batch may have; None for any number. Raises AboveLimit.
    """
    if batch.codec == "none":
        limit = None
    if batch.magic < 2:
        return _legacy_records(batch, limit)
    if batch.count == 0:
        return []
    data = decompress(batch.codec, batch.raw[61:])
    found = []
    at = 0
    for _ in range(batch.count):
        length, at = _varint(data, at)
        if limit is not None and length > limit:
            raise AboveLimit(found)
        time_delta, at = _varint(data, at + 1)
        offset_delta, at = _varint(data, at)
        key, at = _sized(data, at)
        value, at = _sized(data, at)
        header_count, at = _varint(data, at)
        headers = []
        for _ in range(header_count):
            name, at = _sized(data, at)
            content, at = _sized(data, at)
            headers.append((_java_text(name or b""), content))
        time = wrap_64(batch.base_timestamp + time_delta)
        if batch.timestamp_type == LOG_APPEND_TIME:
            time = batch.max_timestamp
        found.append(Rec(batch.base_offset + offset_delta, time, key, value, tuple(headers)))
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last record")
    return found


def _legacy_records(batch: Batch, limit: int | None) -> list[Rec]:
    key, value = _legacy_content(batch.raw, batch.magic)
    if batch.codec == "none":
        return [Rec(batch.last_offset, batch.max_timestamp, key, value)]
    inner = []
    data = decompress(batch.codec, value or b"")
    at = 0
    while at < len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        if limit is not None and size > limit:
            raise AboveLimit([])  # Kafka reads all entries before it gives out the first
        entry = data[at : at + size + 12]
        time = -1
        if entry[16] == 1:
            time = struct.unpack_from(">q", entry, 18)[0]
            if batch.timestamp_type == LOG_APPEND_TIME:
                time = batch.max_timestamp
        inner.append(Rec(offset, time, *_legacy_content(entry, entry[16])))
        at += size + 12
    base = 0
    if batch.magic == 1 and batch.last_offset != 0:
        base = batch.last_offset - inner[-1].offset
    return [record._replace(offset=base + record.offset) for record in inner]


def _legacy_content(entry: bytes, magic: int) -> tuple[bytes | None, bytes | None]:
    at = 26 if magic == 1 else 18
    parts: list[bytes | None] = []
    for _ in range(2):
        (size,) = struct.unpack_from(">i", entry, at)
        at += 4
        parts.append(None if size < 0 else entry[at : at + size])
        at += max(size, 0)
    return parts[0], parts[1]


def rebuild(batch: Batch, kept: list[Rec], delete_horizon: int) -> bytes:
    """
    Build the batch of the kept records, magic 2 (R-570..R-578).

    Args:
        delete_horizon: milliseconds; negative for none.
    """
    legacy = batch.magic < 2
    base_offset = kept[0].offset if legacy else batch.base_offset
    last_offset = kept[-1].offset if legacy else batch.last_offset
    if not legacy:
        _check_producer(batch)
    base_time = delete_horizon if delete_horizon >= 0 else kept[0].timestamp
    max_time = -1
    body = b""
    previous = None
    for record in kept:
        if previous is not None and record.offset <= previous:
            raise Unbuildable("offsets must increase")
        if record.timestamp < -1:
            raise Unbuildable(f"timestamp {record.timestamp}")
        if record.offset - base_offset > 2**31 - 1:
            raise Unbuildable("offset delta too large")
        previous = record.offset
        max_time = max(max_time, record.timestamp)
        body += _encode(record, wrap_64(record.timestamp - base_time), wrap_32(record.offset - base_offset))
    if batch.timestamp_type == LOG_APPEND_TIME:
        max_time = batch.max_timestamp
    attributes = CODECS.index(batch.codec) | batch.timestamp_type << 3 | (64 if delete_horizon >= 0 else 0)
    attributes |= batch.transactional << 4 | batch.control << 5
    return _assemble(
        batch, base_offset, attributes, last_offset - base_offset, base_time, max_time, len(kept),
        compress(batch.codec, body),
    )  # fmt: skip


def rebuild_empty(batch: Batch) -> bytes:
    """Build the 61 bytes that keep a batch's place when its records are gone (R-575)."""
    if batch.magic < 2:
        raise Unbuildable("empty batches need magic 2")
    attributes = batch.timestamp_type << 3 | batch.transactional << 4 | batch.control << 5
    delta = batch.last_offset - batch.base_offset
    return _assemble(batch, batch.base_offset, attributes, delta, -1, batch.max_timestamp, 0, b"")


def _check_producer(batch: Batch) -> None:
    if batch.transactional and batch.producer_id == -1:
        raise Unbuildable("transactional without a producer")
    if batch.producer_id != -1 and batch.producer_epoch == -1:
        raise Unbuildable("producer without an epoch")
    if batch.producer_id != -1 and batch.base_sequence < 0 and not batch.control:
        raise Unbuildable("producer without a sequence")


def _assemble(
    batch: Batch, base: int, attributes: int, delta: int, base_time: int, max_time: int, count: int, payload: bytes
) -> bytes:
    tail = struct.pack(
        ">hiqqqhii", attributes, delta, base_time, max_time, batch.producer_id, batch.producer_epoch,
        batch.base_sequence, count,
    )  # fmt: skip
    covered = tail + payload
    return struct.pack(">qiibI", base, len(covered) + 9, batch.leader_epoch, 2, crc32c(covered)) + covered


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _put_varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    number %= 2**64
    out = b""
    while number > 0x7F:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def _put_sized(data: bytes | None) -> bytes:
    return _put_varint(-1) if data is None else _put_varint(len(data)) + data


def _encode(record: Rec, time_delta: int, offset_delta: int) -> bytes:
    body = b"\x00" + _put_varint(time_delta) + _put_varint(offset_delta)
    body += _put_sized(record.key) + _put_sized(record.value) + _put_varint(len(record.headers))
    for name, content in record.headers:
        body += _put_sized(name) + _put_sized(content)
    return _put_varint(len(body)) + body


def _one_replacement(error: UnicodeError) -> tuple[str, int]:
    """An encoded surrogate, whole or cut short, becomes one replacement character in Java and several in Python."""
    assert isinstance(error, UnicodeDecodeError)
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        end = start + 2
        if end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return "\ufffd", end


python_codecs.register_error("one-replacement", _one_replacement)


def _java_text(name: bytes) -> bytes:
    """R-223: a header's name is decoded as UTF-8 and encoded again."""
    return name.decode("utf-8", errors="one-replacement").encode()
