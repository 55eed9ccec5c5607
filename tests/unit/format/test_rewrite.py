"""Records that change when they are written again: numbers, attributes, header keys (R-220, R-223)."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.format.rewrite import canonical_records, java_utf8
from tests.support.batch_builder import Record, encode_record, varint

RECODE = Path(__file__).parents[1] / "java" / "RecodeUtf8.java"
REPLACEMENT = b"\xef\xbf\xbd"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(b"trace-id", b"trace-id", id="ascii"),
        pytest.param("é€😀".encode(), "é€😀".encode(), id="two-three-four-bytes"),
        pytest.param(b"\xed\x9f\xbf\xee\x80\x80", b"\xed\x9f\xbf\xee\x80\x80", id="around-surrogates"),
        pytest.param(b"\xf4\x8f\xbf\xbf", b"\xf4\x8f\xbf\xbf", id="last-code-point"),
        pytest.param(b"\xef\xbb\xbfa", b"\xef\xbb\xbfa", id="byte-order-mark-stays"),
        pytest.param(b"\x00", b"\x00", id="zero"),
        pytest.param(b"\xed\xa0\x80", REPLACEMENT, id="lowest-surrogate-is-one"),
        pytest.param(b"\xed\xbf\xbf", REPLACEMENT, id="highest-surrogate-is-one"),
        pytest.param(b"\xed\xa0\x80\xed\xb0\x80", 2 * REPLACEMENT, id="surrogate-pair-is-two"),
        pytest.param(b"\xed\xa0", REPLACEMENT, id="cut-surrogate-is-one"),
        pytest.param(b"\xed\xa0a", REPLACEMENT + b"a", id="cut-surrogate-before-a-letter"),
        pytest.param(b"\xed", REPLACEMENT, id="surrogate-lead-alone"),
        pytest.param(b"\x80", REPLACEMENT, id="continuation-alone"),
        pytest.param(b"\x80\x80", 2 * REPLACEMENT, id="each-continuation-is-one"),
        pytest.param(b"\xc0\x80", 2 * REPLACEMENT, id="overlong-zero"),
        pytest.param(b"\xc3", REPLACEMENT, id="two-byte-lead-alone"),
        pytest.param(b"\xc3(", REPLACEMENT + b"(", id="two-byte-lead-before-a-sign"),
        pytest.param(b"\xe0\x80\x80", 3 * REPLACEMENT, id="overlong-three-bytes"),
        pytest.param(b"\xe2\x82", REPLACEMENT, id="cut-three-bytes"),
        pytest.param(b"\xe2\x82a", REPLACEMENT + b"a", id="cut-three-bytes-before-a-letter"),
        pytest.param(b"\xf0\x80\x80\x80", 4 * REPLACEMENT, id="overlong-four-bytes"),
        pytest.param(b"\xf0\x9f\x98", REPLACEMENT, id="cut-four-bytes"),
        pytest.param(b"\xf4\x90\x80\x80", 4 * REPLACEMENT, id="beyond-last-code-point"),
        pytest.param(b"\xf8\x88\x80\x80\x80", 5 * REPLACEMENT, id="five-bytes"),
        pytest.param(b"\xff\xfe", 2 * REPLACEMENT, id="no-utf-8-at-all"),
    ],
)
def test_header_key_of_any_bytes_is_rewritten_as_by_java(text: bytes, expected: bytes) -> None:
    """The number of replacements for a malformed sequence; an encoded surrogate gives one (R-223)."""
    assert java_utf8(text) == expected


@pytest.mark.kafka
def test_header_keys_of_random_bytes_agree_with_java() -> None:
    """All sequences of up to three significant bytes and many longer ones, compared with a JVM."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("NOT CHECKED: no java to compare header keys with")
    edges = bytes.fromhex("417f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f7f8ff")
    texts = [bytes([a, b, c]) for a in edges for b in edges for c in edges]
    texts += [text[:size] for text in texts[:: len(edges)] for size in (0, 1, 2)]
    picker = random.Random(7)
    texts += [bytes(picker.choices(edges, k=picker.randint(4, 9))) for _ in range(20_000)]
    asked = "".join(text.hex() + "\n" for text in texts)
    command = [java, "-Xmx200m", "-XX:TieredStopAtLevel=1", str(RECODE)]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    assert [java_utf8(text).hex() for text in texts] == answer.split("\n")[:-1]


@given(st.binary(max_size=30))
def test_header_key_rewritten_twice_stays(text: bytes) -> None:
    """What Java has written is well-formed, and stays as it is."""
    once = java_utf8(text)
    once.decode("utf-8")
    assert java_utf8(once) == once


def test_header_key_of_well_formed_text_stays() -> None:
    """Every code point."""
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000).encode()
    assert java_utf8(text) == text


def long_varint(value: int, extra: int) -> bytes:
    """Encode a number in `extra` more bytes than it takes."""
    short = varint(value)
    if not extra:
        return short
    return short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (extra - 1) + b"\0"


fields = st.one_of(st.none(), st.binary(max_size=90))
headers = st.lists(st.tuples(st.binary(max_size=5), fields), max_size=3).map(tuple)
records = st.tuples(fields, fields, headers).map(lambda parts: Record(parts[0], parts[1], headers=parts[2]))


@given(
    st.lists(st.tuples(records, st.integers(-(2**63), 2**63 - 1), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(0, 2), min_size=20, max_size=20),
)
def test_canonical_records_are_those_kafka_writes(content: list[tuple[Record, int, int]], extras: list[int]) -> None:
    """Any form of numbers and any attributes: the same records in their only canonical form."""
    odd, expected = b"", b""
    for delta, (record, time_delta, attributes) in enumerate(content):
        spelling = iter(extras * 2)

        def sized(part: bytes | None, extra: int) -> bytes:
            return long_varint(-1, extra) if part is None else long_varint(len(part), extra) + part

        body = bytes([attributes])
        # A long has ten bytes at most, so only short ones are spelt longer.
        body += varint(time_delta) if abs(time_delta) > 2**31 else long_varint(time_delta, next(spelling))
        body += long_varint(delta, next(spelling))
        body += sized(record.key, next(spelling)) + sized(record.value, next(spelling))
        body += long_varint(len(record.headers), next(spelling))
        for key, value in record.headers:
            body += sized(key, next(spelling)) + sized(value, next(spelling))
        odd += long_varint(len(body), next(spelling)) + body
        renamed = tuple((java_utf8(key), value) for key, value in record.headers)
        expected += encode_record(record._replace(headers=renamed), delta, time_delta)
    assert canonical_records(memoryview(odd), len(content)) == expected


def test_canonical_records_of_plain_ones_are_the_same_bytes() -> None:
    """Without odd values nothing changes."""
    data = encode_record(Record(b"k", b"v", headers=((b"h", None),)), 1, -5) + encode_record(Record(None, None), 2, 7)
    assert canonical_records(memoryview(data), 2) == data
