"""
A log drawn to scale, with its offsets below:

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

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cleaner.cli.fitting import fold
from cleaner.cli.output import Paint

if TYPE_CHECKING:
    from cleaner.policy.sections import Sections

_LEAST_CELLS = 20


class Part(NamedTuple):
    """A part of a log: the sign it is drawn with, its colour, what it is, its offsets (exclusive end) and bytes."""

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
    """Return a log's parts in their order, those without a byte too."""
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
        columns: the terminal's, at least 38; lines are not longer.
        paint: colours for what reads it.
    Returns:
        Lines; none for a log without a byte.
    """
    parts = parts_of(log)
    if not any(part.size for part in parts):
        return []
    # The last labels stand furthest to the right: the widest drawing that leaves room for all of them.
    for width in range(max(_LEAST_CELLS, columns - 1), _LEAST_CELLS - 1, -1):
        cells = share_cells([part.size for part in parts], width)
        markers = _markers(log, cells)
        if max(marker.cell + len(marker.label) for marker in markers) <= columns:
            break
    bar = "".join(paint(part.colour, part.sign * count) for part, count in zip(parts, cells, strict=True))
    return [bar, *_pointers(markers, columns)]


def share_cells(sizes: Sequence[int], width: int) -> list[int]:
    """Share out the cells of a bar by size: at least one for each that is not empty, all of them used."""
    total = sum(sizes)
    ideal = [size * width / total for size in sizes]
    cells = [max(1, int(exact)) if size else 0 for size, exact in zip(sizes, ideal, strict=True)]
    while sum(cells) > width:
        cells[cells.index(max(cells))] -= 1
    while sum(cells) < width:
        missing = [exact - count if count else -1.0 for exact, count in zip(ideal, cells, strict=True)]
        cells[missing.index(max(missing))] += 1
    return cells


def _markers(log: Sections, cells: Sequence[int]) -> list[_Marker]:
    """Return where which offsets are; several at one cell share a label."""
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
    """Draw a line down from each marker to its label, folded where it does not fit, the rightmost label first."""
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
