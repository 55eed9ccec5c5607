"""
Finds the batches of aborted transactions; readers of committed records leave them out.

The transaction index of the segment that holds a transaction's marker names the transaction, with its first and last
offset. Between these, every transactional batch of its producer belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cleaner.format.chunks import Batches, Flags
from cleaner.read.open_segment import SegmentFiles
from cleaner.storage.fs.readable import ReadableFiles
from cleaner.storage.segment import names
from cleaner.storage.segment.aborted import found_below, hidden_batches
from cleaner.storage.segment.indexes import (
    FIRST_OFFSET,
    LAST_OFFSET,
    Aborts,
    abort_rows,
    read_txn_index,
)


class AbortedTransactions:
    """
    The aborted transactions of a log's segments, by their transaction indexes; each index is read once.

    Args:
        fs: the file system.
        places: the segments, ascending. Results are valid as long as these are.
        more: aborted transactions that are in no index yet.
    """

    def __init__(self, fs: ReadableFiles, places: Sequence[SegmentFiles], more: Aborts | None = None) -> None:
        self._fs = fs
        self._places = places
        self._read: dict[int, Aborts] = {}
        self._more = abort_rows(()) if more is None else more

    def hidden(self, batches: Batches, number: int) -> Flags:
        """
        Tell for each of some neighbouring batches whether it is of an aborted transaction: uint8, 1 if so.

        Args:
            number: of the segment that holds them.
        Raises:
            CorruptIndexError: a transaction index is damaged.
        """
        first_offset, end_offset = int(batches[0]["base_offset"]), int(batches[-1]["last_offset"]) + 1
        return hidden_batches(batches, self.within(first_offset, end_offset, number))

    def within(self, first_offset: int, end_offset: int, number: int) -> Aborts:
        """
        Return the aborted transactions that have offsets in [first, end).

        Args:
            number: of the segment that holds the first offset.
        Raises:
            CorruptIndexError: a transaction index is damaged.
        """
        indexes = (self._of(at) for at in range(number, len(self._places)))
        aborts = np.concatenate([self._more, *found_below(indexes, end_offset)])
        return aborts[(aborts[:, LAST_OFFSET] >= first_offset) & (aborts[:, FIRST_OFFSET] < end_offset)]

    def read_all(self) -> None:
        """Read all indexes now; later calls read none."""
        for number in range(len(self._places)):
            self._read[number] = self._of(number)

    def _of(self, number: int) -> Aborts:
        found = self._read.get(number)
        if found is None:
            place = self._places[number]
            try:
                log_bytes = self._fs.stat(place.path(names.LOG)).st_size
                found = read_txn_index(self._fs, place.path(names.TXN_INDEX), log_bytes=log_bytes)
            except FileNotFoundError:
                found = abort_rows(())
            # The index of the active segment still grows.
            if number < len(self._places) - 1:
                self._read[number] = found
        return found
