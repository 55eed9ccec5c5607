"""An offset index followed by a kernel: the same answer as from the check in plain numpy (R-333)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.cleaning.passes.index_follower import IndexFollower
from cleaner.errors import CorruptIndexError
from cleaner.format.chunks import BATCH_DTYPE, Batches
from cleaner.storage.segment.indexes import Entries, OffsetIndexCheck, offset_entries

pytestmark = pytest.mark.kernels

PATH = Path("some.index")
BASE = 100


def batches(sizes: list[tuple[int, int]]) -> Batches:
    """Make rows of batches with these sizes in bytes and offsets."""
    rows = np.zeros(len(sizes), BATCH_DTYPE)
    position, offset = 0, BASE
    for row, (size, offsets) in zip(rows, sizes, strict=True):
        row["position"], row["base_offset"], row["last_offset"] = position, offset, offset + offsets - 1
        position, offset = position + size, offset + offsets
    return rows


def error_of(entries: Entries, rows: Batches, cuts: list[int], check: type[OffsetIndexCheck]) -> str:
    """Follow an index through the batches, cut into chunks; returns its error."""
    follower = check(entries, PATH, BASE)
    bounds = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    try:
        for first, last in itertools.pairwise(bounds):
            part = rows[first:last]
            if isinstance(follower, IndexFollower):
                follower.add_batches(part)
            else:
                follower.add(part["position"], part["base_offset"], part["last_offset"])
        follower.finish()
    except CorruptIndexError as error:
        return str(error)
    return "good"


sizes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=12)


@given(sizes, st.data())
def test_follower_agrees_with_the_check(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    """For good entries and for any others that ascend, however the log is cut into chunks."""
    rows = batches(shape)
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True).map(sorted))
    pairs = [(int(rows["last_offset"][i]) - BASE, int(rows["position"][i])) for i in chosen]
    if data.draw(st.booleans()):
        shift = data.draw(st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
        at = data.draw(st.integers(0, max(0, len(pairs) - 1)))
        pairs[at : at + 1] = [(max(0, o + shift[0]), max(0, p + shift[1])) for o, p in pairs[at : at + 1]]
    ascending = all(a < b and p < q for (a, p), (b, q) in itertools.pairwise(pairs))
    if not ascending:
        return  # such an index is refused when it is read
    entries = offset_entries([offset for offset, _ in pairs], [position for _, position in pairs])
    cuts = data.draw(st.lists(st.integers(0, 20), max_size=4))
    assert error_of(entries, rows, cuts, IndexFollower) == error_of(entries, rows, cuts, OffsetIndexCheck)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ((2, 4), "into the middle of a batch"),
        ((0, 3), "lies before the batch"),
        ((9, 9), "past the last batch"),
        ((9, 6), "beyond the segment's last"),
    ],
)
def test_wrong_entry_is_refused(entry: tuple[int, int], reason: str) -> None:
    """With the words of the check."""
    rows = batches([(3, 2), (3, 2), (3, 2)])
    assert reason in error_of(offset_entries([entry[0]], [entry[1]]), rows, [1], IndexFollower)


def test_good_index_is_good() -> None:
    """An entry for each batch except the first."""
    rows = batches([(3, 2), (3, 2), (3, 2)])
    assert error_of(offset_entries([3, 5], [3, 6]), rows, [1, 2], IndexFollower) == "good"
