"""
The keys met in drawn cells of a log, as digests.

Of very many keys only those are kept whose digest is below a threshold: a random part of all keys, with all that was
met of each, so that memory is bounded and nothing is misjudged for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner.format.key_digests import Words

_MOST_RECORDS = 1 << 22
_ALL = np.uint64(2**64 - 1)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MetKeys:
    """
    What was met, one row a key.

    Attributes:
        digests: ascending.
        cells: in how many of the cells asked for.
        last_record: the row of its last record among all records kept.
    """

    digests: Words
    cells: Counts
    last_record: Counts

    def times(self, digests: Words) -> Counts:
        """Return in how many cells each of some digests was met; 0 for those that were not."""
        if not len(self.digests):
            return np.zeros(len(digests), np.int64)
        place = np.minimum(np.searchsorted(self.digests, digests), len(self.digests) - 1)
        times: Counts = np.where(self.digests[place] == digests, self.cells[place], 0)
        return times


class KeySample:
    """
    Collects digests cell by cell, in log order.

    Attributes:
        keys: the SipHash key, of two words.
        threshold: the largest digest kept.
        records: how many records with a key there were, kept or not.
    """

    def __init__(self) -> None:
        self.keys: Words = np.frombuffer(bytearray(os.urandom(16)), np.uint64)
        self.threshold = _ALL
        self.records = 0
        self._digests: list[Words] = []
        self._kept = 0

    @property
    def part(self) -> float:
        """The part of all keys that is kept."""
        return (float(self.threshold) + 1) / 2**64

    def begin_cell(self) -> None:
        """Begin the next cell."""
        self._digests.append(np.zeros(0, np.uint64))

    def add(self, digests: Words) -> None:
        """Add the digests of a cell's records, in order."""
        self.records += len(digests)
        kept = digests[digests <= self.threshold]
        self._digests[-1] = np.concatenate([self._digests[-1], kept])
        self._kept += len(kept)
        while self._kept > _MOST_RECORDS:
            self.threshold >>= np.uint64(1)
            self._digests = [digests[digests <= self.threshold] for digests in self._digests]
            self._kept = sum(map(len, self._digests))

    def first_rows(self) -> Counts:
        """Return for each cell, and for the end, how many records were kept before it."""
        return np.concatenate([[0], np.cumsum([len(kept) for kept in self._digests])]).astype(np.int64)

    def records_of(self, cells: Counts) -> tuple[Words, Counts]:
        """Return the digests of the records kept of some cells, and their rows among all."""
        rows = self.first_rows()
        digests = [self._digests[cell] for cell in cells.tolist()]
        places = [np.arange(rows[cell], rows[cell + 1]) for cell in cells.tolist()]
        return np.concatenate([np.zeros(0, np.uint64), *digests]), np.concatenate([np.zeros(0, np.int64), *places])

    def met(self, cells: Counts) -> MetKeys:
        """Return the keys met in some cells, given as ascending numbers among those that were begun."""
        digests, place = self.records_of(cells)
        of_cell = np.repeat(cells, [len(self._digests[cell]) for cell in cells.tolist()])
        order = np.argsort(digests, kind="stable")
        digests, of_cell, place = digests[order], of_cell[order], place[order]
        is_new_key = np.ones(len(digests), np.bool_)
        is_new_key[1:] = digests[1:] != digests[:-1]
        is_new_cell = is_new_key.copy()
        is_new_cell[1:] |= of_cell[1:] != of_cell[:-1]
        begins = np.flatnonzero(is_new_key)
        if not len(begins):
            return MetKeys(digests, np.zeros(0, np.int64), np.zeros(0, np.int64))
        counts = np.add.reduceat(is_new_cell.astype(np.int64), begins)
        return MetKeys(digests[begins], counts, place[np.append(begins[1:], len(digests)) - 1])
