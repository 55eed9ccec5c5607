"""The memory of a table of producers, which grows before it is full (`kernels/producer_table.py`)."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from cleaner.kernels import producer_table as kernel

Rows = npt.NDArray[np.int64]

_MIN_SLOTS = 64


class ProducerTable:
    """
    A table from producer ids to a few words each.

    Args:
        rows: its first rows, one for each producer.

    Attributes:
        rows: int64, shape (room, kernel.COLUMNS).
        slots: hash slots of the rows.
        key: uint64, one word; random for each table, so that producers have other slots in each.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.key = np.frombuffer(bytearray(os.urandom(8)), np.uint64)
        self._index(len(rows))

    def reserve(self, used: int, more: int) -> int:
        """
        Make room for `more` producers besides the rows in use; rows without state may be removed.

        Returns:
            The number of rows in use afterwards.
        """
        if used + more <= len(self.rows):
            return used
        known = self.rows[:used][self.rows[:used, kernel.STATE] != 0]
        self.rows = np.zeros((2 * (len(known) + more), kernel.COLUMNS), np.int64)
        self.rows[: len(known)] = known
        self._index(len(known))
        return len(known)

    def _index(self, used: int) -> None:
        slots = max(_MIN_SLOTS, 1 << (2 * len(self.rows)).bit_length())
        self.slots = np.zeros(slots, np.int32)
        kernel.index_rows(self.rows, used, self.slots, self.key)
