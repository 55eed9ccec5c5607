"""JSON in keys and values of records: whatever it is, reading it raises nothing but ValueError."""

from __future__ import annotations

import json
from typing import Any

from cleaner.base.json_values import parse_json

_MAX_VALUES = 1_000_000


def parse_object(data: bytes | None, what: str) -> dict[str, Any]:
    """
    Parse a JSON object.

    Args:
        what: `key` or `value`, for the reason.
    Raises:
        ValueError: it is not one; the reason names no byte of it.
    """
    try:
        return parse_json(data or b"", max_values=_MAX_VALUES)
    except ValueError as error:
        raise ValueError(f"a {what} that is not a JSON object") from error


def parse_list(data: bytes, what: str) -> list[Any]:
    """Parse a JSON list, likewise."""
    found: list[Any] | Any = parse_object(b'{"list":' + data + b"}", what)["list"]
    if not isinstance(found, list):
        raise ValueError(f"a {what} that is not a JSON list")
    return found


def compact(value: object) -> str:
    """Return a value as JSON in one form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
