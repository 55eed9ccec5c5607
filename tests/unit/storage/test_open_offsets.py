"""First offsets of open transactions: fast access to the lowest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleaner.storage.load.open_offsets import OpenOffsets, UnstableTransactions

_STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 3)), max_size=200)


@given(_STEPS)
def test_lowest_offset_is_that_of_a_plain_search(steps: list[tuple[bool, int, int]]) -> None:
    """After any offsets were added, given to others and dropped; with all holders, and without one of them."""
    offsets, naive = OpenOffsets(), dict[int, int]()
    for is_added, offset, holder in steps:
        if is_added:
            offsets.add(offset, holder)
            naive[offset] = holder
        else:
            offsets.remove(offset)
            naive.pop(offset, None)
        assert offsets.lowest() == min(naive, default=None)
        without = [each for each, other in naive.items() if other != holder]
        assert offsets.lowest(excluding=holder) == min(without, default=None)
        assert offsets.lowest() == min(naive, default=None)
        assert dict(offsets.items()) == naive
        assert len(offsets) == len(naive)
        assert offsets.holder_of(offset) == naive.get(offset)


def test_offsets_dropped_after_one_that_stays_are_forgotten() -> None:
    """A transaction that is never decided does not keep later offsets that were dropped."""
    offsets = OpenOffsets()
    offsets.add(0, 1)
    for offset in range(1, 100_000):
        offsets.add(offset, 2)
        offsets.remove(offset)
    assert offsets.lowest() == 0
    assert len(offsets._heap) < 1000


def test_transaction_is_unstable_until_its_marker_is_settled() -> None:
    """R-407: also after a later one was settled; a marker that is undone opens it again."""
    transactions = UnstableTransactions()
    transactions.begin(3, 7)
    transactions.begin(5, 8)
    assert transactions.aborted(7, 3, 6) == (7, 3, 6, 5)
    transactions.decide(3, 6)
    transactions.settle(6)
    assert (transactions.first_offset(), transactions.open_by_producer()) == (3, {8: 5})
    transactions.begin(3, 7)
    transactions.settle(7)
    assert (transactions.first_offset(), transactions.has_decided) == (3, False)
    transactions.decide(3, 9)
    transactions.settle(10)
    assert transactions.first_offset() == 5


def test_marker_that_was_undone_settles_nothing() -> None:
    """The transaction is decided by another one, further up, which may still be lost."""
    transactions = UnstableTransactions()
    transactions.begin(1, 7)
    transactions.decide(1, 5)
    transactions.begin(1, 7)
    transactions.decide(1, 8)
    transactions.settle(6)
    assert transactions.first_offset() == 1
    transactions.settle(9)
    assert transactions.first_offset() is None
