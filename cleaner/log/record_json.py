"""
Records as lines of JSON, the same for `cleaner produce`, `consume` and `export`: each reads what the others print.

    {"topic": "prices", "partition": 0, "offset": 5, "timestamp": 1700000000000, "key": "p5", "value": "14"}

`key` and `value` are text, null, or `{"base64": "..."}` if the bytes are not UTF-8. `headers` is a list of `[name,
value]`, since names may repeat. In input `topic` is ignored, as is an `offset` that is no number, and only `value` is
required.
"""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from cleaner.errors import InputError
from cleaner.log.record import Record

_FIELDS = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))


class Addressed(NamedTuple):
    """A record, and its partition if one is given."""

    record: Record
    partition: int | None


def to_json(topic: str, partition: int, record: Record) -> str:
    """Return a record as one line, without its end."""
    row: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": plain_field(record.key),
        "value": plain_field(record.value),
    }
    if record.headers:
        row["headers"] = [[name, plain_field(value)] for name, value in record.headers]
    return json.dumps(row)


def from_json(line: bytes, line_number: int) -> Addressed:
    """
    Read one line.

    Raises:
        InputError: not an object, an unknown field or one of the wrong type, or no `value`.
    """
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(line_number, f"not JSON: {error}") from None
    except RecursionError:
        raise InputError(line_number, "not a record: nested too deeply") from None
    if not isinstance(row, dict) or "value" not in row:
        raise InputError(line_number, 'a record is an object with "value" in it, which may be null')
    if unknown := sorted(row.keys() - _FIELDS):
        raise InputError(line_number, f"unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS))}")
    record = Record(
        _bytes(row.get("key"), "key", line_number),
        _bytes(row["value"], "value", line_number),
        _headers(row.get("headers", []), line_number),
        _number(row.get("timestamp"), "timestamp", line_number),
        offset if type(offset := row.get("offset")) is int else None,
    )
    return Addressed(record, _number(row.get("partition"), "partition", line_number))


def plain_field(data: bytes | None) -> object:
    """Return a key or value for JSON: text, null, or base64 if the bytes are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes(value: object, name: str, line_number: int) -> bytes | None:
    try:
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
            return base64.b64decode(value["base64"], validate=True)
    except ValueError as error:  # a lone surrogate, or no base64
        raise InputError(line_number, f"{name}: {error}") from None
    raise InputError(line_number, f'{name}: a text, null or {{"base64": "..."}}')


def _number(value: object, name: str, line_number: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InputError(line_number, f"{name}: a number from 0 up")
    return value


def _headers(value: object, line_number: int) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(value, list):
        raise InputError(line_number, "headers: a list of [name, value]")
    found = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(line_number, "headers: a list of [name, value]")
        found.append((pair[0], _bytes(pair[1], f"header {pair[0]!r}", line_number)))
    return tuple(found)
