"""Reads a list of record keys that an operator has prepared: a file, or standard input."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Literal

from cleaner.errors import InputError, UsageError

KeysFormat = Literal["lines", "json"]


def read_keys(name: str, form: KeysFormat) -> list[bytes]:
    """
    Read the keys of a list, in its order.

    Args:
        name: of the file; `-` is standard input.
        form: `lines`: each line is a key, its bytes as they are, without the line end; `json`: each line is a JSON
            string, whose UTF-8 is the key, or `{"base64": "..."}`.
    Raises:
        UsageError: no such file, or it cannot be read.
        InputError: a line that is not JSON of that form.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if form == "lines":
        return lines
    source = "" if name == "-" else name
    return [_of_json(number, line, source) for number, line in enumerate(lines, start=1)]


def _of_json(number: int, line: bytes, source: str) -> bytes:
    needed = InputError(number, 'a JSON string or {"base64": "..."} is needed', source)
    try:
        value = json.loads(line.decode("utf-8"))
        if isinstance(value, str):
            return value.encode("utf-8")
        if not isinstance(value, dict) or value.keys() != {"base64"} or not isinstance(value["base64"], str):
            raise needed
        return base64.b64decode(value["base64"], validate=True)
    except (ValueError, RecursionError):
        raise needed from None
