"""Records as lines of JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import InputError
from cleaner.log.record import Record
from cleaner.log.record_json import from_json, to_json

_fields = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
_headers = st.lists(st.tuples(st.text(max_size=5), _fields), max_size=3).map(tuple)
_records = st.builds(Record, _fields, _fields, _headers, st.integers(0, 2**62), st.integers(0, 2**62))


@given(_records)
def test_what_consume_prints_produce_reads(record: Record) -> None:
    """All of it is the same again, whatever bytes it is; an append gives a new offset."""
    line = to_json("prices", 3, record).encode()
    assert b"\n" not in line
    read, partition = from_json(line, 1)
    assert partition == 3
    assert read == record


def test_record_is_printed_in_plain_words() -> None:
    """Texts as texts, what is no UTF-8 as base64, headers only if there are any."""
    row = json.loads(to_json("prices", 0, Record(b"p5", b"\xff", (), 17, 4)))
    expected = {
        "topic": "prices",
        "partition": 0,
        "offset": 4,
        "timestamp": 17,
        "key": "p5",
        "value": {"base64": "/w=="},
    }
    assert row == expected


def test_value_alone_makes_a_record() -> None:
    """All else has a default."""
    assert from_json(b'{"value": null}', 1) == (Record(None, None), None)
    assert from_json(b'{"value": null, "offset": "x"}', 1) == (Record(None, None), None)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        pytest.param(b"p5:14", "not JSON", id="not-json"),
        pytest.param(b"\xff", "not JSON", id="not-utf-8"),
        pytest.param(b"[" * 100_000, "line 9", id="deep"),
        pytest.param(b"[1]", "object", id="a-list"),
        pytest.param(b'{"key": "a"}', "value", id="no-value"),
        pytest.param(b'{"value": "a", "keys": "b"}', "'keys'", id="unknown-field"),
        pytest.param(b'{"value": 7}', "value", id="a-number"),
        pytest.param(b'{"value": {"base64": "!"}}', "value", id="bad-base64"),
        pytest.param(b'{"value": {"base64": "\\u00e4"}}', "value", id="base64-beyond-ascii"),
        pytest.param(b'{"value": "\\ud800"}', "value", id="half-a-character"),
        pytest.param(b'{"value": "a", "timestamp": true}', "timestamp", id="timestamp-a-boolean"),
        pytest.param(b'{"value": "a", "partition": -1}', "partition", id="partition-negative"),
        pytest.param(b'{"value": "a", "headers": {"a": "b"}}', "headers", id="headers-an-object"),
        pytest.param(b'{"value": "a", "headers": [["a", 1]]}', "header 'a'", id="header-a-number"),
    ],
)
def test_line_that_is_no_record_is_refused_by_number(line: bytes, word: str) -> None:
    """With the field concerned."""
    with pytest.raises(InputError, match=r"^line 9: ") as raised:
        from_json(line, 9)
    assert word in str(raised.value)
