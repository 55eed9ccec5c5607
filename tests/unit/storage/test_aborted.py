"""Which batches lie in the offset ranges of aborted transactions."""

from __future__ import annotations

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.format.chunks import BATCH_DTYPE
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.indexes import abort_rows

TRANSACTIONAL = 1 << 4
RNG = np.random.default_rng(7)


def test_batch_is_hidden_if_any_range_of_its_producer_holds_it() -> None:
    """Also where entries of one producer overlap, as in a damaged index: held against every range in turn."""
    for _ in range(300):
        drawn = RNG.integers(0, (3, 60, 40), (RNG.integers(0, 9), 3)).tolist()
        txns = [AbortedTxn(producer, first, first + length, 0) for producer, first, length in drawn]
        batches = np.zeros(20, BATCH_DTYPE)
        batches["magic"] = 2
        batches["attributes"] = TRANSACTIONAL
        batches["base_offset"] = np.sort(RNG.choice(120, 20, replace=False))
        batches["producer_id"] = RNG.integers(0, 4, 20)
        expected = [
            any(
                txn.producer_id == batch["producer_id"] and txn.first_offset <= batch["base_offset"] <= txn.last_offset
                for txn in txns
            )
            for batch in batches
        ]
        assert AbortedRanges(abort_rows(txns)).hidden(batches).tolist() == expected
