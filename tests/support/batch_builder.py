"""
Builds record batches for tests, one function a kind: data of magic 2, markers, empty batches, magic 0 and 1.

It can build everything that Kafka writes, and much that Kafka does not (wrong counts, foreign attributes), because a
caller may override any header field. Slow and simple on purpose; it does not use `cleaner.format`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.support.codecs import CODEC_IDS, compress, crc32c

# Header of magic 2: baseOffset length partitionLeaderEpoch magic crc attributes lastOffsetDelta baseTimestamp
# maxTimestamp producerId producerEpoch baseSequence recordsCount.
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
assert HEADER.size == HEADER_BYTES

LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6
ABORT, COMMIT = 0, 1

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """
    One record of a batch under construction.

    `offset` None: one after the previous record's; `timestamp_ms` None: the batch's default.
    """

    key: bytes | None
    value: bytes | None
    offset: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()
    attributes: int = 0


class Producer(NamedTuple):
    """The producer fields of a batch; the default is no producer."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


NO_PRODUCER = Producer()


def varint(value: int) -> bytes:
    """Encode a signed number zig-zag, in 7-bit groups, low first (R-221)."""
    number = (value << 1) ^ (value >> 63)
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode one record of magic 2 (R-220)."""
    body = bytes([record.attributes]) + varint(timestamp_delta) + varint(offset_delta)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for name, content in record.headers:
        body += varint(len(name)) + name + _sized(content)
    return varint(len(body)) + body


def with_offsets(records: Iterable[Record], base_offset: int, timestamp_ms: int) -> list[Record]:
    """Fill in the offsets and timestamps left open."""
    placed: list[Record] = []
    following = base_offset
    for record in records:
        offset = following if record.offset is None else record.offset
        time = timestamp_ms if record.timestamp_ms is None else record.timestamp_ms
        placed.append(record._replace(offset=offset, timestamp_ms=time))
        following = offset + 1
    return placed


def data_batch(
    records: Sequence[Record],
    base_offset: int,
    *,
    timestamp_ms: int = 1_700_000_000_000,
    last_offset: int | None = None,
    codec: str = "none",
    producer: Producer = NO_PRODUCER,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = 0,
    control: bool = False,
    payload: bytes | None = None,
    overrides: Mapping[str, int] | None = None,
) -> bytes:
    """
    Build a batch of magic 2 with a correct CRC.

    Args:
        records: its records; may be empty.
        timestamp_ms: time of records without one.
        last_offset: defaults to the last record's; higher leaves a gap, as after a rewrite (R-572).
        append_time_ms: makes it a log-append-time batch with this time (R-222).
        delete_horizon_ms: sets bit 6 and replaces the base timestamp (R-573).
        payload: replaces the encoded (and compressed) records.
        overrides: `attributes`, `count`, `length`, `magic`, `crc`, `last_offset_delta`, `base_timestamp`,
            `max_timestamp`: written as given, the CRC computed over them unless given too.
    """
    placed = with_offsets(records, base_offset, timestamp_ms)
    times = [record.timestamp_ms or 0 for record in placed]
    base_time = delete_horizon_ms if delete_horizon_ms is not None else (times[0] if times else -1)
    max_time = max(times, default=timestamp_ms)
    attributes = CODEC_IDS[codec]
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_time = append_time_ms
    attributes |= TRANSACTIONAL if producer.transactional else 0
    attributes |= CONTROL if control else 0
    attributes |= DELETE_HORIZON if delete_horizon_ms is not None else 0
    last = last_offset if last_offset is not None else ((placed[-1].offset or 0) if placed else base_offset)
    if payload is None:
        body = b"".join(
            encode_record(record, (record.offset or 0) - base_offset, time - base_time)
            for record, time in zip(placed, times, strict=True)
        )
        payload = compress(codec, body) if placed else b""
    fields = {
        "attributes": attributes,
        "last_offset_delta": last - base_offset,
        "base_timestamp": base_time,
        "max_timestamp": max_time,
        "count": len(placed),
        "length": HEADER_BYTES - 12 + len(payload),
        "magic": 2,
    }
    fields.update(overrides or {})
    return _frame(base_offset, leader_epoch, fields, producer, payload)


def _frame(base_offset: int, leader_epoch: int, fields: Mapping[str, int], producer: Producer, payload: bytes) -> bytes:
    tail = struct.pack(
        ">hiqqqhii",
        fields["attributes"],
        fields["last_offset_delta"],
        fields["base_timestamp"],
        fields["max_timestamp"],
        producer.producer_id,
        producer.epoch,
        producer.base_sequence,
        fields["count"],
    )
    crc = fields.get("crc", crc32c(tail + payload))
    head = struct.pack(">qiibI", base_offset, fields["length"], leader_epoch, fields["magic"], crc)
    return head + tail + payload


def marker_batch(
    base_offset: int,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    leader_epoch: int = 0,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build the commit or abort marker of a transaction (R-230, R-231)."""
    key = struct.pack(">hh", 0, COMMIT if commit else ABORT)
    return data_batch(
        [Record(key, struct.pack(">hi", 0, coordinator_epoch))],
        base_offset,
        timestamp_ms=timestamp_ms,
        producer=Producer(producer_id, epoch, -1, True),
        leader_epoch=leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
        control=True,
    )


def empty_batch(
    base_offset: int,
    last_offset: int,
    *,
    max_timestamp_ms: int = 1_700_000_000_000,
    producer: Producer = NO_PRODUCER,
    leader_epoch: int = 0,
    control: bool = False,
    log_append_time: bool = False,
) -> bytes:
    """Build a batch without records, as cleaning leaves one to keep a sequence number (R-575)."""
    return data_batch(
        [],
        base_offset,
        last_offset=last_offset,
        producer=producer,
        leader_epoch=leader_epoch,
        control=control,
        append_time_ms=max_timestamp_ms if log_append_time else None,
        overrides={"base_timestamp": -1, "max_timestamp": max_timestamp_ms},
    )


def legacy_entry(
    offset: int, key: bytes | None, value: bytes | None, magic: int, timestamp_ms: int = -1, attributes: int = 0
) -> bytes:
    """Build one uncompressed entry of magic 0 or 1, or a wrapper around an already compressed value (R-240)."""
    payload = bytes([magic, attributes])
    if magic == 1:
        payload += struct.pack(">q", timestamp_ms)
    for part in (key, value):
        payload += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(payload) + 4, zlib.crc32(payload)) + payload


def legacy_batch(
    records: Sequence[Record],
    base_offset: int,
    magic: int,
    *,
    timestamp_ms: int = 1_700_000_000_000,
    codec: str = "none",
    append_time_ms: int | None = None,
) -> bytes:
    """
    Build entries of magic 0 or 1: one a record if uncompressed, else one wrapper around all (R-241..R-243).

    Inner offsets are absolute in a wrapper of magic 0 and relative to the first record in one of magic 1.
    """
    placed = with_offsets(records, base_offset, timestamp_ms)
    kind = CODEC_IDS[codec] | (LOG_APPEND_TIME if magic == 1 and append_time_ms is not None else 0)
    if codec == "none":
        return b"".join(
            legacy_entry(
                record.offset or 0,
                record.key,
                record.value,
                magic,
                (record.timestamp_ms or 0) if append_time_ms is None else append_time_ms,
                kind,
            )
            for record in placed
        )
    first, last = placed[0].offset or 0, placed[-1].offset or 0
    inner = b"".join(
        legacy_entry(
            (record.offset or 0) - (first if magic else 0), record.key, record.value, magic, record.timestamp_ms or 0
        )
        for record in placed
    )
    time = max(record.timestamp_ms or 0 for record in placed) if append_time_ms is None else append_time_ms
    return legacy_entry(last, None, compress(codec, inner, magic), magic, time, kind)
