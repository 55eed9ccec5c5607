"""
Decodes the records of Kafka's internal topics: key and value as JSON, with Kafka's names of fields.

A record of an unknown type or version, or a damaged one, is reported as such, and decoding continues.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from cleaner.errors import UsageError
from cleaner.format.cluster_messages import CLUSTER_RECORDS
from cleaner.format.fields import FieldReader
from cleaner.format.group_messages import GROUP_RECORDS
from cleaner.format.message_schema import Message, parse_table, read_key
from cleaner.format.other_messages import CONSUMER_PROTOCOL, SHARE_RECORDS, TRANSACTION_RECORDS

Decoded = tuple[str | None, str | None]
"""Key and payload as shown; None: the record has none."""

Decoder = Callable[[int, bytes | None, bytes | None], Decoded]
"""Called with offset, key and value of a record."""

_GROUP_METADATA = 2
_FRAME_VERSION = 1
_NUMBERS = {"IntegerDecoder": 4, "LongDecoder": 8}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def coordinator_decoder(table: str) -> Decoder:
    """Return a decoder of a coordinator's records: keys have a type, values a version."""
    messages = parse_table(table)

    def decode(offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        if key is None:
            return f"Error at offset {offset}, skipping. the record has no key", None
        try:
            kind, fields = read_key(messages, key)
            if fields is None:
                return f"Unknown record type {kind} at offset {offset}, skipping.", None
            shown = _json({"type": str(kind), "data": fields})
            return shown, "<DELETE>" if value is None else _value(messages["value", kind], value, kind, table)
        except ValueError as error:
            return f"Error at offset {offset}, skipping. {error}", None

    return decode


def _value(message: Message, value: bytes, kind: int, table: str) -> str:
    read = FieldReader(value)
    version = read.integer(2)
    data = message.read(read, version)
    if table is GROUP_RECORDS and kind == _GROUP_METADATA and data["protocolType"] == "consumer":
        _open_members(data["members"])
    return _json({"version": str(version), "data": data})


def _open_members(members: list[dict[str, Any]]) -> None:
    """Replace the bytes of consumers' subscriptions and assignments by their fields; other content stays as bytes."""
    protocol: Mapping[tuple[str, int], Message] = parse_table(CONSUMER_PROTOCOL)
    for member in members:
        for number, name in enumerate(("subscription", "assignment")):
            message = protocol[name, number]
            try:
                read = FieldReader(base64.b64decode(member[name]))
                # Later versions only add to the end.
                member[name] = message.read(read, min(read.integer(2), message.versions[1]))
            except ValueError:
                continue


def decode_cluster_metadata(offset: int, _key: bytes | None, value: bytes | None) -> Decoded:
    """Decode a record of KRaft's metadata log, which has no key."""
    try:
        read = FieldReader(value or b"")
        frame_version = read.varint()
        if frame_version != _FRAME_VERSION:
            return None, f"Error at {offset}, skipping. frame version {frame_version}, only {_FRAME_VERSION} is known"
        kind, version = read.varint(), read.varint()
        found = [message for (_, number), message in parse_table(CLUSTER_RECORDS).items() if number == kind]
        if not found:
            return None, f"Error at {offset}, skipping. Unknown record type {kind}"
        data = found[0].read(read, version)
    except ValueError as error:
        return None, f"Error at {offset}, skipping. {error}"
    return None, _json({"type": found[0].name, "version": version, "data": data})


def class_decoder(key_class: str, value_class: str) -> Decoder:
    """
    Return a decoder by Kafka's name of it, with or without package.

    Raises:
        UsageError: an unknown decoder.
    """
    read_key, read_value = _reader(key_class), _reader(value_class)

    def decode(_offset: int, key: bytes | None, value: bytes | None) -> Decoded:
        return None if key is None else read_key(key), None if value is None else read_value(value)

    return decode


def _reader(name: str) -> Callable[[bytes], str]:
    short = name.rpartition(".")[2]
    if short in _NUMBERS:
        size = _NUMBERS[short]
        return lambda data: str(int.from_bytes(data[:size], "big", signed=True))
    if short != "StringDecoder":
        raise UsageError(f"{name}: of decoders StringDecoder, IntegerDecoder and LongDecoder are known")
    return lambda data: data.decode("utf-8", "replace")


DECODERS: Mapping[str, Decoder] = {
    "offsets": coordinator_decoder(GROUP_RECORDS),
    "transaction-log": coordinator_decoder(TRANSACTION_RECORDS),
    "share-group-state": coordinator_decoder(SHARE_RECORDS),
    "cluster-metadata": decode_cluster_metadata,
}
"""By the name of Kafka's option without `-decoder`."""
