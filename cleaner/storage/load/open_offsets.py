"""
First offsets of transactions and their holders, with fast access to the lowest one.

A log may have tens of thousands of open transactions, and every append and every marker asks for the lowest offset: to
search all of them each time would take quadratic time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

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

    def clear(self) -> None:
        """Drop all of them."""
        self._holders.clear()
        self._heap.clear()

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
