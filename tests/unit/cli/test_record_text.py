"""Records as text."""

from __future__ import annotations

import pytest

from cleaner.cli.record_text import TextFormat
from cleaner.errors import CleanerError, UsageError
from cleaner.log.record import Record

RECORD = Record(b"p5", b"14", (("a", b"1"), ("b", None)), 1_700_000_000_000, 5)
ALL = {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "epoch", "headers", "key", "delivery")}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        pytest.param({}, b"14\n", id="value-alone"),
        pytest.param({"print.key": "true", "key.separator": ":"}, b"p5:14\n", id="key"),
        pytest.param({"print.key": "true", "print.value": "false"}, b"p5\n", id="key-alone"),
        pytest.param({"print.value": "false"}, b"", id="nothing"),
        pytest.param({"line.separator": "|"}, b"14|", id="line-separator"),
        pytest.param({"print.headers": "true", "headers.separator": "; "}, b"a:1; b:null\t14\n", id="headers"),
        pytest.param({"print.headers": "true", "null.literal": "-"}, b"a:1,b:-\t14\n", id="null-literal"),
        pytest.param(
            ALL,
            b"CreateTime:1700000000000\tPartition:3\tOffset:5\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\ta:1,b:null\tp5\t14\n",
            id="everything-in-kafkas-order",
        ),
    ],
)
def test_record_is_printed_as_kafka_prints_it(properties: dict[str, str], text: bytes) -> None:
    """As `DefaultMessageFormatter` does; the epoch of a record's batch is not known here."""
    assert TextFormat.of(properties).text(3, RECORD) == text


def test_tombstone_and_missing_headers_have_words() -> None:
    """`null` and `NO_HEADERS`."""
    form = TextFormat.of({"print.key": "true", "print.headers": "true"})
    assert form.text(0, Record(None, None)) == b"NO_HEADERS\tnull\tnull\n"


def test_timestamp_is_of_the_topics_type() -> None:
    """`LogAppendTime` where the topic has it."""
    form = TextFormat.of({"print.timestamp": "true"}, "LogAppendTime")
    assert form.text(0, RECORD) == b"LogAppendTime:1700000000000\t14\n"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", b"\x00" * 7 + b"\x05", b"5\n"),
        ("IntegerDeserializer", b"\xff\xff\xff\xfe", b"-2\n"),
        ("org.apache.kafka.common.serialization.StringDeserializer", b"\xff", b"\xff\n"),
        ("ShortDeserializer", b"\x01\x00", b"256\n"),
        ("BooleanDeserializer", b"\x01", b"true\n"),
        ("DoubleDeserializer", b"\x3f\xf8" + b"\x00" * 6, b"1.5\n"),
        ("UUIDDeserializer", b"12345678-1234-5678-1234-567812345678", b"12345678-1234-5678-1234-567812345678\n"),
    ],
)
def test_deserializer_makes_a_text_of_bytes(name: str, data: bytes, text: bytes) -> None:
    """By the name of Kafka's class, with its package or without."""
    assert TextFormat.of({"value.deserializer": name}).text(0, Record(None, data)) == text


def test_deserializer_that_is_not_known_is_refused() -> None:
    """With those there are."""
    with pytest.raises(UsageError, match="LongDeserializer"):
        TextFormat.of({"key.deserializer": "com.example.PriceDeserializer"})


@pytest.mark.parametrize("name", ["LongDeserializer", "UUIDDeserializer"])
def test_bytes_a_deserializer_cannot_read_are_reported_with_their_place(name: str) -> None:
    """Seven bytes are no long."""
    with pytest.raises(CleanerError, match="partition 2, offset 7"):
        TextFormat.of({"value.deserializer": name}).text(2, Record(None, b"\xff234567", offset=7))
