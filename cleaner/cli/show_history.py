"""How `cleaner history` shows the journal."""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.base.sizes import human_bytes, human_rate
from cleaner.cli.output import json_line, say_table
from cleaner.present.formatting import moment, printable
from cleaner.state.journal import JournalEntry
from cleaner.state.json_text import JsonValue

_HEADINGS = ("time", "what", "of", "details")


def show_history(entries: Sequence[JournalEntry], form: str) -> None:
    """Print entries in the order given, as a table or one object a line."""
    if form == "json":
        for entry in entries:
            print(json_line("history", entry))
    elif entries:
        say_table(_HEADINGS, map(_row, entries), left=frozenset(range(4)), names=(2,))


def _row(entry: JournalEntry) -> tuple[str, ...]:
    details = "  ".join(f"{name}={_words(name, value)}" for name, value in entry.details.items())
    return (moment(entry.time_ms), printable(entry.kind), printable(entry.partition or "-"), printable(details))


def _words(name: str, value: JsonValue) -> str:
    """Write a detail by what its name says it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "bytes" in name.split("_"):
            return human_rate(value) if name.endswith("_per_second") else human_bytes(value)
        if isinstance(value, int) and name.endswith("_ms"):
            return moment(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_words(key, inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_words("", inner) for inner in value) + "]"
    return "-" if value is None else str(value)
