"""
The unstable transactions of a log, by their first offsets, with fast access to the lowest one (R-407, R-653).

A log may have tens of thousands of open transactions, and every append and every marker asks for the lowest offset: to
search all of them each time would take quadratic time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from cleaner.base.model import AbortedTxn

_MIN_KEPT = 64


class OpenOffsets:
    """Offsets with a holder each. Each call takes amortized logarithmic time."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        # All held offsets, and some that are no longer held: at most as many again, and a few.
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._holders)

    def items(self) -> list[tuple[int, int]]:
        """Return offsets and their holders, unordered."""
        return list(self._holders.items())

    def add(self, offset: int, holder: int) -> None:
        """Add an offset, or give it to another holder."""
        if offset not in self._holders:
            heappush(self._heap, offset)
        self._holders[offset] = holder

    def remove(self, offset: int) -> None:
        """Drop an offset, if it is held."""
        self._holders.pop(offset, None)
        if len(self._heap) > 2 * len(self._holders) + _MIN_KEPT:
            heap = list(self._holders)
            heapify(heap)
            self._heap = heap

    def holder_of(self, offset: int) -> int | None:
        """Return who holds an offset."""
        return self._holders.get(offset)

    def lowest(self, *, excluding: int | None = None) -> int | None:
        """
        Return the lowest offset; None without any.

        Args:
            excluding: a holder whose offsets do not count; it should have few.
        """
        passed = []
        found = None
        while self._heap and found is None:
            offset = self._heap[0]
            holder = self._holders.get(offset)
            if holder is not None and holder != excluding:
                found = offset
            else:
                heappop(self._heap)
                if holder is not None:
                    passed.append(offset)
        for offset in dict.fromkeys(passed):
            heappush(self._heap, offset)
        return found


class UnstableTransactions:
    """
    Transactions that are open, or decided by a marker that may still be lost. A load and a writer both keep one.
    """

    def __init__(self) -> None:
        self._open = OpenOffsets()  # held by producers
        self._decided = OpenOffsets()  # held by their markers' offsets
        self._markers: list[tuple[int, int]] = []  # a heap: marker and first offset, and some of transactions reopened

    @property
    def has_decided(self) -> bool:
        """Tell whether a decided transaction is still unstable."""
        return bool(len(self._decided))

    def open_by_producer(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        return {producer_id: first for first, producer_id in self._open.items()}

    def first_offset(self) -> int | None:
        """Return the lowest first offset; None without any transaction."""
        lowest = (self._open.lowest(), self._decided.lowest())
        return min((offset for offset in lowest if offset is not None), default=None)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction; one that was decided is open again."""
        self._decided.remove(first_offset)
        self._open.add(first_offset, producer_id)

    def forget(self, first_offset: int) -> None:
        """Drop an open transaction."""
        self._open.remove(first_offset)

    def decide(self, first_offset: int, marker_offset: int) -> None:
        """Note the marker that ends a transaction."""
        self._open.remove(first_offset)
        self._decided.add(first_offset, marker_offset)
        heappush(self._markers, (marker_offset, first_offset))

    def aborted(self, producer_id: int, first_offset: int, marker_offset: int) -> AbortedTxn:
        """Return the transaction index entry of a transaction that an abort marker ends (R-653)."""
        lowest_open = self._open.lowest(excluding=producer_id)
        return AbortedTxn(
            producer_id, first_offset, marker_offset, marker_offset + 1 if lowest_open is None else lowest_open
        )

    def settle(self, end_offset: int) -> None:
        """Forget decided transactions whose marker is below an offset: what is replicated, or on disk."""
        while self._markers and self._markers[0][0] < end_offset:
            marker_offset, first_offset = self._markers[0]
            if self._decided.holder_of(first_offset) == marker_offset:
                self._decided.remove(first_offset)
            # Only now: an interrupt in between must not leave it there permanently.
            heappop(self._markers)
