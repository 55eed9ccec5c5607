"""Figures beside what they must be and what they aim at, laid out as tables a README can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

AIM_MET, MUST_MET, MISSED = "aim met", "must met", "MISSED"


class Bounds(NamedTuple):
    """
    What a figure is held to.

    Attributes:
        must: the worst that will do.
        aim: what is wanted; None: no more than `must`.
        at_most: figures are to stay below, not above.
    """

    must: float
    aim: float | None = None
    at_most: bool = False

    def verdict(self, figure: float) -> str:
        """Return `aim met`, `must met` or `MISSED`; without an aim `must` is all there is to meet."""
        if self.aim is not None and self._holds(figure, self.aim):
            return AIM_MET
        return MUST_MET if self._holds(figure, self.must) else MISSED

    def _holds(self, figure: float, bound: float) -> bool:
        return figure <= bound if self.at_most else figure >= bound

    def cells(self, figure: float, unit: str) -> list[str]:
        """Return the last cells of a row: the figure, must, aim and verdict."""
        aim = "" if self.aim is None else f"{self.aim:g}{unit}"
        return [f"{figure:.2f}{unit}", f"{self.must:g}{unit}", aim, self.verdict(figure)]


HELD_TO = ("must", "aim", "")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows under their columns; the first column is text, the others stand to the right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join([title, "", line(columns), line(rule), *map(line, rows), ""])
