"""
Records whose bytes change when they are rewritten, although their content does not change (R-220, R-223).

Kafka decodes and encodes every record of a batch it rebuilds. Numbers get their shortest form, the record's attributes
become 0, and header keys become what Java decodes from their bytes as UTF-8. Producers hardly ever write anything else,
so the kernels copy records and leave the others to this slow path.
"""

from __future__ import annotations

import re

from cleaner.format.varints import encode_varint, read_varint

# An encoded surrogate, whole or cut off: one malformed sequence for Java, and two or three for Python.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = b"\xef\xbf\xbd"


def java_utf8(text: bytes) -> bytes:
    """Return what Java writes after reading these bytes as UTF-8: malformed sequences become EF BF BD."""
    return _ENCODED_SURROGATE.sub(_REPLACEMENT, text).decode("utf-8", "replace").encode()


def canonical_records(body: memoryview, count: int) -> bytes:
    """
    Return a batch's records as Kafka would write them with the same deltas.

    Args:
        body: `count` records of magic 2 whose structure has been checked.
    """
    out = bytearray()
    at = 0
    for _ in range(count):
        size, at = read_varint(body, at)
        out += _record(body[at : at + size])
        at += size
    return bytes(out)


def _record(record: memoryview) -> bytes:
    timestamp_delta, at = read_varint(record, 1)
    offset_delta, at = read_varint(record, at)
    fields = bytearray(b"\0")
    fields += encode_varint(timestamp_delta) + encode_varint(offset_delta)
    for _ in range(2):
        at = _copy_field(record, at, fields)
    fields += canonical_headers(record[at:])
    return encode_varint(len(fields)) + bytes(fields)


def canonical_headers(data: memoryview) -> bytes:
    """Return headers, with their count in front, as Kafka would write them; bytes after them are ignored."""
    fields = bytearray()
    count, at = read_varint(data, 0)
    fields += encode_varint(count)
    for _ in range(count):
        size, at = read_varint(data, at)
        key = java_utf8(bytes(data[at : at + size]))
        fields += encode_varint(len(key)) + key
        at = _copy_field(data, at + size, fields)
    return bytes(fields)


def _copy_field(record: memoryview, at: int, fields: bytearray) -> int:
    size, at = read_varint(record, at)
    fields += encode_varint(size) + record[at : at + max(size, 0)]
    return at + max(size, 0)
