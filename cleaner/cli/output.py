"""The output of commands: JSON lines for programs; words and tables that fit the terminal for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

from cleaner.base.json_values import described, format_json
from cleaner.base.sizes import duration
from cleaner.cli.advice import advice
from cleaner.cli.fitting import columns, flush_printed, fold, fold_command, table
from cleaner.present.text import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cleaner.app.reports import Refusal
    from cleaner.errors import CleanerError


Shown = TypeVar("Shown", bound="DataclassInstance")

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90", "bold": "1"}


def json_line(kind: str, value: DataclassInstance | Mapping[str, object], **more: object) -> str:
    """Return one object as a line of JSON, ASCII only; makes all JSON that commands print. See `described`."""
    return format_json(described(kind, value, **more))


def say_refusal(refusal: Refusal, kind: str, form: str, what_next: str = "") -> int:
    """
    Print that a partition was refused and what to do next; with `--format json` also as a line on standard output.

    Returns:
        The exit code for it.
    """
    if form == "json":
        following = what_next or advice(refusal.error)
        fields = {"partition": refusal.partition, "error": str(refusal.error), "next": following}
        print(json_line(kind, fields), flush=True)
    print_failure(refusal.error, refusal.partition, what_next)
    return refusal.error.exit_code


def print_answer(answer: Mapping[str, object]) -> None:
    """Print a daemon's answer as one line of JSON."""
    print(json_line("answer", answer))


def say(text: str = "", *, stream: TextIO | None = None, hang: str = "  ") -> None:
    """Print a line for people, folded to the terminal; `hang`: the start of its further lines."""
    if stream is not None:
        flush_printed()
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


class Paint:
    """
    Colours text for a terminal; leaves it unchanged for other streams, or if NO_COLOR is set.

    Args:
        stream: to which the text will be written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._is_on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, colour: str, text: str) -> str:
        """Return the text in `red`, `green`, `yellow`, `blue`, `grey` or `bold`."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._is_on and text else text


def say_all(
    values: Sequence[Shown],
    kind: str,
    form: str,
    headings: Sequence[str],
    row: Callable[[Shown], Sequence[str]],
    *,
    left: Collection[int] = frozenset((0,)),
    names: Collection[int] = (0,),
) -> None:
    """Print reports: with `--format json` one line each, otherwise as a table, if there are any; see `say_table`."""
    if form == "json":
        for value in values:
            print(json_line(kind, value))
    elif values:
        say_table(headings, map(row, values), left=left, names=names)


def print_error(message: str) -> None:
    """Print an error, with newlines and control characters escaped; one line except on a narrow terminal."""
    say(f"cleaner: {printable(message)}", stream=sys.stderr)


def print_failure(error: CleanerError, partition: str = "", what_next: str = "") -> None:
    """Print an error, of a partition if one is named, and below it what to do next, if known."""
    words = str(error)
    print_error(f"{partition}: {error}" if partition and not words.startswith(f"{partition}: ") else words)
    print_next(what_next or advice(error))


def print_next(words: str) -> None:
    """Print on standard error what to do next: words with commands in backticks, or only one command."""
    if words.startswith("cleaner "):
        first, *others = fold_command(printable(words), columns(sys.stderr), "  next: ")
        flush_printed()
        print("\n".join([first, *others]), file=sys.stderr)
    elif words:
        say(f"  next: {printable(words)}", stream=sys.stderr, hang="    ")


def print_rules(version: str, origin: str) -> None:
    """Print on standard error which Kafka's rules apply, and why."""
    if version:
        say(f"rules of Kafka {version} ({printable(origin)})", stream=sys.stderr, hang="    ")


def view_words(name: str, merged: int | None) -> str:
    """
    Say what a topic's key view makes different from Kafka.

    Args:
        name: of the view.
        merged: keys that are only another writing of a key; None: not counted.
    """
    keys = "an unknown number of keys" if merged is None else "1 key" if merged == 1 else f"{merged} keys"
    are = "is another writing" if merged == 1 else "are other writings"
    return f"cleaner.key.view={name}: {keys} {are} of a later key, whose records Kafka would keep"


def survivor_words(rule: str, outranked: int | None = None) -> str:
    """
    Say what a topic's survivor rule makes different from Kafka.

    Args:
        rule: `cleaner.survivor`.
        outranked: last records of their keys that went; None: not counted.
    """
    what = {"timestamp": "the record with the latest timestamp"}
    stays = what.get(rule, f"the record with the greatest number in its header {rule.partition(':')[2]!r}")
    counted = "" if outranked is None else f"; {outranked} last records went, which Kafka would keep"
    return f"cleaner.survivor={rule}: of each key {stays} stays, not the last one{counted}"


def ttl_words(ttl_ms: int, expired: int | None = None) -> str:
    """
    Say what a topic's `cleaner.record.ttl.ms` makes different from Kafka.

    Args:
        ttl_ms: the setting.
        expired: records that became tombstones; None: not counted.
    """
    what = "records older than that become tombstones" if expired is None else f"{expired} records became tombstones"
    return f"cleaner.record.ttl.ms={ttl_ms} ({duration(ttl_ms)}): {what}, which Kafka would keep"
