"""
Describes Kafka's messages by tables: the names of the fields, and their encoding.

A table is text, with two spaces for each level:

    value 2 0-4 flexible 4+             a message: its name and number, its versions, those with tagged fields
      generation int32                  a field of all versions
      leader string ?                   one that may be null; `?1+` from version 1 on
      currentStateTimestamp int64 2+    one that came with version 2
      members []struct                  an array; the struct's fields are below
        memberId string
      topicId uuid 4+ #0=               a tagged field, number 0, with its default

`read` returns the same as Kafka's own JSON of a message: the fields of the version in their order, tagged ones only if
they differ from their default, bytes and ids as base64. `write` takes the same, with bytes as `bytes` or a `Sized`;
fields left out have their default.

Source: the message protocol (KIP-482); the tables are `group_messages.py` and its like.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleaner.format.fields import FieldReader, FieldWriter

Value = Any
"""A JSON value."""

_INTEGERS = {"int8": (1, True), "int16": (2, True), "int32": (4, True), "int64": (8, True)} | {
    "uint16": (2, False),
    "uint32": (4, False),
}
_INDENT = 2
_NEVER = (1, 0)
_MOST = 1 << 15


class UnknownVersionError(ValueError):
    """A version of a message that the table does not have."""


@dataclass
class Field:
    """A field; versions are ranges, both ends included."""

    name: str
    type: str
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    default: Value
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    """
    A message's table.

    Attributes:
        name: as in the table.
        number: after the name.
        versions: the known versions.
        flexible: the versions with compact lengths and tagged fields.
    """

    name: str
    number: int
    versions: tuple[int, int]
    flexible: tuple[int, int]
    fields: list[Field] = field(default_factory=list)

    def read(self, data: FieldReader, version: int) -> dict[str, Value]:
        """
        Read a message of a version.

        Raises:
            UnknownVersionError: the table has no such version.
            ValueError: the bytes are not a message.
        """
        if not _is_in(version, self.versions):
            raise UnknownVersionError(f"version {version}, only {self.versions[0]} to {self.versions[1]} are known")
        return _read_struct(self.fields, data, version, self.is_flexible(version))

    def is_flexible(self, version: int) -> bool:
        """Tell whether a version has compact lengths and tagged fields."""
        return _is_in(version, self.flexible)

    def write(self, out: FieldWriter, values: Mapping[str, Any], version: int) -> None:
        """Write a message of a known version."""
        _write_struct(self.fields, out, values, version, self.is_flexible(version))


@functools.cache
def parse_table(text: str) -> Mapping[tuple[str, int], Message]:
    """Read a table; messages by name and number."""
    messages: dict[tuple[str, int], Message] = {}
    levels: list[list[Field]] = []
    for line in text.splitlines():
        words = line.split()
        level = (len(line) - len(line.lstrip())) // _INDENT
        if level == 0:
            name, number, versions, *rest = words
            message = Message(name, int(number), versions_of(versions), versions_of(rest[1]) if rest else _NEVER)
            messages[name, message.number] = message
            levels = [message.fields]
            continue
        parsed = _parse_field(words)
        del levels[level:]
        levels[-1].append(parsed)
        levels.append(parsed.fields)
    return messages


def read_key(table: Mapping[tuple[str, int], Message], key: bytes | None) -> tuple[int, dict[str, Value] | None]:
    """
    Read the key of a coordinator's record.

    Returns:
        its type, and its fields; None: the table has no such type.
    Raises:
        UnknownVersionError, ValueError: as `Message.read`.
    """
    data = FieldReader(key or b"")
    number = data.integer(2)
    message = table.get(("key", number))
    return number, None if message is None else message.read(data, 0)


def _parse_field(words: Sequence[str]) -> Field:
    name, kind, *rest = words
    versions = next((versions_of(word) for word in rest if word[0].isdigit()), (0, _MOST))
    nullable = next((versions_of(word[1:]) if word[1:] else versions for word in rest if word[0] == "?"), _NEVER)
    parsed = Field(name, kind.removeprefix("[]"), kind.startswith("[]"), versions, nullable, None, None)
    tagged = next((word[1:] for word in rest if word[0] == "#"), None)
    number, _, default = (tagged or "").partition("=")
    parsed.tag = None if tagged is None else int(number)
    parsed.default = default_of(parsed, default)
    return parsed


def default_of(parsed: Field, text: str) -> Value:
    """Return a field's default, by the text of it; it may be empty."""
    if text == "null" or (parsed.type == "struct" and not parsed.is_array):
        return None
    if parsed.is_array:
        return []
    if parsed.type in _INTEGERS:
        return int(text or "0", 0)
    if parsed.type == "bool":
        return text == "true"
    if parsed.type == "float64":
        return float(text or 0)
    return _base64(bytes(16)) if parsed.type == "uuid" else text


def versions_of(word: str) -> tuple[int, int]:
    """Return the first and the last version of a range: `3`, `0-4`, `2+`."""
    first, dash, last = word.rstrip("+").partition("-")
    if word.endswith("+"):
        return int(first), _MOST
    return int(first), int(last) if dash else int(first)


def _is_in(version: int, versions: tuple[int, int]) -> bool:
    return versions[0] <= version <= versions[1]


def _read_struct(fields: Sequence[Field], data: FieldReader, version: int, flexible: bool) -> dict[str, Value]:
    here = [each for each in fields if _is_in(version, each.versions)]
    values = {each.name: _read(each, data, version, flexible) for each in here if each.tag is None}
    if flexible:
        values |= _read_tagged({each.tag: each for each in here if each.tag is not None}, data, version)
    return {each.name: values[each.name] for each in here if each.name in values}


def _read_tagged(known: Mapping[int | None, Field], data: FieldReader, version: int) -> dict[str, Value]:
    """Read the tagged fields; unknown ones are left out, and those at their default except structs."""
    values: dict[str, Value] = {
        each.name: None for each in known.values() if each.type == "struct" and not each.is_array
    }
    for tag, content in data.tagged_fields().items():
        if tag in known:
            value = _read(known[tag], FieldReader(content), version, True)
            if value != known[tag].default:
                values[known[tag].name] = value
    return values


def _read(what: Field, data: FieldReader, version: int, flexible: bool) -> Value:
    is_nullable = _is_in(version, what.nullable)
    if what.is_array:
        count = data.length(4, compact=flexible)
        if count < 0 and not is_nullable:
            raise ValueError(f"null where {what.name} must be")
        if count > data.left:
            raise ValueError(f"{count} elements of {what.name} in {data.left} bytes")
        return None if count < 0 else [_read_one(what, data, version, flexible, False) for _ in range(count)]
    return _read_one(what, data, version, flexible, is_nullable)


def _read_one(what: Field, data: FieldReader, version: int, flexible: bool, is_nullable: bool) -> Value:
    if what.type in _INTEGERS:
        size, signed = _INTEGERS[what.type]
        return data.integer(size, signed=signed)
    match what.type:
        case "struct":
            # A tagged one has its null mark in front as a varint.
            if is_nullable and (data.integer(1) < 0 if what.tag is None else data.varint() == 0):
                return None
            return _read_struct(what.fields, data, version, flexible)
        case "bool":
            return data.integer(1) != 0
        case "float64":
            return data.double()
        case "uuid":
            return _base64(data.take(16))
        case "string":
            value: Value = data.nullable_text(compact=flexible)
        case "bytes":
            size = data.length(4, compact=flexible)
            value = None if size < 0 else base64.b64encode(data.take(size)).decode("ascii")
        case unknown:
            raise AssertionError(f"a table with a field of type {unknown}")
    if value is None and not is_nullable:
        raise ValueError(f"null where {what.name} must be")
    return value


def _base64(data: bytes) -> str:
    """Write an id as Kafka does."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _write_struct(
    fields: Sequence[Field], out: FieldWriter, values: Mapping[str, Any], version: int, flexible: bool
) -> None:
    tagged: list[tuple[int, Field, Any]] = []
    for each in fields:
        if not _is_in(version, each.versions):
            continue
        value = values.get(each.name, each.default)
        if each.tag is None or not flexible:
            _write(each, out, value, version, flexible)
        elif value != each.default:
            tagged.append((each.tag, each, value))
    if flexible:
        out.varint(len(tagged))
        for tag, each, value in sorted(tagged, key=lambda row: row[0]):
            content = FieldWriter()
            _write(each, content, value, version, flexible)
            data = b"".join(piece for piece in content.pieces() if isinstance(piece, bytes))
            out.varint(tag)
            out.varint(len(data))
            out.put(data)


def _write(what: Field, out: FieldWriter, value: Any, version: int, flexible: bool) -> None:
    if not what.is_array:
        _write_one(what, out, value, version, flexible, _is_in(version, what.nullable))
        return
    out.length(-1 if value is None else len(value), 4, compact=flexible)
    for each in value or ():
        _write_one(what, out, each, version, flexible, False)


def _write_one(what: Field, out: FieldWriter, value: Any, version: int, flexible: bool, is_nullable: bool) -> None:
    if what.type in _INTEGERS:
        size, signed = _INTEGERS[what.type]
        out.integer(value, size, signed=signed)
        return
    match what.type:
        case "struct":
            if is_nullable and what.tag is None:
                out.integer(-1 if value is None else 1, 1)
            elif is_nullable:
                out.varint(value is not None)
            if value is not None or not is_nullable:
                _write_struct(what.fields, out, value or {}, version, flexible)
        case "bool":
            out.integer(bool(value), 1)
        case "float64":
            out.double(value)
        case "uuid":
            out.put(base64.urlsafe_b64decode(value + "=="))
        case "string":
            data = None if value is None else value.encode("utf-8")
            out.length(-1 if data is None else len(data), 2, compact=flexible)
            out.put(data or b"")
        case "bytes":
            size = len(value) if isinstance(value, bytes | str) else -1 if value is None else value.size
            out.length(size, 4, compact=flexible)
            out.put(value or b"")
        case unknown:
            raise AssertionError(f"a table with a field of type {unknown}")
