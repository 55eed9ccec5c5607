"""Control records: types, coordinator epochs, and damage that hides them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.control import (
    ControlRecord,
    ControlRecordError,
    ControlType,
    MarkerTooShortError,
    read_control_record,
    read_control_type,
)


def _varint(value: int) -> bytes:
    left = value << 1 ^ value >> 63
    left &= 2**64 - 1
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _field(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _body(key: bytes | None, value: bytes | None) -> memoryview:
    record = b"\x00" + _varint(0) + _varint(0) + _field(key) + _field(value) + b"\x00"
    return memoryview(_varint(len(record)) + record)


def _key(number: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, number)


def _value(epoch: int, version: int = 0) -> bytes:
    return struct.pack(">hi", version, epoch)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(_body(_key(0), _value(7)), ControlRecord(ControlType.ABORT, 7), id="abort"),
        pytest.param(_body(_key(1), _value(0)), ControlRecord(ControlType.COMMIT, 0), id="commit"),
        pytest.param(_body(_key(1), _value(-1)), ControlRecord(ControlType.COMMIT, -1), id="negative-epoch"),
        pytest.param(_body(_key(1, 3), _value(5, 9)), ControlRecord(ControlType.COMMIT, 5), id="later-versions"),
        pytest.param(_body(_key(1) + b"more", _value(5) + b"more"), ControlRecord(ControlType.COMMIT, 5), id="longer"),
        pytest.param(_body(_key(2), b"\x00"), ControlRecord(ControlType.LEADER_CHANGE, None), id="leader-change"),
        pytest.param(_body(_key(6), None), ControlRecord(ControlType.KRAFT_VOTERS, None), id="kraft-voters"),
        pytest.param(_body(_key(77), None), ControlRecord(ControlType.UNKNOWN, None), id="unknown"),
        pytest.param(_body(_key(-1), None), ControlRecord(ControlType.UNKNOWN, None), id="minus-one"),
        pytest.param(memoryview(b""), None, id="no-record"),
    ],
)
def test_control_record_sound_is_read(body: memoryview, expected: ControlRecord | None) -> None:
    """Key and value mean what R-230 and R-231 say, later versions are read as version 0."""
    assert expected == read_control_record(body)
    assert (None if expected is None else expected.type) == read_control_type(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_body(None, _value(0)), id="no-key"),
        pytest.param(_body(b"\x00\x00\x00", _value(0)), id="short-key"),
        pytest.param(_body(_key(0, -1), _value(0)), id="negative-key-version"),
        pytest.param(_body(_key(0), _value(0))[:-1], id="record-cut"),
        pytest.param(memoryview(b"\x00"), id="record-of-no-bytes"),
        pytest.param(memoryview(b"\x01"), id="negative-length"),
        pytest.param(memoryview(b"\x80\x80\x80\x80\x80\x01"), id="endless-length"),
        pytest.param(memoryview(b"\xff\xff\xff\xff\x7f"), id="length-of-more-than-32-bits"),
        pytest.param(memoryview(b"\x0a\x00\x00\x00\x7e\x00"), id="key-longer-than-record"),
    ],
)
def test_control_record_damaged_is_refused(body: memoryview) -> None:
    """A key that cannot be read is an error for type and record alike (R-230)."""
    with pytest.raises(ControlRecordError):
        read_control_type(body)
    with pytest.raises(ControlRecordError):
        read_control_record(body)


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x00\x00\x00\x00"])
def test_marker_with_short_value_has_a_type_but_no_epoch(value: bytes | None) -> None:
    """The cleaner needs only the type; a caller that needs the epoch gets none (R-231)."""
    body = _body(_key(1), value)
    assert read_control_type(body) is ControlType.COMMIT
    with pytest.raises(MarkerTooShortError):
        read_control_record(body)


def test_marker_with_negative_value_version_is_refused() -> None:
    """A negative version is damage, not a short value (R-231)."""
    with pytest.raises(ControlRecordError, match="version -1") as caught:
        read_control_record(_body(_key(0), _value(0, -1)))
    assert not isinstance(caught.value, MarkerTooShortError)


@given(st.binary(max_size=40))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    """No bytes make it fail in another way."""
    try:
        record = read_control_record(memoryview(body))
    except ControlRecordError:
        return
    assert record is None or record.type == read_control_type(memoryview(body))
