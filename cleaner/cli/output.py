"""How a command answers: JSON lines for programs, an aligned table for people, errors one line each."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from cleaner.cli.advice import advice
from cleaner.cli.words import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cleaner.api.reports import Refusal
    from cleaner.errors import CleanerError


def json_line(value: DataclassInstance) -> str:
    """Return a frozen report as one line of JSON; names are the fields'."""
    return json.dumps(dataclasses.asdict(value), ensure_ascii=False)


def refusal_line(refusal: Refusal) -> str:
    """Return a refused partition as one line of JSON: its name, `error` in words, and what to do `next`."""
    told = {"partition": refusal.partition, "error": str(refusal.error), "next": advice(refusal.error)}
    return json.dumps(told, ensure_ascii=False)


def print_answer(answer: Mapping[str, object]) -> None:
    """Print what a daemon answered as one line of JSON, ASCII only."""
    print(json.dumps(answer))


def print_error(message: str, stream: TextIO | None = None) -> None:
    """Print one clear line: what is wrong, with newlines and control characters made visible."""
    print(f"cleaner: {printable(message)}", file=sys.stderr if stream is None else stream)


def print_failure(error: CleanerError, partition: str = "") -> None:
    """Print an error, of a partition where one is named, and below it what to do next, where that is known."""
    print_error(f"{partition}: {error}" if partition else str(error))
    what_next = advice(error)
    if what_next:
        print(f"  next: {printable(what_next)}", file=sys.stderr)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: frozenset[int] = frozenset((0,))) -> str:
    """
    Lay out a table; numbers stand right, the columns in `left` stand left.

    Args:
        headings: one a column.
        rows: as many texts each.
        left: columns of words.
    """
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
