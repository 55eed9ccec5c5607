"""
The messages of Kafka's wire protocol, by the JSON definitions that Kafka publishes.

The definitions come with the package kafka-python (the extra `serve`), of which only these data files are used: its
decoder trusts the lengths in a frame, and a server must not. They become the tables of `format/message_schema.py`,
which checks every length.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cleaner.errors import UsageError
from cleaner.format.message_schema import Field, Message, default_of, versions_of

PACKAGE = "kafka-python"
_FOLDER = "kafka/protocol/schemas/resources"
_COMMENT_LINE = re.compile(r"^[ \t]*//[^\n]*$", re.MULTILINE)
_NEVER = (1, 0)


@functools.cache
def _package() -> Distribution:
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        raise UsageError(
            f"`cleaner serve` needs the message definitions of the package {PACKAGE}: "
            "pip install 'kafka-log-cleaner[serve]'"
        ) from None


@functools.cache
def definition(name: str) -> Message:
    """
    Return a message, such as `FetchRequest`; its number is the API key.

    Names of fields are Kafka's, with a small first letter.

    Raises:
        UsageError: the package with the definitions is not installed, or another one has its name.
    """
    path = _package().locate_file(f"{_FOLDER}/{name}.json")
    try:
        text = Path(str(path)).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"{PACKAGE} {_package().version} has no definition of {name}; version 3 is needed"
        raise UsageError(f"{reason}: pip install 'kafka-log-cleaner[serve]'") from error
    found = json.loads(_COMMENT_LINE.sub("", text))
    common = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    return Message(
        found["name"],
        found.get("apiKey", -1),
        _range(found["validVersions"]),
        _range(found["flexibleVersions"]),
        [_field(each, common) for each in found["fields"]],
    )


def _field(found: Mapping[str, Any], common: Mapping[str, Any]) -> Field:
    kind: str = found["type"]
    element = kind.removeprefix("[]")
    is_struct = element[0].isupper()
    # What a broker calls records are bytes here.
    name = "struct" if is_struct else "bytes" if element == "records" else element
    field = Field(
        found["name"][0].lower() + found["name"][1:],
        name,
        kind.startswith("[]"),
        _range(found["versions"]),
        _range(found.get("nullableVersions", "none")),
        found.get("tag"),
        None,
    )
    text = found.get("default", "")
    field.default = default_of(field, text if isinstance(text, str) else json.dumps(text))
    if is_struct:
        field.fields = [_field(each, common) for each in found.get("fields") or common[element]]
    return field


def _range(text: str) -> tuple[int, int]:
    return _NEVER if text == "none" else versions_of(text)
