"""Digests of the keys of a log in memory, listed as the engine's first pass lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.kernels import offset_map as kernel
from tests.unit.kernels.arrays import padded, scan


@dataclass(frozen=True)
class Digested:
    """What `digest_records` returned and listed."""

    status: int
    digests: npt.NDArray[np.uint64]
    state: npt.NDArray[np.int64]

    @property
    def keyed(self) -> int:
        """Records listed."""
        return int(self.state[kernel.STATE_KEYED])


def digest(
    log: bytes,
    keys: npt.NDArray[np.uint64],
    *,
    first_dirty: int = 0,
    skipped: Sequence[int] = (),
    batch_count: int = 64,
) -> Digested:
    """List the digests of a log's bytes; `skipped` names batches by their place."""
    data = padded(log)
    found = scan(data, len(log), room=batch_count)
    assert found.covered == len(log)
    digests = np.zeros(kernel.DIGEST_WORDS * int(found.rows["count"].sum()), np.uint64)
    skip = np.zeros(len(found.rows), np.uint8)
    skip[list(skipped)] = 1
    state = np.zeros(kernel.STATE_CELLS, np.int64)
    status = kernel.digest_records(data, data, found.rows, skip, first_dirty, keys, digests, state)
    return Digested(int(status), digests, state)


def index(
    offset_map: OffsetMap, log: bytes, *, first_dirty: int = 0, skipped: Sequence[int] = (), batch_count: int = 64
) -> bool:
    """Put the keys of a log's bytes into a map; returns whether it was full."""
    found = digest(log, offset_map.keys, first_dirty=first_dirty, skipped=skipped, batch_count=batch_count)
    assert found.status == kernel.DIGEST_GOOD
    rows = found.digests.reshape(-1, kernel.DIGEST_WORDS)[: found.keyed]
    return offset_map.put(rows) < found.keyed
