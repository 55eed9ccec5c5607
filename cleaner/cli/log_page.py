"""Pieces of a page about one log, whoever knows about it: its picture, labelled words, what to type next."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.fitting import PAGE_COLUMNS, columns, fold, fold_command, page_columns, table
from cleaner.cli.output import Paint, say
from cleaner.cli.picture import parts_of, picture
from cleaner.present.text import printable

if TYPE_CHECKING:
    from cleaner.policy.sections import Sections

_LABEL = 12  # width of `last round` and two spaces


class LogPage:
    """Prints a page to standard output, as wide as the terminal is; colours where it shows them."""

    def __init__(self) -> None:
        self._columns = page_columns()
        self._paint = Paint(sys.stdout)

    def head(self, partition: str, log_dir: str, facts: Iterable[str]) -> None:
        """Say whose log it is."""
        say(self._paint("bold", printable(partition)) + printable(f" in {log_dir}"))
        say(printable(", ".join(facts)))

    def sections(self, log: Sections) -> None:
        """Draw a log to scale, its parts below."""
        drawn = picture(log, (self._columns or PAGE_COLUMNS) - 2, self._paint)
        if drawn:
            print()
        for line in drawn:
            print("  " + line)
        rows = [
            (part.sign, part.name, f"{part.start_offset}", f"{part.end_offset}", human_bytes(part.size))
            for part in parts_of(log)
        ]
        self.table(("", "part", "from offset", "to", "size"), rows, left=frozenset((0, 1)))

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: frozenset[int]) -> None:
        """Print a table that is no wider than the page."""
        most = None if self._columns is None else self._columns - 2
        print("\n" + textwrap.indent(table(headings, rows, left=left, most=most, names=()), "  "))

    def words(self, label: str, words: str, colour: str = "") -> None:
        """Print a label and words, in as many lines as they take; nothing without words."""
        if not words:
            return
        width = None if self._columns is None else self._columns - _LABEL
        for number, line in enumerate(fold(printable(words), width, "")):
            print(f"{'' if number else label:<{_LABEL}}{self._paint(colour, line) if colour else line}")

    def commands(self, commands: Iterable[tuple[str, str]]) -> None:
        """Print what may be typed next, and what it does; a long command has lines of its own."""
        shown = [(printable(command), what) for command, what in commands]
        fitting = [len(command) for command, what in shown if self._fits(command, what)]
        width = max(fitting, default=0)
        for number, (command, what) in enumerate(shown):
            label = "" if number else "next"
            if self._fits(command, what):
                print(f"{label:<{_LABEL}}{self._paint('bold', command.ljust(width))}  {what}")
            else:
                first, *others = fold_command(command, columns(), " " * _LABEL)
                print(f"{label:<{_LABEL}}{self._paint('bold', first.strip())}")
                for line in others:
                    print(self._paint("bold", line))
                say(f"{'':<{_LABEL}}  {what}", hang=" " * (_LABEL + 2))

    def _fits(self, command: str, what: str) -> bool:
        return self._columns is None or _LABEL + len(command) + 2 + len(what) <= self._columns
