"""
The batches that a table has unpacked last, where its kernel finds them (`kernels/table.py` has the layout).

A ring of bytes: each batch is written behind the one before, over the oldest. The system gives its memory when it is
written for the first time, so a table without compressed batches uses none.
"""

from __future__ import annotations

import numpy as np

from cleaner.format.chunks import Bytes
from cleaner.format.layout import Layout, Longs
from cleaner.kernels import table as kernel

ROOM_BYTES = 64 << 20
SHELVES = 1 << 16
_WORD_BYTES = 8


class UnpackedBatches:
    """
    The ring.

    Attributes:
        arguments: what `kernel.read_values` wants of it.
    """

    def __init__(self) -> None:
        self._data: Bytes = np.zeros(ROOM_BYTES, np.uint8)
        self._words: Longs = self._data.view(np.int64)
        self._shelves: Longs = np.zeros(SHELVES * kernel.SHELF_WORDS, np.int64)
        self._written: Longs = np.zeros(1, np.int64)
        self.arguments = self._data, self._words, self._shelves, self._written

    def add(self, place: int, batch: Layout) -> None:
        """Keep a batch's records, unless they would fill a quarter of the ring; `place` is without TOMBSTONE."""
        room, count = self._data.size, len(batch)
        size = (kernel.UNPACKED_ROWS * count + -(-batch.data.size // _WORD_BYTES)) * _WORD_BYTES
        if size > room // 4:
            return
        start = int(self._written[0])
        if start % room + size > room:
            start += room - start % room  # it would not lie in one piece
        # What it is written over is gone before its bytes change.
        self._written[0] = start + size
        row = start % room // _WORD_BYTES
        for column in (batch.offsets, batch.key_starts, batch.key_sizes, batch.value_starts, batch.value_sizes):
            self._words[row : row + count] = column
            row += count
        self._data[row * _WORD_BYTES :][: batch.data.size] = batch.data
        shelf = kernel.shelf_for(self._shelves, place)
        self._shelves[shelf : shelf + kernel.SHELF_WORDS] = place, start, count
