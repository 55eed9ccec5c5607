"""How a command answers: JSON lines for programs, an aligned table for people, errors one line each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from cleaner.cli.advice import advice
from cleaner.cli.words import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cleaner.api.reports import Refusal
    from cleaner.errors import CleanerError
    from cleaner.state.json_text import JsonValue


FORMAT_VERSION = 1
"""Of every object a command prints: a field that goes or means something else is another version (docs/json.md)."""


def json_line(kind: str, value: DataclassInstance | Mapping[str, object], **more: object) -> str:
    """
    Return one object as a line of JSON, ASCII only, what it is before everything else: all that commands print is made
    here.

    Args:
        kind: `plan` for `"format": "cleaner-plan"`, listed in docs/json.md.
        value: a frozen report, whose fields' names count, or names with their values.
        more: fields behind those of the value.
    """
    from cleaner.daemon.snapshot_json import json_value
    from cleaner.state.json_text import format_json

    fields = json_value(value)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(value).__name__} is no report")
    head: dict[str, JsonValue] = {"format": f"cleaner-{kind}", "format_version": FORMAT_VERSION}
    return format_json(head | fields | {name: json_value(each) for name, each in more.items()})


def refusal_line(refusal: Refusal, kind: str) -> str:
    """Return a refused partition as one line of JSON: its name, `error` in words, and what to do `next`."""
    told = {"partition": refusal.partition, "error": str(refusal.error), "next": advice(refusal.error)}
    return json_line(kind, told)


def print_answer(answer: Mapping[str, object]) -> None:
    """Print what a daemon answered to a wish as one line of JSON."""
    print(json_line("answer", answer))


def print_error(message: str, stream: TextIO | None = None) -> None:
    """Print one clear line: what is wrong, with newlines and control characters made visible."""
    print(f"cleaner: {printable(message)}", file=sys.stderr if stream is None else stream)


def print_failure(error: CleanerError, partition: str = "") -> None:
    """Print an error, of a partition where one is named, and below it what to do next, where that is known."""
    print_error(f"{partition}: {error}" if partition else str(error))
    what_next = advice(error)
    if what_next:
        print(f"  next: {printable(what_next)}", file=sys.stderr)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: frozenset[int] = frozenset((0,)),
    most: int | None = None,
    shrinking: Sequence[int] = (),
) -> str:
    """
    Lay out a table; numbers stand right, the columns in `left` stand left.

    Args:
        headings: one a column.
        rows: as many texts each.
        left: columns of words.
        most: how long a line may be; None: as long as it takes.
        shrinking: columns whose texts are shortened for that, the first as far as it takes.
    """
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    if most is not None:
        _narrow(lines, widths, most, shrinking)
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


_LEAST_WIDTH = 16


def _narrow(lines: list[list[str]], widths: list[int], most: int, shrinking: Sequence[int]) -> None:
    """Shorten texts, from the middle, where lines would be too long."""
    for column in shrinking:
        excess = sum(widths) + 2 * (len(widths) - 1) - most
        if excess <= 0:
            return
        widths[column] = max(min(widths[column], _LEAST_WIDTH), widths[column] - excess)
        for line in lines:
            line[column] = shortened(line[column], widths[column])


def shortened(text: str, width: int) -> str:
    """Return a text with its middle left out where it is too long: both ends of a partition's name tell it apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
