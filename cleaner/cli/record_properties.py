"""
The properties of lines that are read and of text that is printed: Kafka's names and defaults.

They are apart from what goes by them, as the help of a command names them, and loads nothing.

Source: `LineMessageReader.java`, `DefaultMessageFormatter.java`.
"""

from __future__ import annotations

READER_PROPERTIES: dict[str, str | None] = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": None,
}
"""Of lines that are read; `null.marker` has no default."""

FORMATTER_PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}
"""Of text that is printed."""


def is_true(text: str | None) -> bool:
    """Tell whether a property says `true`, in any case."""
    return text is not None and text.strip().lower() == "true"
