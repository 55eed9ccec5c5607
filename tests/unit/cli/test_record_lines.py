"""Records as lines of text."""

from __future__ import annotations

import pytest

from cleaner.cli.record_lines import LineFormat
from cleaner.errors import InputError, UsageError
from cleaner.log.record import Record

KEY = {"parse.key": "true", "key.separator": ":"}
HEADERS = {"parse.headers": "true"}
BOTH = {"parse.headers": "true", "parse.key": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        pytest.param({}, b"a:b", Record(None, b"a:b"), id="value-alone"),
        pytest.param({}, b"", Record(None, b""), id="empty-line-is-an-empty-value"),
        pytest.param({}, b"\xff\x00", Record(None, b"\xff\x00"), id="bytes-stay-as-they-are"),
        pytest.param({"parse.key": "TRUE"}, b"k\tv", Record(b"k", b"v"), id="tab-by-default"),
        pytest.param({"parse.key": "yes"}, b"k\tv", Record(None, b"k\tv"), id="only-true-is-true"),
        pytest.param(KEY, b"k:v:w", Record(b"k", b"v:w"), id="first-separator-counts"),
        pytest.param(KEY, b":v", Record(b"", b"v"), id="empty-key"),
        pytest.param(KEY, b"k:", Record(b"k", b""), id="empty-value"),
        pytest.param(KEY | {"key.separator": "::"}, b"k:a::v", Record(b"k:a", b"v"), id="long-separator"),
        pytest.param(KEY | {"ignore.error": "true"}, b"kv", Record(None, b"kv"), id="no-separator-ignored"),
        pytest.param(KEY | {"null.marker": "NULL"}, b"k:NULL", Record(b"k", None), id="tombstone"),
        pytest.param(KEY | {"null.marker": "NULL"}, b"NULL:v", Record(None, b"v"), id="null-key"),
        pytest.param({"null.marker": ""}, b"", Record(None, None), id="empty-marker"),
        pytest.param(HEADERS, b"h1:v1\tv", Record(None, b"v", (("h1", b"v1"),)), id="header"),
        pytest.param(HEADERS, b"h1:\tv", Record(None, b"v", (("h1", b""),)), id="empty-header"),
        pytest.param(HEADERS, b"h1:a:b\tv", Record(None, b"v", (("h1", b"a:b"),)), id="separator-in-header"),
        pytest.param(HEADERS, b"h1:v1,\tv", Record(None, b"v", (("h1", b"v1"),)), id="separator-behind-the-last"),
        pytest.param(HEADERS, b":v1\tv", Record(None, b"v", (("", b"v1"),)), id="header-without-a-name"),
        pytest.param(
            HEADERS | {"ignore.error": "true"}, b"h1\tv", Record(None, b"v", (("h1", None),)), id="null-header"
        ),
        pytest.param(HEADERS | {"ignore.error": "true"}, b"v", Record(None, b"v"), id="no-delimiter-ignored"),
        pytest.param(BOTH, b"h1:v1,h2:v2\tk\tv", Record(b"k", b"v", (("h1", b"v1"), ("h2", b"v2"))), id="all"),
        pytest.param(BOTH | {"null.marker": "N"}, b"N\tk\tv", Record(b"k", b"v"), id="null-headers"),
        pytest.param(BOTH | {"null.marker": "N"}, b"h:N\tk\tv", Record(b"k", b"v", (("h", None),)), id="marked-header"),
    ],
)
def test_line_is_read_as_kafka_reads_it(properties: dict[str, str], line: bytes, record: Record) -> None:
    """What `LineMessageReader` of Kafka 4.3.1 makes of it, but that bytes which are no UTF-8 stay."""
    assert LineFormat.of(properties).record(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "word"),
    [
        pytest.param(KEY, b"kv", "no key separator ':' in 'kv'", id="no-key-separator"),
        pytest.param(HEADERS, b"v", "no headers delimiter", id="no-headers-delimiter"),
        pytest.param(HEADERS, b"\tv", "no ':' in header ''", id="empty-headers"),
        pytest.param(HEADERS, b"h1\tv", "no ':' in header 'h1'", id="no-header-separator"),
        pytest.param(BOTH | {"null.marker": "N"}, b"N:x\tk\tv", "null marker", id="header-named-null"),
        pytest.param(HEADERS, b"\xff:x\tv", "UTF-8", id="header-name-no-utf-8"),
        pytest.param(KEY, b"\x1b[2J" + b"x" * 500, "'\\x1b[2Jxxx", id="control-characters-are-escaped"),
    ],
)
def test_line_that_is_no_record_is_refused_by_number(properties: dict[str, str], line: bytes, word: str) -> None:
    """With what was looked for, and the line as far as it fits."""
    with pytest.raises(InputError) as raised:
        LineFormat.of(properties).record(line, 17)
    assert str(raised.value).startswith("line 17: ")
    assert word in str(raised.value)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"headers.separator": ":"}, id="headers-and-their-names"),
        pytest.param({"headers.delimiter": ","}, id="delimiter-and-headers"),
        pytest.param({"headers.delimiter": ":"}, id="delimiter-and-names"),
        pytest.param({"null.marker": "\t"}, id="null-and-key"),
        pytest.param({"null.marker": ","}, id="null-and-headers"),
    ],
)
def test_separators_that_are_equal_are_refused(properties: dict[str, str]) -> None:
    """Nobody could tell them apart; Kafka refuses the same."""
    with pytest.raises(UsageError, match="may not be equal"):
        LineFormat.of(properties)
