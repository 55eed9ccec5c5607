"""
JSON as it is written to state files: one line, ASCII only.

Names of topics, files and users may hold anything a file name can: line breaks, terminal escapes, bytes that are no
UTF-8 (Python's lone surrogates). Everything beyond printable ASCII is escaped, so that no value can end a line, reach a
terminal or fail to be encoded; reading gives back exactly what was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

MOST_VALUES = 4_000_000
"""In a text: each takes some fifty bytes of memory, if only two in the text."""

JsonValue = bool | int | float | str | None | list["JsonValue"] | dict[str, "JsonValue"]


class NotJsonError(ValueError):
    """Text that is no JSON object; says why."""


def format_json(value: Mapping[str, object], *, indent: int | None = None) -> str:
    """
    Write an object.

    Raises:
        TypeError, ValueError: something in it has no JSON form (a path, a set, infinity).
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)


def parse_json(data: bytes) -> dict[str, JsonValue]:
    """
    Read an object.

    Raises:
        NotJsonError: anything else, however odd: not UTF-8, nested too deeply, numbers without end, or too many values.
    """
    # At most one begins at each of these, beside the outermost; those in names and texts count too.
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise NotJsonError(f"more than {MOST_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise NotJsonError("nested too deeply") from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are two of these
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
    raise NotJsonError(f"{name} is no JSON number")
