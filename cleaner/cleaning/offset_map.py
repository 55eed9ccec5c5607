"""
The offset map: key digest to last offset, over the dirty section of one round (R-520..R-523).

An entry takes 24 bytes, a 16-byte digest and an 8-byte offset, in one flat table with open addressing; with a survivor
rule that compares numbers it takes 32, and fewer keys fit into the same memory. The dedupe
buffer limits the number of keys, as in Kafka; the memory used depends on the actual number of keys: the table starts
small and grows fourfold. A process's next map gets the same memory (`table_memory.py`).

Unlike with Kafka's MD5, a producer cannot make digests collide: see `kernels/digest.py`.
"""

from __future__ import annotations

import mmap
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cleaner.base.table_memory import borrow, give_back, zero_pages
from cleaner.config.values import MAP_ENTRY_BYTES, NUMBERED_ENTRY_BYTES
from cleaner.format.key_digests import NUMBER, Words, new_secret
from cleaner.kernels import offset_map as kernel
from cleaner.kernels import valued_map
from cleaner.kernels.key_index import find_common
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.state.key_index import IndexBlock

_NUMBER_BYTES = NUMBERED_ENTRY_BYTES - MAP_ENTRY_BYTES
_FIRST_SLOTS = 1 << 15  # 768 KiB: fits a second-level cache
_MOVE_SLICES = 16
# The pages of a larger table are freed while it is emptied, so that both are never in memory whole.
_MAX_KEPT_BYTES = 16 << 20
_MAX_BITS = 8 * (16 << 20)  # 16 MiB of bitmap; later offsets are looked up in the table
_NONE: Words = np.zeros(0, np.uint64)
_DENSEST = 5 / 8  # while the table can still grow; above this, misses need long walks


class OffsetMap:
    """
    A map from key digests to offsets, for one round at a time.

    Args:
        key_limit: most distinct keys: floor(slots x load factor) (R-512).
        slots: most slots of the table; it always has at least one more than `key_limit`, so that a search ends.
        rule: which of two records of a key the map keeps. One that compares numbers takes 32 bytes a slot.

    Attributes:
        key_limit: most distinct keys.
        rule: as given.
        table: flat uint64 words, three an entry. Replaced when the map grows.
        slots: slots the table has now.
        keys: what keys are digested under in this round.
        entries: distinct keys in the map.
        latest_offset: last offset the map covers; -1 before the first (R-513).
        latest: a bit for each offset from `latest_base` on: set when it is its key's latest so far.
        outranked: keys whose last record put is not the one that stays, because of its number.
    """

    def __init__(self, key_limit: int, slots: int, rule: SurvivorRule = LATEST_OFFSET) -> None:
        if key_limit < 1:
            raise ValueError("an offset map needs room for at least one key")
        self.key_limit = key_limit
        self.rule = rule
        self._max_slots = max(slots, key_limit + 1)
        self._memory = borrow(self._max_bytes())
        self.clear()

    def _max_bytes(self) -> int:
        """Return the bytes of all tables the map can grow through, in whole pages."""
        slots, pages = min(_FIRST_SLOTS, self._max_slots), 0
        while True:
            pages += -(-slots * MAP_ENTRY_BYTES // mmap.PAGESIZE)
            if slots == self._max_slots:
                return pages * mmap.PAGESIZE
            slots = min(4 * slots, self._max_slots)

    def clear(self, first_dirty_offset: int = 0, end_offset: int = 0, keys: Words | None = None) -> None:
        """
        Remove all keys, shrink, and draw a new digest key.

        Args:
            first_dirty_offset, end_offset: range of the offsets to be put; the bitmap covers as many as it can.
            keys: the digest key of the log's key indexes; None: a new one.
        """
        self.entries = self.outranked = 0
        self.latest_offset = -1
        self.latest_base = first_dirty_offset
        bits = min(end_offset - first_dirty_offset, _MAX_BITS)
        # Zero pages that are never touched take no memory.
        self.latest: npt.NDArray[np.uint8] = np.frombuffer(zero_pages(bits // 8 + 1), np.uint8)[: -(-bits // 8)]
        self.keys: Words = new_secret() if keys is None else keys
        self._memory.free_all()
        self._allocate(min(_FIRST_SLOTS, self._max_slots))

    def _allocate(self, slots: int) -> None:
        self.table: Words = self._memory.take(slots * MAP_ENTRY_BYTES)
        self._numbers: Words = (
            np.frombuffer(zero_pages(valued_map.numbered_words(slots) * _NUMBER_BYTES), np.uint64)
            if self._is_numbered
            else _NONE
        )
        self.slots = slots

    @property
    def _is_numbered(self) -> bool:
        return self.rule.numbers is not None

    def close(self) -> None:
        """Give the memory to the next map of this process; this map must not be used any more."""
        self.table = self._numbers = _NONE
        give_back(self._memory)

    def reserve(self, records: int) -> None:
        """Grow, if allowed, so that the table stays sparse with `records` more keys."""
        wanted = self.entries + records
        slots = self.slots
        while slots < self._max_slots and wanted > slots * _DENSEST:
            slots = min(4 * slots, self._max_slots)
        if slots != self.slots:
            self._grow(slots)

    def _grow(self, slots: int) -> None:
        old_table, old_slots, old_numbers = self.table, self.slots, self._numbers
        self._allocate(slots)
        # A key's slot scales with the table size, so both tables are walked in order.
        bounds = [old_slots * i // _MOVE_SLICES for i in range(_MOVE_SLICES + 1)]
        for first, last in pairwise(bounds):
            kernel.move_entries(old_table, old_numbers, self.table, self._numbers, slots, first, last)
            if old_table.nbytes > _MAX_KEPT_BYTES:
                self._memory.forget(old_table, first * MAP_ENTRY_BYTES, last * MAP_ENTRY_BYTES)

    def put(self, rows: Words) -> int:
        """
        Put keys in the order of their records.

        Args:
            rows: as `KeyDigests` has them.
        Returns:
            How many were put: fewer than given when the map is full, whether or not it has the next key (R-511).
        """
        count = len(rows)
        self.reserve(count)
        if self._is_numbered:
            return self._put_numbered(rows)
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

    def _put_numbered(self, rows: Words) -> int:
        words = np.ascontiguousarray(rows[:, :NUMBER]).reshape(-1)
        done, entries, outranked = valued_map.put_numbered(
            self.table,
            self._numbers,
            self.slots,
            words,
            np.ascontiguousarray(rows[:, NUMBER]),
            len(rows),
            self.entries,
            self.key_limit,
            self.latest,
            self.latest_base,
        )
        self.entries, self.outranked = int(entries), self.outranked + int(outranked)
        return int(done)

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 if the map does not have it. One key at a time, for tests and tools."""
        data = np.frombuffer(key + bytes(8), np.uint8).copy()
        return int(kernel.find_offset(data, 0, len(key), self.table, self.slots, self.keys))

    def are_all_latest(self, first_offset: int, last_offset: int, records: int) -> bool:
        """Tell whether that many offsets of a range are their keys' latest so far; False if it is not in the bitmap."""
        first, last = first_offset - self.latest_base, last_offset - self.latest_base
        return records > 0 and int(kernel.count_latest(self.latest, first, last)) == records

    def has_any(self, block: IndexBlock) -> bool:
        """Tell whether a key of the map begins like one of an index; if it does not, the map has none of these keys."""
        return bool(
            find_common(self.table, self.slots, block.bucket_bits, block.first_bucket, block.counts, block.lows)
        )

    def numbers(self, slots: npt.NDArray[np.int64]) -> Words:
        """Return the numbers of the entries at some slots; only with a rule that compares numbers."""
        return self._numbers[slots]

    def are_outranking(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell of the entries at some slots whether a later record of their key has lost against them; likewise."""
        bits = self._numbers[self.slots + (slots >> 6)] >> (slots & 63).astype(np.uint64)
        outranking: npt.NDArray[np.bool_] = bits & np.uint64(1) != 0
        return outranking

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offsets of all entries, in no order."""
        marked = self.table[2 :: kernel.WORDS]
        offsets: npt.NDArray[np.int64] = marked[marked != 0].astype(np.int64) - 1
        return offsets
