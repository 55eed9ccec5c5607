"""Decodes control records with the tables of their messages."""

from __future__ import annotations

from typing import Any

from cleaner.format.control import ControlType
from cleaner.format.fields import FieldReader
from cleaner.format.message_schema import parse_table
from cleaner.format.other_messages import CONTROL_RECORDS

_MARKERS = (ControlType.ABORT, ControlType.COMMIT)


def control_of(key: bytes | None, value: bytes | None) -> tuple[str, dict[str, Any]]:
    """
    Return the name of a control record's message, and its fields.

    The names are those of Kafka's own dump: `endTxnMarker`, `LeaderChange`, `SnapshotHeader`, ... An unknown type is a
    `controlType`; a damaged record has the field `error`.
    """
    number = int.from_bytes((key or b"")[2:4], "big", signed=True) if key and len(key) >= 4 else -1
    content = FieldReader(value or b"")
    try:
        if number in _MARKERS:
            content.integer(2)
            return "endTxnMarker", {"type": ControlType(number).name, "coordinatorEpoch": content.integer(4)}
        for (name, known), message in parse_table(CONTROL_RECORDS).items():
            if known == number:
                # Each message begins with its version, which decides how to read the rest.
                version = int.from_bytes((value or b"")[:2], "big", signed=True)
                return name, message.read(content, min(version, message.versions[1]))
    except ValueError as error:
        return ControlType(number).name, {"error": str(error)}
    return "controlType", {"type": "UNKNOWN", "number": number}
