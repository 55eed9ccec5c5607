"""
Which batches belong to transactions that were aborted: readers of committed records leave them out.

The transaction index of the segment that holds a transaction's marker names it, with the first and last offset it
reaches over. Within these every transactional batch of its producer is its own. Between the two lie as many segments
as the transaction was long; the search ends at the first entry that says all below it is decided (R-535).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches
from cleaner.logs.places import Place
from cleaner.storage import names
from cleaner.storage.fs import FileSystem
from cleaner.storage.indexes import FIRST_OFFSET, LAST_OFFSET, LAST_STABLE_OFFSET, Aborts, abort_rows, read_txn_index

Flags = npt.NDArray[np.uint8]
_PRODUCER = 0


class AbortedTransactions:
    """
    The aborted transactions of a log's segments, as their transaction indexes tell; each is read once.

    Args:
        fs: the door to the file system.
        places: the segments, ascending. What is found is right as long as these are.
        more: aborted transactions that no index names yet.
    """

    def __init__(self, fs: FileSystem, places: Sequence[Place], more: Aborts | None = None) -> None:
        self._fs = fs
        self._places = places
        self._read: dict[int, Aborts] = {}
        self._more = abort_rows(()) if more is None else more

    def reaching_into(self, first_offset: int, end_offset: int, number: int) -> Aborts:
        """
        Return those that reach into [first, end).

        Args:
            number: of the place that holds the first offset.
        Raises:
            CorruptIndexError: a transaction index is damaged.
        """
        found = [self._more]
        for at in range(number, len(self._places)):
            aborts = self._of(at)
            found.append(aborts)
            if len(aborts) and int(aborts[-1, LAST_STABLE_OFFSET]) >= end_offset:
                break
        rows = np.concatenate(found)
        is_wanted = (rows[:, LAST_OFFSET] >= first_offset) & (rows[:, FIRST_OFFSET] < end_offset)
        return rows[is_wanted]

    def read_all(self) -> None:
        """Read all indexes now, and not again."""
        for number in range(len(self._places)):
            self._read[number] = self._of(number)

    def _of(self, number: int) -> Aborts:
        found = self._read.get(number)
        if found is None:
            try:
                found = read_txn_index(self._fs, self._places[number].path(names.TXN_INDEX))
            except FileNotFoundError:
                found = abort_rows(())
            # That of the active segment is appended to.
            if number < len(self._places) - 1:
                self._read[number] = found
        return found


def hidden_batches(batches: Batches, aborts: Aborts) -> Flags:
    """Tell for each batch whether readers of committed records are not to see it: uint8, 1 for aborted data."""
    hidden: Flags = np.zeros(len(batches), np.uint8)
    is_transactional = (batches["magic"] == 2) & (batches["attributes"] & TRANSACTIONAL_FLAG != 0)
    concerned = np.flatnonzero(is_transactional & (batches["attributes"] & CONTROL_FLAG == 0))
    if not len(concerned) or not len(aborts):
        return hidden
    producers, bases = batches["producer_id"][concerned], batches["base_offset"][concerned]
    # Of one producer's transactions, which do not overlap, only the last that begins at or below a batch may hold it.
    # Both are numbered, so that one search in (producer, first offset) finds it.
    all_producers, of_abort = np.unique(aborts[:, _PRODUCER], return_inverse=True)
    all_firsts, first_of_abort = np.unique(aborts[:, FIRST_OFFSET], return_inverse=True)
    keys = of_abort.reshape(-1) * len(all_firsts) + first_of_abort.reshape(-1)
    order = np.argsort(keys, kind="stable")
    of_batch = np.minimum(np.searchsorted(all_producers, producers), len(all_producers) - 1)
    first_of_batch = np.searchsorted(all_firsts, bases, side="right") - 1
    at = np.searchsorted(keys[order], of_batch * len(all_firsts) + first_of_batch, side="right") - 1
    found = aborts[order[np.maximum(at, 0)]]
    is_within = (found[:, FIRST_OFFSET] <= bases) & (bases <= found[:, LAST_OFFSET])
    is_its_own = (at >= 0) & (found[:, _PRODUCER] == producers)
    hidden[concerned[is_within & is_its_own]] = 1
    return hidden
