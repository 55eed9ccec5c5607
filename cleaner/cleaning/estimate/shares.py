"""
Adds up the bytes of names (keys, prefixes, producers) in drawn cells, and says how far the sums may be off.

A name has a row: its bytes by kind, scaled from the drawn cells to the log, and, if the log was not read whole, the
same apart for each section of the log and each tenth of its cells. From these a jackknife makes a range, as for the
estimate of a round: the sums are made again without each tenth. Rows can be added: a prefix has those of its keys.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cleaner.cleaning.estimate.key_sample import GROUPS
from cleaner.cleaning.estimate.unseen_keys import Counts, Floats


class Kind(enum.IntEnum):
    """What a round would do with bytes; the columns of a row."""

    LIVE = 0
    SUPERSEDED = enum.auto()
    TOMBSTONES = enum.auto()
    ABORTED = enum.auto()
    MARKERS = enum.auto()
    WAITING = enum.auto()
    UNREADABLE = enum.auto()


KINDS = len(Kind)
RECORDS = KINDS
"""The column behind the kinds: how many records."""

DEAD = (Kind.SUPERSEDED, Kind.TOMBSTONES, Kind.ABORTED)
SECTIONS = CLEAN, DIRTY, REST = range(3)
VALUES = KINDS + 1

_MEASURES = 3  # of each section and tenth: bytes, dead bytes, live bytes
_MOST_ROWS = 1 << 14
# 95 % of Student's distribution, for two groups to ten.
_QUANTILES = (12.7, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


class Row(NamedTuple):
    """
    The sums of a name.

    Attributes:
        values: bytes by `Kind`, and RECORDS, estimated for the whole log.
        seen: bytes that were read: a lower bound.
        doubts: squares of half the 95 % ranges of the bytes and of the dead bytes; 0 if exact.
    """

    values: Floats
    seen: float
    doubts: Floats


@dataclass(frozen=True, eq=False)
class Design:
    """
    How the cells of a log were drawn.

    Attributes:
        weights: for each section, bytes of the section for each byte drawn.
        without: the same without each tenth of the cells, shape (3, GROUPS).
        shares: the drawn part of each section.
        staying: how many records stay by an estimate without each tenth, as a part of the estimate with all; same
            shape.
        chance_doubt: the part of each section's records about which chance decides; see `KeySample`.
        quantile: of Student's distribution, by the number of cells drawn.
    """

    weights: Floats
    without: Floats
    shares: Floats
    staying: Floats
    chance_doubt: Floats
    quantile: float

    @staticmethod
    def of(
        section_bytes: Counts, section: Counts, group: Counts, sizes: Counts, staying: Floats, chance_doubt: Floats
    ) -> Design:
        """
        Make it of the drawn cells.

        Args:
            section_bytes: of each section.
            section, group, sizes: for each cell its section, its tenth and its bytes.
            staying, chance_doubt: see `Design`.
        """
        drawn = np.zeros((len(SECTIONS), GROUPS))
        np.add.at(drawn, (section, group), sizes)
        whole = drawn.sum(axis=1)
        rest = whole[:, None] - drawn
        weights = section_bytes / np.maximum(1, whole)
        without = np.where(rest > 0, section_bytes[:, None] / np.maximum(1, rest), weights[:, None])
        shares = np.where(section_bytes > 0, whole / np.maximum(1, section_bytes), 1)
        cells = int((shares < 1)[section].sum())
        quantile = _QUANTILES[max(0, min(cells - 2, len(_QUANTILES) - 1))]
        return Design(weights, without, shares, staying, chance_doubt, quantile)

    @property
    def is_exact(self) -> bool:
        """Tell whether everything was drawn."""
        return bool((self.shares >= 1).all())

    @property
    def columns(self) -> int:
        """The length of a row."""
        return VALUES if self.is_exact else VALUES + len(SECTIONS) * GROUPS * _MEASURES

    def spread(self, sums: Floats, section: int, group: int) -> Floats:
        """Make rows of the sums (n, VALUES) of one cell."""
        if self.is_exact:
            return sums
        rows = np.zeros((len(sums), self.columns))
        rows[:, :VALUES] = sums * self.weights[section]
        at = VALUES + (section * GROUPS + group) * _MEASURES
        rows[:, at] = sums[:, :KINDS].sum(axis=1)
        rows[:, at + 1] = sums[:, DEAD].sum(axis=1)
        rows[:, at + 2] = sums[:, Kind.LIVE]
        return rows

    def read(self, rows: Floats) -> list[Row]:
        """Return the sums of rows (n, columns)."""
        values = rows[:, :VALUES]
        if self.is_exact:
            return [Row(each, float(each[:KINDS].sum()), np.zeros(2)) for each in values]
        parts = rows[:, VALUES:].reshape(len(rows), len(SECTIONS), GROUPS, _MEASURES)
        whole = parts.sum(axis=2)
        rest = whole[:, :, None, :] - parts
        doubt = np.sqrt(np.maximum(0, 1 - self.shares))[None, :, None]
        off_bytes = (rest[..., 0] * self.without - (whole[..., 0] * self.weights)[:, :, None]) * doubt
        dead = (rest[..., 1] + (1 - self.staying) * rest[..., 2]) * self.without
        off_dead = (dead - (whole[..., 1] * self.weights)[:, :, None]) * doubt
        doubts = np.stack([(GROUPS - 1) * off.sum(axis=1).var(axis=1) for off in (off_bytes, off_dead)], axis=1)
        doubts[:, 1] += (whole[..., 0] * self.weights @ self.chance_doubt) ** 2
        doubts *= self.quantile**2
        seen = whole[..., 0].sum(axis=1)
        return [Row(*each) for each in zip(values, seen.tolist(), doubts, strict=True)]


class Tally:
    """
    Rows by label. If there are very many, the smallest half of them goes, into one row.

    Attributes:
        names: the name of each row.
        other: the sums of the rows that went.
    """

    def __init__(self, columns: int) -> None:
        self._of: dict[Hashable, int] = {}
        self.names: list[bytes] = []
        self._rows = np.zeros((256, columns))
        self.other: Floats = np.zeros(columns)

    def __len__(self) -> int:
        return len(self._of)

    @property
    def rows(self) -> Floats:
        """The row of each name."""
        return self._rows[: len(self)]

    @property
    def is_full(self) -> bool:
        """Tell whether it is time to `halve`."""
        return len(self) >= 2 * _MOST_ROWS

    def unknown(self, labels: Sequence[Hashable]) -> list[int]:
        """Return the places of labels that have no row yet."""
        return [place for place, label in enumerate(labels) if label not in self._of]

    def name(self, label: Hashable, name: bytes) -> None:
        """Begin a row, if the label has none."""
        if label in self._of:
            return
        self._of[label] = len(self.names)
        self.names.append(name)
        if len(self.names) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])

    def add(self, labels: Sequence[Hashable], rows: Floats) -> None:
        """Add to rows that have begun; a label may occur more than once."""
        np.add.at(self._rows, [self._of[label] for label in labels], rows)

    def halve(self) -> tuple[list[bytes], Floats]:
        """Give up the rows with the fewest bytes; returns their names and sums."""
        size = self.rows[:, :KINDS].sum(axis=1)
        order = np.argsort(-size, kind="stable")
        stay, go = np.sort(order[:_MOST_ROWS]), order[_MOST_ROWS:]
        labels, rows = list(self._of), self.rows
        gone = [self.names[row] for row in go], rows[go]
        self.other += gone[1].sum(axis=0)
        self._rows[: len(stay)], self._rows[len(stay) :] = rows[stay], 0
        self.names = [self.names[row] for row in stay]
        self._of = {labels[row]: place for place, row in enumerate(stay)}
        return gone
