"""Reading one record: every limit that a producer could exceed (R-220, R-221)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.batch import BATCH_DTYPE
from cleaner.kernels.records import (
    RECORD_BAD_END,
    RECORD_BAD_HEADERS,
    RECORD_BAD_KEY,
    RECORD_BAD_LENGTH,
    RECORD_BAD_VALUE,
    RECORD_BAD_VARINT,
    RECORD_GOOD,
    find_record_above,
    read_record,
    read_varint,
    skip_headers,
)
from tests.support.batch_builder import Header, Record, encode_record, varint
from tests.unit.kernels.arrays import padded

pytestmark = pytest.mark.kernels

MIN_INT, MAX_INT = -(2**31), 2**31 - 1
MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1
INT_EDGES = [0, -1, 1, 63, -64, 64, -65, 8191, -8192, 8192, -8193, 1 << 20, MIN_INT, MAX_INT]
LONG_EDGES = [*INT_EDGES, 1 << 40, -(1 << 40), 1 << 62, MIN_LONG, MAX_LONG, MIN_LONG + 1, MAX_LONG - 1]


def read(data: bytes, max_bytes: int, end: int | None = None) -> tuple[int, int, bool]:
    """Read a varint at the head of `data`."""
    value, at, shortest = read_varint(padded(data), 0, len(data) if end is None else end, max_bytes)
    return int(value), int(at), bool(shortest)


@pytest.mark.parametrize("value", INT_EDGES)
def test_varint_at_int_edges_is_read_back(value: int) -> None:
    """Numbers of every width, both signs, to the limits of an int."""
    assert read(varint(value), 5) == (value, len(varint(value)), True)


@pytest.mark.parametrize("value", LONG_EDGES)
def test_varint_at_long_edges_is_read_back(value: int) -> None:
    """Numbers of every width, both signs, to the limits of a long."""
    assert read(varint(value), 10) == (value, len(varint(value)), True)


@given(st.integers(MIN_LONG, MAX_LONG))
def test_varint_of_any_long_is_read_back(value: int) -> None:
    """Writer and reader agree."""
    assert read(varint(value), 10) == (value, len(varint(value)), True)


@pytest.mark.parametrize(
    ("value", "size"), [(value, size) for value in (0, -1, 5, 100) for size in range(len(varint(value)) + 1, 6)]
)
def test_varint_longer_than_needed_is_read_and_reported(value: int, size: int) -> None:
    """Legal, though Kafka never writes it: the value is right, but a rewrite would change the bytes."""
    short = varint(value)
    long = short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (size - len(short) - 1) + b"\0"
    assert len(long) == size
    assert read(long, 5) == (value, size, False)


@pytest.mark.parametrize(
    ("data", "max_bytes"),
    [
        pytest.param(b"", 5, id="nothing"),
        pytest.param(b"\x80", 5, id="cut-after-one"),
        pytest.param(b"\xff\xff\xff\xff", 5, id="cut-after-four"),
        pytest.param(b"\xff\xff\xff\xff\x8f", 5, id="int-of-six-bytes"),
        pytest.param(b"\xff\xff\xff\xff\x8f\x00", 5, id="int-of-six-bytes-complete"),
        pytest.param(b"\xff\xff\xff\xff\x10", 5, id="int-of-33-bits"),
        pytest.param(b"\xff\xff\xff\xff\x7f", 5, id="int-of-35-bits"),
        pytest.param(b"\xff" * 9, 10, id="long-cut-after-nine"),
        pytest.param(b"\xff" * 9 + b"\x02", 10, id="long-of-65-bits"),
        pytest.param(b"\xff" * 9 + b"\x81\x00", 10, id="long-of-eleven-bytes"),
    ],
)
def test_varint_too_long_or_cut_off_is_refused(data: bytes, max_bytes: int) -> None:
    """Bits that would be lost, and numbers that do not end in time."""
    assert read(data, max_bytes)[1] == -1


def test_varint_is_not_read_beyond_its_end() -> None:
    """Bytes after the end do not belong to it."""
    for max_bytes in (5, 10):
        assert read(b"\x81\x01", max_bytes, end=1)[1] == -1
        assert read(b"\x01", max_bytes, end=0)[1] == -1


@given(st.binary(min_size=1, max_size=12), st.sampled_from([5, 10]))
def test_varint_of_random_bytes_equals_slow_reading(data: bytes, max_bytes: int) -> None:
    """Any bytes: the value, the end and whether it was the shortest form, as arithmetic on integers has them."""
    number, used = 0, 0
    for used, byte in enumerate(data[:max_bytes], 1):
        number |= (byte & 0x7F) << 7 * (used - 1)
        if byte < 0x80:
            break
    bits = 32 if max_bytes == 5 else 64
    if data[used - 1] >= 0x80 or number >> bits:
        assert read(data, max_bytes)[1] == -1
    else:
        value = (number >> 1) ^ -(number & 1)
        assert read(data, max_bytes) == (value, used, varint(value) == data[:used])


def record_status(data: bytes, end: int | None = None) -> int:
    """Return the status of the record at the head of `data`."""
    return int(read_record(padded(data), 0, len(data) if end is None else end)[0])


def test_record_fields_are_found() -> None:
    """All values that later steps need: deltas, the key's place, sizes, and where the copied part begins."""
    data = encode_record(Record(b"key", b"value"), 7, -300)
    status, after, time_delta, offset_delta, tail, key_start, key_size, value_size, plain = read_record(
        padded(data), 0, len(data)
    )
    assert (status, after, time_delta, offset_delta, plain) == (RECORD_GOOD, len(data), -300, 7, True)
    assert data[tail:key_start] == varint(3)
    assert data[key_start : key_start + key_size] == b"key"
    assert value_size == 5


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_record_null_and_empty_fields_differ(key: bytes | None, value: bytes | None) -> None:
    """A null has size -1, an empty field 0 (R-224)."""
    data = encode_record(Record(key, value), 0, 0)
    found = read_record(padded(data), 0, len(data))
    sizes = [-1 if part is None else len(part) for part in (key, value)]
    assert [found[6], found[7]] == sizes


def body(content: bytes, size: int | None = None) -> bytes:
    """Frame a record's content; `size` gives it a false length."""
    return varint(len(content) if size is None else size) + content


# attributes, time delta, offset delta
START = b"\0\0\0"
FIELDS = START + varint(1) + b"k" + varint(1) + b"v"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\xff\xff\xff\xff\x7f", RECORD_BAD_VARINT, id="length-overflow"),
        pytest.param(b"\x80", RECORD_BAD_VARINT, id="length-cut-off"),
        pytest.param(body(FIELDS + b"\0", -1), RECORD_BAD_LENGTH, id="length-negative"),
        pytest.param(body(b""), RECORD_BAD_LENGTH, id="length-zero"),
        pytest.param(body(FIELDS + b"\0", 9), RECORD_BAD_LENGTH, id="length-past-batch"),
        pytest.param(body(FIELDS + b"\0", MAX_INT), RECORD_BAD_LENGTH, id="length-huge"),
        pytest.param(body(b"\0"), RECORD_BAD_VARINT, id="only-attributes"),
        pytest.param(body(b"\0\0"), RECORD_BAD_VARINT, id="no-offset-delta"),
        pytest.param(body(b"\0" + b"\xff" * 9 + b"\x02\0"), RECORD_BAD_VARINT, id="time-delta-overflow"),
        pytest.param(body(b"\0\0" + b"\xff" * 4 + b"\x10"), RECORD_BAD_VARINT, id="offset-delta-overflow"),
        pytest.param(body(START), RECORD_BAD_KEY, id="no-key-length"),
        pytest.param(body(START + varint(-2) + b"\1\0"), RECORD_BAD_KEY, id="key-length-below-null"),
        pytest.param(body(START + varint(3) + b"kk"), RECORD_BAD_KEY, id="key-past-record"),
        pytest.param(body(START + varint(MAX_INT)), RECORD_BAD_KEY, id="key-length-huge"),
        pytest.param(body(START + varint(1) + b"k"), RECORD_BAD_VALUE, id="no-value-length"),
        pytest.param(
            body(START + varint(1) + b"k" + varint(-2) + b"\0"), RECORD_BAD_VALUE, id="value-length-below-null"
        ),
        pytest.param(body(START + varint(1) + b"k" + varint(2) + b"v"), RECORD_BAD_VALUE, id="value-past-record"),
        pytest.param(body(FIELDS), RECORD_BAD_HEADERS, id="no-header-count"),
        pytest.param(body(FIELDS + varint(-1)), RECORD_BAD_HEADERS, id="header-count-negative"),
        pytest.param(body(FIELDS + varint(1)), RECORD_BAD_HEADERS, id="header-count-above-bytes"),
        pytest.param(body(FIELDS + varint(MAX_INT) + b"\0\0"), RECORD_BAD_HEADERS, id="header-count-huge"),
        pytest.param(body(FIELDS + varint(1) + varint(-1) + b"\0"), RECORD_BAD_HEADERS, id="header-key-null"),
        pytest.param(body(FIELDS + varint(1) + varint(9) + b"h"), RECORD_BAD_HEADERS, id="header-key-past-record"),
        pytest.param(body(FIELDS + varint(1) + varint(1) + b"h"), RECORD_BAD_HEADERS, id="header-value-missing"),
        pytest.param(
            body(FIELDS + varint(1) + varint(0) + varint(-2)), RECORD_BAD_HEADERS, id="header-value-below-null"
        ),
        pytest.param(
            body(FIELDS + varint(1) + varint(0) + varint(1)), RECORD_BAD_HEADERS, id="header-value-past-record"
        ),
        pytest.param(body(FIELDS + b"\0\0"), RECORD_BAD_END, id="bytes-left-over"),
        pytest.param(
            body(FIELDS + varint(1) + varint(0) + varint(0) + b"\0"), RECORD_BAD_END, id="left-over-after-header"
        ),
        pytest.param(body(FIELDS + b"\0"), RECORD_GOOD, id="good"),
        pytest.param(body(FIELDS + varint(1) + varint(1) + b"h" + varint(-1)), RECORD_GOOD, id="good-null-header"),
    ],
)
def test_record_beyond_a_limit_is_refused_by_name(data: bytes, status: int) -> None:
    """Every length is checked before it is used."""
    assert record_status(data) == status


def test_record_cut_anywhere_is_refused() -> None:
    """No proper part of a record is a record."""
    data = encode_record(Record(b"key", b"value", headers=((b"h", b"x"), (b"i", None))), 3, 1 << 40)
    assert record_status(data) == RECORD_GOOD
    for end in range(len(data)):
        assert record_status(data, end) != RECORD_GOOD, end


@pytest.mark.parametrize(
    ("data", "plain"),
    [
        pytest.param(body(FIELDS + b"\0"), True, id="usual"),
        pytest.param(body(b"\1" + FIELDS[1:] + b"\0"), False, id="attributes"),
        pytest.param(b"\x90\x00" + FIELDS + b"\0", False, id="long-length"),
        pytest.param(body(b"\0\x80\0\0" + FIELDS[3:] + b"\0"), False, id="long-time-delta"),
        pytest.param(body(b"\0\0\x80\0" + FIELDS[3:] + b"\0"), False, id="long-offset-delta"),
        pytest.param(body(START + b"\x82\0k\2v\0"), False, id="long-key-length"),
        pytest.param(body(START + b"\2k\x82\0v\0"), False, id="long-value-length"),
        pytest.param(body(FIELDS + b"\x80\0"), False, id="long-header-count"),
        pytest.param(body(FIELDS + b"\2\x82\0h\0"), False, id="long-header-key-length"),
        pytest.param(body(FIELDS + b"\2\2h\x80\0"), False, id="long-header-value-length"),
        pytest.param(body(FIELDS + b"\2\4\xc3\xa9\0"), False, id="header-key-beyond-ascii"),
        pytest.param(body(FIELDS + b"\2\2h\2\xff"), True, id="header-value-of-any-bytes"),
    ],
)
def test_record_that_may_change_when_rewritten_is_reported(data: bytes, plain: bool) -> None:
    """A quick answer; a record that is not plain is checked again before it is rewritten (R-220, R-223)."""
    found = read_record(padded(data), 0, len(data))
    assert found[0] == RECORD_GOOD
    assert bool(found[8]) == plain


headers = st.lists(
    st.tuples(st.binary(max_size=6), st.one_of(st.none(), st.binary(max_size=6))), max_size=5
)  # fmt: skip


@given(headers)
def test_headers_of_any_content_are_skipped_whole(content: list[Header]) -> None:
    """The end is found, and keys beyond ASCII are reported."""
    data = varint(len(content))
    for key, value in content:
        data += varint(len(key)) + key + (varint(-1) if value is None else varint(len(value)) + value)
    at, plain = skip_headers(padded(data), 0, len(data))
    assert at == len(data)
    assert bool(plain) == all(key.isascii() for key, _ in content)


@given(st.binary(max_size=60))
def test_record_of_random_bytes_ends_within_them(data: bytes) -> None:
    """Whatever the bytes, a record that is called good lies inside of them, and so do its parts."""
    status, after, _, _, tail, key_start, key_size, value_size, _ = read_record(padded(data), 0, len(data))
    if status == RECORD_GOOD:
        assert 0 < tail < key_start <= key_start + max(key_size, 0) < after <= len(data)
        assert value_size < after


def first_above(body: bytes, count: int, limit: int) -> tuple[int, int, int] | None:
    """Find the first record above a limit, as `find_record_above` does, in plain Python."""
    at = 0
    for number in range(count):
        size, after, _ = read(body[at:], 5)
        if after < 0 or size < 0:
            return None
        if size > limit:
            return number, at, size
        if size > len(body) - at - after:
            return None
        at += after + size
    return None


lengths = st.one_of(st.integers(0, 40), st.sampled_from([MIN_INT, -1, 8192, MAX_INT]))


@given(
    st.lists(st.tuples(lengths, st.integers(0, 40)), max_size=6),
    st.binary(max_size=6),
    st.integers(0, 9),
    st.integers(1, 60),
)
def test_first_record_above_a_limit_is_found_whatever_the_lengths_say(
    records: list[tuple[int, int]], rest: bytes, count: int, limit: int
) -> None:
    """Lengths beyond the batch, negative or cut off end the search; a batch not above the limit is not looked at."""
    body = b"".join(varint(size) + bytes(there) for size, there in records) + rest
    row = np.zeros(1, BATCH_DTYPE)
    row["magic"], row["unpacked"], row["count"] = 2, 1, count
    row["body_start"], row["body_end"] = 3, 3 + len(body)
    found = [int(value) for value in find_record_above(padded(b"..." + body), row, limit)]
    wanted = first_above(body, count, limit) if len(body) > limit else None
    assert found == ([-1, 0, 0, 0] if wanted is None else [0, wanted[0], wanted[1] + 3, wanted[2]])
    for field, value in (("magic", 1), ("unpacked", 0)):
        row[field] = value
        assert int(find_record_above(padded(b"..." + body), row, limit)[0]) == -1
