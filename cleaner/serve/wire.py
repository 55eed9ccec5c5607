"""
Frames of the wire protocol: a request's header and body read, an answer written.

An answer is a list of pieces, bytes and extents of files: records go from the file to the socket without passing
through this process. Those of a bucket are read first: of what fails while an answer is sent nobody could be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cleaner.format.fields import FieldReader, FieldWriter, Piece
from cleaner.format.message_schema import Message

API_VERSIONS = 18


Values = dict[str, Any]
"""The fields of a message by name."""


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
    """Return the header of a request, without its tagged fields, and the rest. Raises ValueError: there is none."""
    reader = FieldReader(frame)
    # Before the API and its version are known, nothing else is: the first fields are the same in all versions.
    numbers = reader.integer(2), reader.integer(2), reader.integer(4)
    return RequestHeader(*numbers, reader.nullable_text(compact=False) or ""), reader


def read_body(message: Message, header: RequestHeader, reader: FieldReader) -> Values:
    """Return the fields of a request. Raises ValueError or RecursionError: the bytes are not this message."""
    if message.is_flexible(header.version):
        reader.tagged_fields()
    # More bytes behind it are ignored, as by a broker: librdkafka sends some when it asks for all topics.
    return message.read(reader, header.version)


def answer_pieces(message: Message, header: RequestHeader, values: Values) -> list[Piece]:
    """
    Return the whole frame of an answer.

    Args:
        values: the fields by name, as `Message.write` takes them; records are an extent of a file.
    """
    out = FieldWriter()
    out.integer(header.correlation_id, 4)
    if message.is_flexible(header.version) and message.number != API_VERSIONS:
        out.varint(0)  # the header's tagged fields; a client that asks for the versions does not know of them yet
    message.write(out, values, header.version)
    pieces = out.pieces()
    size = sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)
    return [size.to_bytes(4, "big"), *pieces]


def for_each_partition(request: Values, names: tuple[str, str], answer: Callable[[str, Values], Values]) -> Values:
    """Answer for each topic and partition of a request; `names` are those of the fields with topic and number."""
    name, number = names
    topics = []
    for topic in request["topics"]:
        rows = [{number: asked[number], **answer(topic[name], asked)} for asked in topic["partitions"]]
        topics.append({name: topic[name], "partitions": rows})
    return {"topics": topics}
