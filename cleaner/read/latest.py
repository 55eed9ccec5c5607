"""
Finds the records that are the last ones of their keys.

As in a cleaning round, keys are put into an offset map by their digests, 24 bytes a key, or 32 with a survivor rule
that compares numbers; of the map only a bit for each offset is kept. So the log is read a second time to return the
records. That costs less than a dict in which each record replaces the one before, which needs an object for every
record ever written and a random memory access for each.

    a tombstone                    is the last record of its key like any other; the caller may leave it out
    a record without a key         is never a last record
    an aborted or control batch    does not count; the caller says which batches these are
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.key_views import KeyView
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.config.values import MAP_ENTRY_BYTES, NUMBERED_ENTRY_BYTES
from cleaner.format.chunks import Batches, Flags
from cleaner.format.key_digests import OFFSET_PLUS_1, SECOND, KeyDigests, Words
from cleaner.format.records import Block
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule

Longs = npt.NDArray[np.int64]

_LOAD_FACTOR = 0.75
_GROWTH = 8

Digest = Callable[[Path, Block, Flags], Words]
DigestAll = Callable[[Digest], Iterator[Words]]
"""
Reads the log once: calls a function with each block, in order, and yields its results. It may skip blocks for which the
function raises CorruptBatchError.
"""


def keys_within(memory_bytes: int) -> int:
    """Return how many keys fit into this much memory."""
    return max(1, int(memory_bytes // MAP_ENTRY_BYTES * _LOAD_FACTOR))


class LatestByKey:
    """
    The offsets of the last records of all keys within a range.

    If there are too many keys for one map, they are divided by digest, with one pass over the log for each share.

    Args:
        read: called once for each pass.
        first_offset, end_offset: the range of records that count, the end exclusive.
        keys: expected number of keys. If there are more, everything is repeated with a larger map.
        max_keys: limit of every map, and so of the memory.
        rule: which record of a key is the last one.
        view: which keys are the same key; None: those with the same bytes.

    Attributes:
        bits: a bit for each of the first offsets of the range, lowest of a byte first: set for last records.
    Raises:
        CorruptBatchError: raised by `read`.
    """

    def __init__(
        self,
        read: DigestAll,
        first_offset: int,
        end_offset: int,
        keys: int,
        max_keys: int,
        rule: SurvivorRule = LATEST_OFFSET,
        view: KeyView | None = None,
    ) -> None:
        self._view = view
        self._rule = rule
        self._read = read
        self._first_offset = first_offset
        self._end_offset = max(first_offset, end_offset)
        if rule.numbers is not None:
            max_keys = max(1, max_keys * MAP_ENTRY_BYTES // NUMBERED_ENTRY_BYTES)
        limit, shares = min(keys, max_keys), 1
        while (found := self._put_all(limit, shares)) is None:
            if limit < max_keys:
                limit = min(max_keys, _GROWTH * limit)
            else:
                shares *= 2
        self.bits, self._far = found

    def has(self, offsets: Longs) -> npt.NDArray[np.bool_]:
        """Tell which offsets are of last records."""
        places = offsets - self._first_offset
        found = np.zeros(len(places), bool)
        is_near = (places >= 0) & (places >> 3 < len(self.bits))
        near = places[is_near]
        found[is_near] = (self.bits[near >> 3] >> (near & 7).astype(np.uint8)) & 1 != 0
        if len(self._far):
            row = np.minimum(np.searchsorted(self._far, offsets), len(self._far) - 1)
            found |= self._far[row] == offsets
        return found

    def may_be_in(self, batches: Batches) -> npt.NDArray[np.bool_]:
        """Tell which batches, in offset order, may have last records: all of magic 0 and 1, whose first is unknown."""
        found: npt.NDArray[np.bool_] = batches["magic"] < 2
        if not found.all():
            first, last = batches["base_offset"], batches["last_offset"]
            begin, end = np.maximum(first - self._first_offset, 0) >> 3, (last - self._first_offset >> 3) + 1
            at = int(begin[0])
            before = np.append(0, np.cumsum(self.bits[at : int(end[-1])] != 0))
            begin, end = (np.clip(each - at, 0, len(before) - 1) for each in (begin, end))
            found |= before[end] > before[begin]
            found |= np.searchsorted(self._far, last, side="right") > np.searchsorted(self._far, first)
        return found

    def count(self) -> int:
        """Return the number of last records: of keys with a record in the range."""
        return int(np.bitwise_count(self.bits).sum()) + len(self._far)

    def _put_all(self, limit: int, shares: int) -> tuple[Flags, Longs] | None:
        """
        Return a bit for each of the first offsets, and the offsets beyond these; None if the keys do not fit.

        Offsets may be sparse: a bit for each would take memory in proportion to their range, not to the keys.
        """
        offset_map = OffsetMap(limit, int(limit / _LOAD_FACTOR) + 1, self._rule)
        bits: Flags = np.zeros(0, np.uint8)
        far: list[Longs] = []
        keys = offset_map.keys  # a key must have the same digest in every pass, to be in one share
        try:
            for share in range(shares):
                offset_map.clear(self._first_offset, self._end_offset)
                offset_map.keys = keys
                if not self._put(offset_map, share, shares):
                    return None
                bits = _joined(bits, offset_map.latest)
                first_far = self._first_offset + 8 * len(offset_map.latest)
                if self._end_offset > first_far:
                    offsets = offset_map.offsets()
                    far.append(offsets[offsets >= first_far])
            return bits, np.sort(np.concatenate(far)) if far else np.zeros(0, np.int64)
        finally:
            offset_map.close()

    def _put(self, offset_map: OffsetMap, share: int, shares: int) -> bool:
        """Put the keys of a share into the map; False if they do not fit."""
        digests = KeyDigests(view=self._view, numbers=self._rule.numbers)
        last = np.uint64(self._end_offset)
        for rows in self._read(
            lambda path, block, hidden: digests.of(path, block, hidden, offset_map.keys, self._first_offset)
        ):
            if len(rows) and rows[-1, OFFSET_PLUS_1] > last:
                # The end is within a batch: records behind it replace nothing.
                rows = rows[: int(np.searchsorted(rows[:, OFFSET_PLUS_1], last, side="right"))]
            if shares > 1:
                rows = rows[rows[:, SECOND] % np.uint64(shares) == share]
            if offset_map.put(rows) < len(rows):
                return False
        return True


def _joined(bits: Flags, more: Flags) -> Flags:
    if not len(bits):
        return more
    if len(bits) < len(more):
        return np.concatenate([bits | more[: len(bits)], more[len(bits) :]])
    bits[: len(more)] |= more
    return bits
