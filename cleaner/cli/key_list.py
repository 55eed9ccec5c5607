"""Reads a list of record keys that an operator has prepared: a file, or standard input."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from cleaner.base.byte_order import byte_order_mark
from cleaner.errors import UsageError

KeysFormat = Literal["lines", "json"]


def add_key_options(parser: argparse.ArgumentParser, add: Callable[..., object] | None = None) -> None:
    """Declare `--keys`, `--keys-format` and `--key-prefix`; `add` adds the first and the last, to a group."""
    add = add or parser.add_argument
    add("--keys", metavar="FILE", help="the keys, one a line, the bytes as they are (-: standard input)")
    parser.add_argument(
        "--keys-format",
        choices=("lines", "json"),
        default="lines",
        help='json: each line is a JSON string, or {"base64": "..."} (default: lines)',
    )
    add(
        "--key-prefix",
        dest="prefixes",
        metavar="PREFIX",
        action="append",
        default=[],
        help="every key that begins with it; may be repeated",
    )


def given_keys(arguments: argparse.Namespace) -> Iterator[bytes]:
    """Yield the keys of `--keys`, none without it; raises as `read_keys`."""
    if arguments.keys is not None:
        yield from read_keys(arguments.keys, arguments.keys_format)


def given_prefixes(arguments: argparse.Namespace) -> list[bytes]:
    """Return those of `--key-prefix`."""
    return [os.fsencode(prefix) for prefix in arguments.prefixes]


def read_keys(name: str, form: KeysFormat) -> Iterator[bytes]:
    """
    Yield the keys of a list, in its order; of a long list only one line is in memory at a time.

    Args:
        name: of the file; `-` is standard input.
        form: `lines`: each line is a key, its bytes as they are, without the line end; `json`: each line is a JSON
            string, whose UTF-8 is the key, or `{"base64": "..."}`.
    Raises:
        UsageError: no such file, or it cannot be read; or a line that is not JSON of that form. Of `lines` one that is
            empty, or has the line end of another system; of both a byte-order mark before the first key. Such keys are
            rare, and such mistakes are not.
    """
    source = "" if name == "-" else f"{name}: "
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.removesuffix(b"\n")
                if number == 1:
                    _refuse_mark(f"{source}line 1", text, form)
                where = f"{source}line {number}"
                yield _of_line(where, text) if form == "lines" else _of_json(where, text)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error


def _refuse_mark(where: str, line: bytes, form: KeysFormat) -> None:
    if encoding := byte_order_mark(line):  # in UTF-16 no line is the key that its reader sees
        hint = "" if form == "json" else "; if the key has it, --keys-format json can say so"
        raise UsageError(f"{where}: a byte-order mark ({encoding}) before the key; save it as UTF-8, without one{hint}")


def _of_line(where: str, line: bytes) -> bytes:
    if not line:
        raise UsageError(f'{where}: an empty line; if the empty key is meant, --keys-format json has ""')
    if line.endswith(b"\r"):
        reason = "a carriage return before the line end; if the key has it, --keys-format json can say so"
        raise UsageError(f"{where}: {reason}")
    return line


def _of_json(where: str, line: bytes) -> bytes:
    needed = UsageError(f'{where}: a JSON string or {{"base64": "..."}} is needed')
    try:
        value = json.loads(line.decode("utf-8"))
        if isinstance(value, str):
            return value.encode("utf-8")
        if not isinstance(value, dict) or value.keys() != {"base64"} or not isinstance(value["base64"], str):
            raise needed
        return base64.b64decode(value["base64"], validate=True)
    except (ValueError, RecursionError):
        raise needed from None
