"""
The offset map: key digest to last offset, over the dirty section of one round (R-520..R-523).

An entry takes 24 bytes, a 16-byte digest and an 8-byte offset, in one flat table with open addressing. How many
keys it may hold is set by the dedupe buffer, as in Kafka; how much memory it touches depends on the keys there are:
the table starts small and grows fourfold. A process's next map gets the same memory (`table_memory.py`).

Unlike Kafka's MD5, a producer cannot make digests collide: see `kernels/digest.py`.
"""

from __future__ import annotations

import mmap
import os
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cleaner.base.table_memory import borrow, give_back, zero_pages
from cleaner.format.key_digests import Words
from cleaner.kernels import offset_map as kernel
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule

ENTRY_BYTES = 24
_FIRST_SLOTS = 1 << 15  # 768 KiB: fits a second-level cache
_MOVE_SLICES = 16
_MOST_KEPT_BYTES = 16 << 20  # a larger table's pages go while it is emptied, so that both are never there whole
_MOST_BITS = 8 * (16 << 20)  # 16 MiB of bitmap; later offsets are looked up in the table
_DENSEST = 5 / 8  # while the table can still grow; above, misses walk far


class OffsetMap:
    """
    A map from key digests to offsets that lives one round at a time.

    Args:
        key_limit: most distinct keys it takes: floor(slots x load factor) (R-512).
        slots: most slots the table may grow to; one more than `key_limit` is always there, so that a search ends.
        rule: which of two records of a key it holds.

    Attributes:
        key_limit, rule: as given.
        table: flat uint64 words, three an entry. Replaced when the map grows.
        slots: slots the table has now.
        keys: the SipHash key of this round, two words.
        entries: distinct keys in the map.
        latest_offset: last offset the map covers; -1 before the first (R-513).
        latest: a bit for each offset from `latest_base` on: set when it is its key's latest so far.
    """

    def __init__(self, key_limit: int, slots: int, rule: SurvivorRule = LATEST_OFFSET) -> None:
        if key_limit < 1:
            raise ValueError("an offset map needs room for at least one key")
        self.key_limit = key_limit
        self.rule = rule
        self._most_slots = max(slots, key_limit + 1)
        self._memory = borrow(self._most_bytes())
        self.clear()

    def _most_bytes(self) -> int:
        """Return the bytes of all tables the map can grow through, in whole pages."""
        slots, pages = min(_FIRST_SLOTS, self._most_slots), 0
        while True:
            pages += -(-slots * ENTRY_BYTES // mmap.PAGESIZE)
            if slots == self._most_slots:
                return pages * mmap.PAGESIZE
            slots = min(4 * slots, self._most_slots)

    def clear(self, first_dirty_offset: int = 0, end_offset: int = 0) -> None:
        """
        Forget all keys, shrink, and draw a new digest key.

        Args:
            first_dirty_offset, end_offset: the offsets about to be put; as many as the bitmap may cover have a bit.
        """
        self.entries = 0
        self.latest_offset = -1
        self.latest_base = first_dirty_offset
        bits = min(end_offset - first_dirty_offset, _MOST_BITS)
        # Zero pages that are never touched take no memory.
        self.latest: npt.NDArray[np.uint8] = np.frombuffer(zero_pages(bits // 8 + 1), np.uint8)[: -(-bits // 8)]
        self.keys: Words = np.frombuffer(bytearray(os.urandom(16)), np.uint64)
        self._memory.free_all()
        self._allocate(min(_FIRST_SLOTS, self._most_slots))

    def _allocate(self, slots: int) -> None:
        self.table: Words = self._memory.take(slots * ENTRY_BYTES)
        self.slots = slots

    def close(self) -> None:
        """Hand the memory on to the next map of this process; this one is not to be used any more."""
        self.table = np.zeros(0, np.uint64)
        give_back(self._memory)

    @property
    def utilization(self) -> float:
        """Entries in proportion to what the dedupe buffer has slots for."""
        return self.entries / self._most_slots

    def reserve(self, records: int) -> None:
        """Grow so that `records` more keys find the table sparse, as far as it may grow."""
        wanted = self.entries + records
        slots = self.slots
        while slots < self._most_slots and wanted > slots * _DENSEST:
            slots = min(4 * slots, self._most_slots)
        if slots != self.slots:
            self._grow(slots)

    def _grow(self, slots: int) -> None:
        old_table, old_slots = self.table, self.slots
        self._allocate(slots)
        # Slots scale with the table, so neighbours stay neighbours: both tables are walked in order.
        bounds = [old_slots * i // _MOVE_SLICES for i in range(_MOVE_SLICES + 1)]
        for first, last in pairwise(bounds):
            kernel.move_entries(old_table, self.table, slots, first, last)
            if old_table.nbytes > _MOST_KEPT_BYTES:
                self._memory.forget(old_table, first * ENTRY_BYTES, last * ENTRY_BYTES)

    def put(self, rows: Words) -> int:
        """
        Put keys in the order of their records.

        Args:
            rows: as `KeyDigests` has them.
        Returns:
            How many went in: fewer than there are when the map is full, whether or not the next key is known (R-511).
        """
        count = len(rows)
        self.reserve(count)
        words = np.ascontiguousarray(rows).reshape(-1)
        done, entries = kernel.put_digests(
            self.table,
            self.slots,
            self.rule.code,
            words,
            count,
            self.entries,
            self.key_limit,
            self.latest,
            self.latest_base,
        )
        self.entries = int(entries)
        return int(done)

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 when the map does not know it. For tests and tools: one key at a time."""
        data = np.frombuffer(key + bytes(8), np.uint8).copy()
        return int(kernel.find_offset(data, 0, len(key), self.table, self.slots, self.keys))

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offsets of all entries, in no order."""
        marked = self.table[2 :: kernel.WORDS]
        offsets: npt.NDArray[np.int64] = marked[marked != 0].astype(np.int64) - 1
        return offsets
