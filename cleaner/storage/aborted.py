"""What readers of committed records leave out: batches that a transaction index tells to be of aborted transactions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Batches
from cleaner.storage.indexes import FIRST_OFFSET, LAST_OFFSET, Aborts

Flags = npt.NDArray[np.uint8]
_PRODUCER = 0


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
