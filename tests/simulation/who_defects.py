"""Planted defects of `plan --who`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.cleaning.estimate import cells, entries, who
from cleaner.cleaning.estimate.shares import Kind
from tests.simulation.planting import breaks


@breaks(who, "entries_of")
def who_takes_tombstones_for_live(real: Any, *args: Any) -> Any:
    """The last record of a key counts as kept for good, whether it has a value or not."""
    found = real(*args)
    found.sums[:, Kind.LIVE] += found.sums[:, Kind.TOMBSTONES]
    found.sums[:, Kind.TOMBSTONES] = 0
    return found


@breaks(cells.Cells, "_gone")
def who_counts_aborted_records(_: Any, _self: Any, batches: Any) -> Any:
    """Transaction indexes are not looked at: what was aborted supersedes."""
    return np.zeros(len(batches), np.uint8)


@breaks(who._Reading, "__init__")
def who_takes_all_for_cleanable(real: Any, self: Any, target: Any, *args: Any) -> None:
    """Nothing waits."""
    real(self, replace(target, first_uncleanable_offset=1 << 62), *args)


@breaks(entries, "divided")
def who_forgets_what_batches_weigh(_: Any, _sizes: Any, bodies: Any, of_batch: Any, _starts: Any) -> Any:
    """The bytes of a batch's records, without its header, in equal parts."""
    return bodies[of_batch] // np.bincount(of_batch)[of_batch] if len(of_batch) else of_batch


@breaks(who._Reading, "_digests")
def who_does_not_see_the_last_part(real: Any, self: Any, drawn: Any, digest: Any) -> Any:
    """What the last part of the range supersedes counts as live."""
    return real(self, drawn[:-1], digest)
