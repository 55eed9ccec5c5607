"""
Frames of the wire protocol: a request's header and body read, an answer written.

An answer is a list of pieces, bytes and extents of files: records go from the file to the socket without passing
through this process.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cleaner.format.fields import FieldReader
from cleaner.format.message_schema import Field, Message

Values = Mapping[str, Any]
"""The fields of a message by name; those left out have their default."""

API_VERSIONS = 18
_FORMATS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "uint32": ">I"} | {
    "bool": ">?",
    "float64": ">d",
}
_LENGTH = struct.Struct(">i")


class Sized(Protocol):
    """Records in a file."""

    @property
    def size(self) -> int:
        """Bytes."""


Piece = bytes | Sized


class BadFrameError(ValueError):
    """The bytes are not a request."""


@dataclass(frozen=True)
class RequestHeader:
    """What every request begins with."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str


def read_header(frame: bytes) -> tuple[RequestHeader, FieldReader]:
    """Return the header of a request, without its tagged fields, and the rest. Raises BadFrameError."""
    reader = FieldReader(frame)
    try:
        # Before the API and its version are known, nothing else is: the first fields are the same in all versions.
        return RequestHeader(
            reader.integer(2), reader.integer(2), reader.integer(4), reader.nullable_text(compact=False) or ""
        ), reader
    except ValueError as error:
        raise BadFrameError(str(error)) from error


def read_body(message: Message, header: RequestHeader, reader: FieldReader) -> dict[str, Any]:
    """Return the fields of a request. Raises BadFrameError: the bytes are not this message."""
    try:
        if is_flexible(message, header.version):
            reader.tagged_fields()
        # More bytes behind it are ignored, as by a broker: librdkafka sends some when it asks for all topics.
        return message.read(reader, header.version)
    except (ValueError, RecursionError) as error:
        raise BadFrameError(str(error)) from error


def is_flexible(message: Message, version: int) -> bool:
    """Tell whether a version has compact lengths and tagged fields."""
    return message.flexible[0] <= version <= message.flexible[1]


def answer_pieces(message: Message, header: RequestHeader, values: Values) -> list[Piece]:
    """
    Return the whole frame of an answer.

    Args:
        values: bytes are `bytes` or an extent, ids are Kafka's text of them.
    """
    out = _Writer()
    out.number("int32", header.correlation_id)
    flexible = is_flexible(message, header.version)
    if flexible and message.number != API_VERSIONS:
        out.varint(0)  # the header's tagged fields; a client that asks for the versions does not know of them yet
    _write_struct(out, message.fields, values, header.version, flexible)
    pieces = out.pieces()
    size = sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)
    return [_LENGTH.pack(size), *pieces]


class _Writer:
    def __init__(self) -> None:
        self._done: list[Piece] = []
        self._open = bytearray()

    def number(self, kind: str, value: Any) -> None:
        self._open += struct.pack(_FORMATS[kind], value)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self._open.append(value & 0x7F | 0x80)
            value >>= 7
        self._open.append(value)

    def length(self, kind: str, value: int, flexible: bool) -> None:
        """Write a length, -1 for null."""
        if flexible:
            self.varint(value + 1)
        else:
            self.number(kind, value)

    def put(self, data: Piece) -> None:
        if isinstance(data, bytes):
            self._open += data
        else:
            self._done += [bytes(self._open), data]
            self._open = bytearray()

    def pieces(self) -> list[Piece]:
        return [*self._done, bytes(self._open)] if self._open or not self._done else self._done


def _write_struct(out: _Writer, fields: Sequence[Field], values: Values, version: int, flexible: bool) -> None:
    tagged: list[tuple[Field, Any]] = []
    for each in fields:
        if not each.versions[0] <= version <= each.versions[1]:
            continue
        value = values.get(each.name, each.default)
        if each.tag is None or not flexible:
            _write(out, each, value, version, flexible)
        elif value != each.default:
            tagged.append((each, value))
    if flexible:
        out.varint(len(tagged))
        for each, value in sorted(tagged, key=lambda pair: pair[0].tag or 0):
            content = _Writer()
            _write(content, each, value, version, flexible)
            out.varint(each.tag or 0)
            data = b"".join(piece for piece in content.pieces() if isinstance(piece, bytes))
            out.varint(len(data))
            out.put(data)


def _write(out: _Writer, what: Field, value: Any, version: int, flexible: bool) -> None:
    if not what.is_array:
        _write_one(out, what, value, version, flexible)
        return
    out.length("int32", -1 if value is None else len(value), flexible)
    for each in value or ():
        _write_one(out, what, each, version, flexible, in_array=True)


def _write_one(out: _Writer, what: Field, value: Any, version: int, flexible: bool, *, in_array: bool = False) -> None:
    match what.type:
        case "struct":
            if not in_array and what.nullable[0] <= version <= what.nullable[1]:
                out.number("int8", -1 if value is None else 1)
                if value is None:
                    return
            _write_struct(out, what.fields, value or {}, version, flexible)
        case "string":
            data = None if value is None else value.encode("utf-8")
            out.length("int16", -1 if data is None else len(data), flexible)
            out.put(data or b"")
        case "bytes":
            size = -1 if value is None else len(value) if isinstance(value, bytes) else value.size
            out.length("int32", size, flexible)
            out.put(b"" if value is None else value)
        case "uuid":
            out.put(base64.urlsafe_b64decode(value + "=="))
        case kind:
            out.number(kind, value)
