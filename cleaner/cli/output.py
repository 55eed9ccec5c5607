"""How a command answers: JSON lines for programs, words and tables that fit the terminal for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from cleaner.cli.advice import advice
from cleaner.cli.fitting import columns, fold, fold_command, table
from cleaner.cli.words import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cleaner.api.reports import Refusal
    from cleaner.errors import CleanerError


FORMAT_VERSION = 1
"""Of every object a command prints: a field that goes or means something else is another version (docs/json.md)."""


def json_line(value: DataclassInstance, kind: str, **more: object) -> str:
    """
    Return a frozen report as one line of JSON; names are the fields'.

    Args:
        value: the report.
        kind: what it is: `plan` for `"format": "cleaner-plan"`.
        more: fields behind those of the report.
    """
    from cleaner.daemon.snapshot_json import json_value

    fields = json_value(value)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(value).__name__} is no report")
    return json.dumps(_head(kind) | fields | more, ensure_ascii=False)


def object_line(kind: str, fields: Mapping[str, object]) -> str:
    """Return fields as one line of JSON, ASCII only; `kind` as for `json_line`."""
    return json.dumps(_head(kind) | dict(fields))


def refusal_line(refusal: Refusal, kind: str, what_next: str = "") -> str:
    """Return a refused partition as one line of JSON: its name, `error` in words, and what to do `next`."""
    told = {"partition": refusal.partition, "error": str(refusal.error), "next": what_next or advice(refusal.error)}
    return json.dumps(_head(kind) | told, ensure_ascii=False)


def _head(kind: str) -> dict[str, object]:
    return {"format": f"cleaner-{kind}", "format_version": FORMAT_VERSION}


def print_answer(answer: Mapping[str, object]) -> None:
    """Print what a daemon answered as one line of JSON, ASCII only."""
    print(json.dumps(answer))


def say(text: str = "", *, stream: TextIO | None = None, hang: str = "  ") -> None:
    """Print a line for people, folded to the terminal; `hang`: what further lines of it begin with."""
    stream = sys.stdout if stream is None else stream
    print("\n".join(fold(text, columns(stream), hang)), file=stream)


def say_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[int] = frozenset((0,)),
    names: Collection[int] = (0,),
) -> None:
    """Print a table that fits the terminal; see `fitting.table`."""
    print(table(headings, rows, left=left, most=columns(), names=names))


def print_error(message: str, stream: TextIO | None = None) -> None:
    """Print what is wrong, with newlines and control characters made visible; one line but on a narrow terminal."""
    say(f"cleaner: {printable(message)}", stream=sys.stderr if stream is None else stream)


def print_failure(error: CleanerError, partition: str = "", what_next: str = "") -> None:
    """Print an error, of a partition where one is named, and below it what to do next, where that is known."""
    words = str(error)
    print_error(f"{partition}: {error}" if partition and not words.startswith(f"{partition}: ") else words)
    print_next(what_next or advice(error))


def print_next(words: str) -> None:
    """Print on standard error what to do next: words with commands in backticks, or one command and nothing else."""
    if words.startswith("cleaner "):
        first, *others = fold_command(printable(words), columns(sys.stderr), "  next: ")
        print("\n".join([first, *others]), file=sys.stderr)
    elif words:
        say(f"  next: {printable(words)}", stream=sys.stderr, hang="    ")
