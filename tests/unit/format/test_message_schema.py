"""Kafka's messages by table: versions, nulls, arrays, tagged fields, and bytes that are not what they claim."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from cleaner.format.cluster_messages import CLUSTER_RECORDS
from cleaner.format.fields import FieldReader, FieldWriter
from cleaner.format.group_messages import GROUP_RECORDS
from cleaner.format.message_schema import Field, UnknownVersionError, parse_table
from cleaner.format.other_messages import CONSUMER_PROTOCOL, CONTROL_RECORDS, SHARE_RECORDS, TRANSACTION_RECORDS

TABLE = """\
thing 7 0-2 flexible 2+
  name string ?1+
  size int32
  since int64 1+
  ids []uuid 2+ ?
  parts []struct
    ratio float64
    data bytes
  mark int16 2+ #0=-1
  extra struct 2+ ? #1=null
    is_set bool
"""
THING = parse_table(TABLE)["thing", 7]
UUID = bytes(range(16))
KNOWN_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint16", "float64", "string", "bytes", "uuid", "struct"}


class Elsewhere(NamedTuple):
    """Bytes in a file."""

    size: int


def read(version: int, data: bytes) -> dict[str, object]:
    rest = FieldReader(data)
    found = THING.read(rest, version)
    assert rest.left == 0
    return found


def test_first_version_has_wide_lengths_and_its_own_fields() -> None:
    """No field of a later version is read or returned."""
    data = b"\0\2ab" + b"\0\0\0\5" + b"\0\0\0\1" + bytes.fromhex("3ff8000000000000") + b"\0\0\0\3xyz"
    assert read(0, data) == {"name": "ab", "size": 5, "parts": [{"ratio": 1.5, "data": "eHl6"}]}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_is_written_is_read(version: int) -> None:
    """With values that each version has, those left out, and a piece that is elsewhere."""
    elsewhere = Elsewhere(3)
    values: dict[str, Any] = {"name": "ü", "size": -5, "parts": [{"ratio": 1.5, "data": elsewhere}, {"data": b"xyz"}]}
    more = {0: {}, 1: {"since": 1 << 40}, 2: {"since": -1, "ids": [], "mark": 7, "extra": {"is_set": True}}}[version]
    out = FieldWriter()
    THING.write(out, values | more, version)
    pieces = [b"abc" if piece is elsewhere else piece for piece in out.pieces()]
    assert pieces.count(b"abc") == 1
    read_back = read(version, b"".join(piece for piece in pieces if isinstance(piece, bytes)))
    parts = [{"ratio": 1.5, "data": "YWJj"}, {"ratio": 0.0, "data": "eHl6"}]
    assert read_back == {"name": "ü", "size": -5, "parts": parts} | more


def test_later_version_may_have_null_where_the_first_may_not() -> None:
    """Each field has its own range of versions."""
    rest = b"\0\0\0\5" + bytes(8) + b"\0\0\0\0"
    assert read(1, b"\xff\xff" + rest) == {"name": None, "size": 5, "since": 0, "parts": []}
    with pytest.raises(ValueError, match="null where name must be"):
        read(0, b"\xff\xff" + b"\0\0\0\5" + b"\0\0\0\0")


def test_flexible_version_has_compact_lengths_and_tagged_fields() -> None:
    """Tagged fields at their default are left out, and so are unknown ones; a struct is then null."""
    head = b"\3ab" + b"\0\0\0\5" + bytes(8) + b"\2" + UUID + b"\2" + bytes(8) + b"\1" + b"\0"
    expected = {"name": "ab", "size": 5, "since": 0, "ids": ["AAECAwQFBgcICQoLDA0ODw"]}
    expected |= {"parts": [{"ratio": 0.0, "data": ""}]}
    assert read(2, head + b"\0") == expected | {"extra": None}
    assert read(2, head + b"\2" + b"\0\2\xff\xff" + b"\x09\1x") == expected | {"extra": None}
    told = read(2, head + b"\2" + b"\0\2\0\7" + b"\1\3\1\1\0")
    assert told == expected | {"mark": 7, "extra": {"is_set": True}}
    assert list(told) == ["name", "size", "since", "ids", "parts", "mark", "extra"]


def test_version_that_is_not_in_the_table_is_refused() -> None:
    """Its fields are unknown."""
    with pytest.raises(UnknownVersionError, match="version 3, only 0 to 2 are known"):
        read(3, b"")


@pytest.mark.parametrize("data", [b"", b"\0\2a", b"\0\2ab\0\0\0\5\x7f\xff\xff\xff", b"\0\2\xff\xff\0\0\0\5\0\0\0\0"])
def test_bytes_that_are_no_message_are_a_value_error(data: bytes) -> None:
    """Cut off, an array longer than the bytes, a text that is no UTF-8; nothing large is made first."""
    with pytest.raises(ValueError, match=r".+"):
        read(0, data)


@pytest.mark.parametrize(
    ("table", "count"),
    [(GROUP_RECORDS, 44), (CLUSTER_RECORDS, 26), (TRANSACTION_RECORDS, 2), (SHARE_RECORDS, 4), (CONTROL_RECORDS, 5)],
)
def test_tables_hold_the_messages_of_kafka(table: str, count: int) -> None:
    """Every field of every message is of a kind that can be read."""
    messages = parse_table(table)
    assert len(messages) == count
    for message in [*messages.values(), *parse_table(CONSUMER_PROTOCOL).values()]:
        check_fields(message.fields)


def check_fields(fields: list[Field]) -> None:
    """Names and tags occur once, types are known, and only structs have fields."""
    assert len({field.name for field in fields}) == len(fields)
    tags = [field.tag for field in fields if field.tag is not None]
    assert len(set(tags)) == len(tags)
    for field in fields:
        assert field.type in KNOWN_TYPES
        assert bool(field.fields) == (field.type == "struct")
        check_fields(field.fields)
