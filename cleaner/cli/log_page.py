"""
Parts of a page about one log: its picture, labelled lines, next commands.

The picture is the log drawn to scale, with its offsets below:

    ========-----##################..~~~~~
    |       |    |                 | |    |
    |       |    |                 | |    log end offset 9064
    |       |    |                 | active segment 8424
    |       |    |                 first uncleanable offset 8000
    |       |    first dirty offset 6000
    |       delete retention point 3600
    log start offset 0
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cleaner.base.sizes import human_bytes
from cleaner.cli.fitting import PAGE_COLUMNS, columns, fold, fold_command, page_columns, table
from cleaner.cli.output import Paint, say
from cleaner.present.text import printable

if TYPE_CHECKING:
    from cleaner.policy.sections import Sections

_MIN_CELLS = 20
_LABEL = 12  # width of `last round` and two spaces


class LogPage:
    """Prints a page to standard output, as wide as the terminal; with colours if it shows them."""

    def __init__(self) -> None:
        self._columns = page_columns()
        self._paint = Paint(sys.stdout)

    def head(self, partition: str, log_dir: str, facts: Iterable[str]) -> None:
        """Print which log it is."""
        say(self._paint("bold", printable(partition)) + printable(f" in {log_dir}"))
        say(printable(", ".join(facts)))

    def sections(self, log: Sections) -> None:
        """Draw a log to scale, and list its parts below."""
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
        """Print a label and words, folded; nothing without words."""
        if not words:
            return
        width = None if self._columns is None else self._columns - _LABEL
        for number, line in enumerate(fold(printable(words), width, "")):
            print(f"{'' if number else label:<{_LABEL}}{self._paint(colour, line) if colour else line}")

    def commands(self, commands: Iterable[tuple[str, str]]) -> None:
        """Print the next commands and their effects; a long command gets its own lines."""
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


class Part(NamedTuple):
    """A part of a log: the character it is drawn with, its colour, its name, its offsets (exclusive end) and bytes."""

    sign: str
    colour: str
    name: str
    start_offset: int
    end_offset: int
    size: int


class _Marker(NamedTuple):
    cell: int
    label: str


def parts_of(log: Sections) -> list[Part]:
    """Return a log's parts in order, including empty ones."""
    retained_from = log.log_start_offset if log.delete_retention_offset is None else log.delete_retention_offset
    old_bytes = min(log.delete_retention_bytes, log.clean_bytes)
    first_dirty, first_uncleanable, active = (
        log.first_dirty_offset,
        log.first_uncleanable_offset,
        log.active_base_offset,
    )
    return [
        Part("=", "green", "clean, tombstones may go", log.log_start_offset, retained_from, old_bytes),
        Part("-", "green", "clean, tombstones stay", retained_from, first_dirty, log.clean_bytes - old_bytes),
        Part("#", "yellow", "dirty", first_dirty, first_uncleanable, log.dirty_bytes),
        Part(".", "grey", "uncleanable for now", first_uncleanable, active, log.uncleanable_bytes),
        Part("~", "blue", "active segment", active, log.log_end_offset, log.active_bytes),
    ]


def picture(log: Sections, columns: int, paint: Paint) -> list[str]:
    """
    Draw a log; see the head of the file.

    Args:
        log: to be drawn.
        columns: of the terminal, at least 38; lines are not longer.
        paint: colours for the output stream.
    Returns:
        Lines; none for an empty log.
    """
    from cleaner.policy.sections import shared

    parts = parts_of(log)
    if not any(part.size for part in parts):
        return []
    # The last labels are furthest to the right: use the widest drawing that leaves room for all of them.
    for width in range(max(_MIN_CELLS, columns - 1), _MIN_CELLS - 1, -1):
        cells = shared([part.size for part in parts], width)
        markers = _markers(log, cells)
        if max(marker.cell + len(marker.label) for marker in markers) <= columns:
            break
    bar = "".join(paint(part.colour, part.sign * count) for part, count in zip(parts, cells, strict=True))
    return [bar, *_pointers(markers, columns)]


def _markers(log: Sections, cells: Sequence[int]) -> list[_Marker]:
    """Return the cells of the marked offsets; several in one cell share a label."""
    ends = [sum(cells[:count]) for count in range(len(cells) + 1)]
    found = [(ends[0], "log start offset", log.log_start_offset)]
    if log.delete_retention_offset is not None:
        found.append((ends[1], "delete retention point", log.delete_retention_offset))
    found += [
        (ends[2], "first dirty offset", log.first_dirty_offset),
        (ends[3], "first uncleanable offset", log.first_uncleanable_offset),
        (ends[4], "active segment", log.active_base_offset),
        (ends[5], "log end offset", log.log_end_offset),
    ]
    labels: dict[int, list[str]] = {}
    for place, (cell, name, offset) in enumerate(found):
        follows_equal = place + 1 < len(found) and (found[place + 1][0], found[place + 1][2]) == (cell, offset)
        labels.setdefault(cell, []).append(name if follows_equal else f"{name} {offset}")
    return [_Marker(cell, ", ".join(names)) for cell, names in labels.items()]


def _pointers(markers: Sequence[_Marker], columns: int) -> list[str]:
    """Draw a line down from each marker to its label, folded if needed, the rightmost label first."""
    lines = []
    for count in range(len(markers), 0, -1):
        line = [" "] * markers[count - 1].cell
        for marker in markers[: count - 1]:
            line[marker.cell] = "|"
        if count == len(markers):
            lines.append("".join(line) + "|")
        cell, label = markers[count - 1]
        lines += ["".join(line) + part for part in fold(label, columns - cell, "")]
    return lines
