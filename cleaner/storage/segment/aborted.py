"""Aborted transactions from transaction indexes, and which batches belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches, Flags
from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET, LAST_STABLE_OFFSET, Aborts

_PRODUCER = 0


class AbortedRanges:
    """
    The offset ranges of aborted transactions, prepared for fast lookup chunk after chunk.

    Args:
        aborts: the transactions, in any order.
    """

    def __init__(self, aborts: Aborts) -> None:
        # A batch is in one of its producer's transactions if that is so for the farthest end of those that begin at or
        # below it: transactions do not overlap, and entries of a damaged index that do count all. Producers and offsets
        # are numbered, so that one search in (producer, first offset) finds it.
        self._producers, of_abort = np.unique(aborts[:, _PRODUCER], return_inverse=True)
        self._firsts, first_of_abort = np.unique(aborts[:, FIRST_OFFSET], return_inverse=True)
        keys = of_abort.reshape(-1) * len(self._firsts) + first_of_abort.reshape(-1)
        order = np.argsort(keys, kind="stable")
        self._keys, self._aborts = keys[order], aborts[order]
        ends, end_of_abort = np.unique(self._aborts[:, LAST_OFFSET], return_inverse=True)
        farthest = np.maximum.accumulate(of_abort.reshape(-1)[order] * len(ends) + end_of_abort.reshape(-1))
        self._farthest = ends[farthest % len(ends)] if len(ends) else ends

    def hidden(self, batches: Batches) -> Flags:
        """Tell for each batch whether it is hidden from readers of committed records: uint8, 1 for aborted data."""
        hidden: Flags = np.zeros(len(batches), np.uint8)
        is_transactional = (batches["magic"] == 2) & (batches["attributes"] & TRANSACTIONAL_FLAG != 0)
        transactional = np.flatnonzero(is_transactional & (batches["attributes"] & CONTROL_FLAG == 0))
        if not len(transactional) or not len(self._aborts):
            return hidden
        producers, bases = batches["producer_id"][transactional], batches["base_offset"][transactional]
        of_batch = np.minimum(np.searchsorted(self._producers, producers), len(self._producers) - 1)
        first_of_batch = np.searchsorted(self._firsts, bases, side="right") - 1
        at = np.searchsorted(self._keys, of_batch * len(self._firsts) + first_of_batch, side="right") - 1
        found = self._aborts[np.maximum(at, 0)]
        is_within = (found[:, FIRST_OFFSET] <= bases) & (bases <= self._farthest[np.maximum(at, 0)])
        is_its_own = (at >= 0) & (found[:, _PRODUCER] == producers)
        hidden[transactional[is_within & is_its_own]] = 1
        return hidden


def hidden_batches(batches: Batches, aborts: Aborts) -> Flags:
    """Do the same for a single chunk."""
    return AbortedRanges(aborts).hidden(batches)


def found_below(indexes: Iterable[Aborts], end_offset: int) -> Iterator[Aborts]:
    """
    Yield the entries of a log's transaction indexes that may concern offsets below an offset (R-535).

    The entry is in the marker's segment, which may be many segments after the transaction's batches. The search ends at
    the first entry whose last stable offset is not below the offset: everything below is then decided.

    Args:
        indexes: of the segments from the first wanted one on, ascending; read only as far as needed.
    """
    for aborts in indexes:
        beyond = aborts[:, LAST_STABLE_OFFSET] >= end_offset
        if beyond.any():
            yield aborts[: int(beyond.argmax()) + 1]
            return
        yield aborts
