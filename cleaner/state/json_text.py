"""
JSON for state files: one line, ASCII only.

Names of topics, files and users may contain everything that a file name can: line breaks, terminal escapes, bytes that
are not UTF-8 (Python's lone surrogates). Everything except printable ASCII is escaped, so that no value can end a line,
control a terminal or fail to be encoded; reading returns exactly what was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

MOST_VALUES = 4_000_000
"""Most values accepted in a text: each takes some fifty bytes of memory, and may take only two in the text."""

JsonValue = bool | int | float | str | None | list["JsonValue"] | dict[str, "JsonValue"]


class NotJsonError(ValueError):
    """The text is not a JSON object; the message says why."""


def format_json(value: Mapping[str, object], *, indent: int | None = None) -> str:
    """
    Return an object as JSON.

    Raises:
        TypeError, ValueError: a value in it has no JSON form (a path, a set, infinity).
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)


def parse_json(data: bytes) -> dict[str, JsonValue]:
    """
    Parse an object.

    Raises:
        NotJsonError: anything else: not UTF-8, nested too deeply, infinite numbers, too many values.
    """
    # At most one value begins at each of these, besides the outermost; those inside strings are counted too.
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise NotJsonError(f"more than {MOST_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise NotJsonError("nested too deeply") from error
    except ValueError as error:  # includes UnicodeDecodeError and JSONDecodeError
        raise NotJsonError(str(error)) from error
    if not isinstance(value, dict):
        raise NotJsonError("not a JSON object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJsonError("a number beyond all bounds")
    return number


def _refuse_constant(name: str) -> float:
    raise NotJsonError(f"{name} is not a JSON number")
