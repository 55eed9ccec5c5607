"""Magic 0 and 1 as input: every layout against a slow decoder, and hostile bytes."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.format import compression
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressionError, LegacyFormatError
from cleaner.format.legacy import CREATE_TIME, LOG_APPEND_TIME, LegacyBatch, convert_legacy
from cleaner.kernels.codec_table import GZIP, LZ4, NONE, SNAPPY

pytestmark = pytest.mark.kernels

LIMIT_BYTES = 1 << 20
APPEND_TIME_FLAG = 8


class Record(NamedTuple):
    """What a reader of either format sees."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _entry(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
) -> bytes:
    """Lay out one entry of magic 0 or 1 (R-240)."""
    fields = bytes([magic, attributes]) + (struct.pack(">q", timestamp) if magic else b"")
    fields += _field(key) + _field(value)
    return struct.pack(">qiI", offset, len(fields) + 4, zlib.crc32(fields)) + fields


def _wrapper(
    offset: int, entries: bytes, *, magic: int = 1, codec: int = 1, attributes: int = 0, timestamp: int = 5000
) -> bytes:
    """Pack entries into one compressed batch (R-241)."""
    out = GrowingBuffer()
    length = compression.compress(codec, memoryview(entries), out, 0)
    value = bytes(out.view[:length])
    if codec == LZ4 and magic == 0:
        value = value[:6] + b"\x1a" + value[7:]  # the historical check byte
    return _entry(offset, None, value, magic=magic, attributes=codec | attributes, timestamp=timestamp)


def _convert(entry: bytes, limit_bytes: int = LIMIT_BYTES) -> tuple[LegacyBatch, bytes]:
    out, scratch = GrowingBuffer(8), GrowingBuffer(8)
    out.view[:5] = b"ahead"
    batch = convert_legacy(memoryview(bytearray(entry)), out, 5, limit_bytes, scratch)
    assert bytes(out.view[:5]) == b"ahead"
    return batch, bytes(out.view[5 : 5 + batch.length])


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while body[at] > 127:
        value |= (body[at] & 127) << shift
        shift += 7
        at += 1
    value |= body[at] << shift
    return value >> 1 ^ -(value & 1), at + 1


def _varint_bytes(value: int) -> bytes:
    left = (value << 1 ^ value >> 63) & (2**64 - 1)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _read_records(batch: LegacyBatch, body: bytes) -> list[Record]:
    """Read records of magic 2 (R-220), slowly, and check that every number has its shortest form (R-221)."""
    records: list[Record] = []
    at = 0
    while at < len(body):
        start = at
        size, at = _varint(body, at)
        stop = at + size
        assert body[at] == 0
        timestamp_delta, at = _varint(body, at + 1)
        offset_delta, at = _varint(body, at)
        fields: list[bytes | None] = []
        for _ in range(2):
            length, at = _varint(body, at)
            fields.append(None if length < 0 else body[at : at + length])
            at += max(length, 0)
        assert body[at:stop] == b"\x00"
        numbers = b"\x00" + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
        parts = [_varint_bytes(-1 if field is None else len(field)) + (field or b"") for field in fields]
        rebuilt = numbers + b"".join(parts) + b"\x00"
        assert body[start:stop] == _varint_bytes(len(rebuilt)) + rebuilt
        records.append(Record(batch.base_offset + offset_delta, batch.base_timestamp + timestamp_delta, *fields))
        at = stop
    assert len(records) == batch.count
    return records


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"k1", b"v1", id="key-and-value"),
        pytest.param(b"k1", None, id="tombstone"),
        pytest.param(None, b"v1", id="keyless"),
        pytest.param(b"", b"", id="empty-is-not-null"),
        pytest.param(b"k" * 200, b"v" * 70_000, id="long"),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_entry_becomes_one_record(magic: int, key: bytes | None, value: bytes | None) -> None:
    """An entry is a batch of one record; magic 0 has no timestamp (R-240, R-243, R-578)."""
    batch, body = _convert(_entry(77, key, value, magic=magic, timestamp=1234))
    timestamp = 1234 if magic else -1
    expected = LegacyBatch(77, 77, timestamp, timestamp, CREATE_TIME, 1, NONE, len(body))
    assert batch == expected
    assert _read_records(batch, body) == [Record(77, timestamp, key, value)]


@pytest.mark.parametrize(
    ("magic", "expected"),
    [pytest.param(0, CREATE_TIME, id="magic-0-has-none"), pytest.param(1, LOG_APPEND_TIME, id="magic-1")],
)
def test_uncompressed_entry_keeps_its_timestamp_type(magic: int, expected: int) -> None:
    """Log append time stays what it is; the bit means nothing in magic 0 (R-578)."""
    batch, _ = _convert(_entry(3, b"k", b"v", magic=magic, attributes=APPEND_TIME_FLAG))
    assert batch.timestamp_type == expected


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_wrapper_of_magic_0_has_absolute_offsets(codec: int) -> None:
    """Inner offsets are taken as they are, gaps included (R-242)."""
    inner = _entry(10, b"a", b"1", magic=0) + _entry(13, b"b", None, magic=0) + _entry(14, None, b"3", magic=0)
    batch, body = _convert(_wrapper(14, inner, magic=0, codec=codec))
    assert batch == LegacyBatch(10, 14, -1, -1, CREATE_TIME, 3, codec, len(body))
    expected = [Record(10, -1, b"a", b"1"), Record(13, -1, b"b", None), Record(14, -1, None, b"3")]
    assert _read_records(batch, body) == expected


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_wrapper_of_magic_1_has_relative_offsets_and_own_timestamps(codec: int) -> None:
    """The wrapper carries the last offset; its timestamp is not believed for create time (R-242, R-578)."""
    inner = _entry(0, b"a", b"1", timestamp=900) + _entry(2, b"b", b"2", timestamp=700)
    batch, body = _convert(_wrapper(52, inner, codec=codec, timestamp=9999))
    assert batch == LegacyBatch(50, 52, 900, 900, CREATE_TIME, 2, codec, len(body))
    assert _read_records(batch, body) == [Record(50, 900, b"a", b"1"), Record(52, 700, b"b", b"2")]


def test_wrapper_with_log_append_time_gives_it_to_its_records() -> None:
    """Inner timestamps count for nothing then (R-243, R-578)."""
    inner = _entry(0, b"a", b"1", timestamp=1) + _entry(1, b"b", b"2", timestamp=2)
    batch, body = _convert(_wrapper(8, inner, attributes=APPEND_TIME_FLAG, timestamp=5000))
    assert batch == LegacyBatch(7, 8, 5000, 5000, LOG_APPEND_TIME, 2, GZIP, len(body))
    assert [record.timestamp for record in _read_records(batch, body)] == [5000, 5000]


def test_mixed_set_gives_inner_magic_0_no_timestamp_and_inner_magic_1_its_own() -> None:
    """R-578's rule for sets of both magics, in wrappers of either."""
    inner = _entry(0, b"a", b"1", magic=0) + _entry(1, b"b", b"2", magic=1, timestamp=600)
    for magic, offset in ((0, 1), (1, 21)):
        batch, body = _convert(_wrapper(offset, inner, magic=magic))
        assert [record.timestamp for record in _read_records(batch, body)] == [-1, 600]
        assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (-1, 600, CREATE_TIME)


def test_mixed_set_with_log_append_time_spares_inner_magic_0() -> None:
    """Only records of magic 1 take the wrapper's time; the batch's maximum is the wrapper's (R-578)."""
    inner = _entry(0, b"a", b"1", magic=0) + _entry(1, b"b", b"2", magic=1, timestamp=600)
    batch, body = _convert(_wrapper(1, inner, attributes=APPEND_TIME_FLAG, timestamp=5000))
    assert [record.timestamp for record in _read_records(batch, body)] == [-1, 5000]
    assert batch.max_timestamp == 5000


def test_wrapper_at_offset_0_counts_from_0() -> None:
    """Some versions of librdkafka left the wrapper's offset at 0 (R-242)."""
    batch, _ = _convert(_wrapper(0, _entry(0, b"a", b"1") + _entry(1, b"b", b"2")))
    assert (batch.base_offset, batch.last_offset) == (0, 1)


@pytest.mark.parametrize("cut", [1, 20, 25, 30])
def test_last_inner_entry_cut_off_is_dropped(cut: int) -> None:
    """As in Kafka, silently (R-241)."""
    inner = _entry(0, b"a", b"1") + _entry(1, b"b", b"2")
    batch, body = _convert(_wrapper(9, inner[:-cut]))
    assert _read_records(batch, body) == [Record(9, 1000, b"a", b"1")]


def test_timestamps_at_both_ends_of_their_range_survive() -> None:
    """Deltas wrap as Kafka's do, and wrap back (R-578)."""
    lowest, highest = -(2**63), 2**63 - 1
    inner = _entry(0, b"a", b"1", timestamp=lowest) + _entry(1, b"b", b"2", timestamp=highest)
    batch, body = _convert(_wrapper(1, inner))
    second = body[1 + _varint(body, 0)[0] :]
    delta, _ = _varint(second, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (lowest, highest)
    assert (lowest + delta - highest) % 2**64 == 0


@pytest.mark.parametrize("negative", [-2, -(2**31)])
def test_key_and_value_of_any_negative_length_are_null(negative: int) -> None:
    """Kafka asks for the sign only."""
    entry = bytearray(_entry(4, None, None))
    entry[26:30] = entry[30:34] = struct.pack(">i", negative)
    batch, body = _convert(bytes(entry))
    assert _read_records(batch, body) == [Record(4, 1000, None, None)]


def _resized(entry: bytes, size: int) -> bytes:
    return entry[:8] + struct.pack(">i", size) + entry[12:]


def _with_length(entry: bytes, position: int, length: int) -> bytes:
    return entry[:position] + struct.pack(">i", length) + entry[position + 4 :]


_GOOD = _entry(0, b"key", b"value")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(_GOOD[:25], "25 bytes", id="shorter-than-any-entry"),
        pytest.param(_resized(_entry(0, None, None)[:33], 21), "33 bytes", id="magic-1-in-33-bytes"),
        pytest.param(_GOOD + b"x", "size 30", id="size-not-its-own"),
        pytest.param(_GOOD[:16] + b"\x02" + _GOOD[17:], "magic 2", id="magic-2"),
        pytest.param(_GOOD[:16] + b"\xff" + _GOOD[17:], "magic 255", id="magic-negative"),
        pytest.param(_with_length(_GOOD, 26, 9), "value is longer", id="key-into-value-length"),
        pytest.param(_with_length(_GOOD, 26, 100), "key is longer", id="key-past-end"),
        pytest.param(_with_length(_GOOD, 26, 2**31 - 1), "key is longer", id="key-of-2-gib"),
        pytest.param(_with_length(_GOOD, 33, 6), "value is longer", id="value-past-end"),
        pytest.param(_with_length(_GOOD, 33, 2**31 - 1), "value is longer", id="value-of-2-gib"),
        pytest.param(_entry(-1, b"k", b"v"), "negative", id="negative-offset"),
        pytest.param(_entry(0, None, None, attributes=1), "without a value", id="wrapper-without-value"),
        pytest.param(_wrapper(0, b""), "no whole record", id="wrapper-of-nothing"),
        pytest.param(_wrapper(0, _GOOD[:-1]), "no whole record", id="wrapper-of-a-cut-entry"),
        pytest.param(_wrapper(0, _resized(_GOOD, 13)), "below 14", id="inner-size-13"),
        pytest.param(_wrapper(0, _resized(_GOOD, -5)), "below 14", id="inner-size-negative"),
        pytest.param(_wrapper(0, _GOOD[:16] + b"\x02" + _GOOD[17:]), "unknown magic", id="inner-magic-2"),
        pytest.param(_wrapper(0, _wrapper(0, _GOOD)), "compressed record within", id="nested"),
        pytest.param(_wrapper(0, _entry(0, b"k", b"v", attributes=7)), "compressed record", id="nested-codec-7"),
        pytest.param(_wrapper(9, _GOOD + _GOOD), "not above", id="inner-offset-twice"),
        pytest.param(_wrapper(9, _entry(1, b"k", b"v") + _GOOD), "not above", id="inner-offsets-back"),
        pytest.param(_wrapper(9, _entry(-3, b"k", b"v")), "negative", id="inner-offset-negative"),
        pytest.param(_wrapper(2**40, _GOOD + _entry(2**31, b"k", b"v")), "apart", id="inner-offsets-far-apart"),
        pytest.param(_wrapper(4, _entry(5, b"k", b"v")), "below that of its last", id="wrapper-below-inner"),
        pytest.param(_wrapper(4, _entry(5, b"k", b"v"), magic=0), "below that of", id="wrapper-of-magic-0-below-inner"),
    ],
)
def test_legacy_batch_damaged_is_refused(entry: bytes, reason: str) -> None:
    """Lengths, nesting and offsets that cannot be are named (R-241, R-242)."""
    with pytest.raises(LegacyFormatError, match=reason):
        _convert(entry)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(_entry(0, None, b"not gzip", attributes=1), id="not-gzip"),
        pytest.param(_entry(0, None, b"\x28\xb5\x2f\xfd\x00\x00\x01\x00\x00", attributes=4), id="zstd"),
        pytest.param(_entry(0, None, b"data", attributes=5), id="unknown-codec"),
        pytest.param(_entry(0, None, b"", attributes=3), id="empty-value"),
        pytest.param(_wrapper(0, bytes(LIMIT_BYTES + 1)), id="bomb"),
    ],
)
def test_wrapper_with_a_bad_stream_is_refused(entry: bytes) -> None:
    """Damaged streams, zstd and bombs do not pass (R-241)."""
    with pytest.raises(DecompressionError):
        _convert(entry)


def test_check_byte_of_lz4_is_ignored_in_magic_0_and_enforced_in_magic_1() -> None:
    """Old producers wrote 0x1a (R-252)."""
    inner = _entry(0, b"k", b"v")
    old = bytearray(_wrapper(0, inner, magic=0, codec=LZ4))
    assert b"\x04\x22\x4d\x18\x60\x40\x1a" in old
    assert _convert(bytes(old))[0].count == 1
    new = _wrapper(0, inner, magic=1, codec=LZ4)
    with pytest.raises(DecompressionError, match="check byte"):
        _convert(new.replace(b"\x60\x40\x82", b"\x60\x40\x1a"))


_FIELDS = st.one_of(st.none(), st.binary(max_size=200))
_TIMESTAMPS = st.integers(-(2**62), 2**62)
_INNER = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 1), _TIMESTAMPS, _FIELDS, _FIELDS), min_size=1)


@settings(max_examples=150)
@given(_INNER, st.integers(0, 1), st.integers(1, 3), st.booleans(), st.integers(0, 2**40), _TIMESTAMPS)
def test_wrapper_of_any_entries_equals_slow_decoder(
    inner: list[tuple[int, int, int, bytes | None, bytes | None]],
    magic: int,
    codec: int,
    appended: bool,
    start: int,
    append_time: int,
) -> None:
    """Offsets, timestamps, keys and values are those that R-241 to R-243 and R-578 say, in the shortest encoding."""
    offset = start if magic == 0 else -1
    entries, expected = b"", []
    for step, inner_magic, timestamp, key, value in inner:
        offset += step
        entries += _entry(offset, key, value, magic=inner_magic, timestamp=timestamp)
        own = append_time if appended and magic == 1 else timestamp
        expected.append(Record(offset, own if inner_magic else -1, key, value))
    if magic == 1:
        expected = [record._replace(offset=record.offset + start + 1) for record in expected]
    wrapper = _wrapper(
        expected[-1].offset, entries, magic=magic, codec=codec, attributes=8 * appended, timestamp=append_time
    )
    batch, body = _convert(wrapper)
    assert _read_records(batch, body) == expected
    assert (batch.base_offset, batch.last_offset) == (expected[0].offset, expected[-1].offset)
    largest = max(record.timestamp for record in expected)
    assert batch.max_timestamp == (append_time if appended and magic == 1 else largest)


@settings(max_examples=300)
@given(st.binary(max_size=120), st.integers(0, 1), st.integers(0, 7))
def test_random_entry_is_converted_or_refused(fields: bytes, magic: int, codec: int) -> None:
    """No bytes behind a sound frame make it fail in another way."""
    payload = bytes([magic, codec]) + fields
    entry = struct.pack(">qiI", 5, len(payload) + 4, 0) + payload
    try:
        batch, body = _convert(entry)
    except (LegacyFormatError, DecompressionError):
        return
    assert len(_read_records(batch, body)) == batch.count


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5), st.integers(0, 60))
def test_inner_entries_mutated_are_converted_or_refused(mutations: list[tuple[int, int]], cut: int) -> None:
    """Entries with bytes changed or cut off, properly packed again, fail in no other way."""
    inner = bytearray(b"".join(_entry(i, b"key%d" % i, b"value" * i, magic=i & 1) for i in range(6)))
    for position, byte in mutations:
        inner[position % len(inner)] = byte
    try:
        batch, body = _convert(_wrapper(2**40, bytes(inner[: len(inner) - cut])))
    except (LegacyFormatError, DecompressionError):
        return
    assert len(_read_records(batch, body)) == batch.count
