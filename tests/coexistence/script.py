"""
A log of which everybody knows what it holds at each offset, so that readers need nobody to tell them what is right.

    hot keys at odd offsets, cold ones at even offsets; each key once a lap, in an order that changes from lap to lap
    a value begins with its offset and has a length of its own; one record in sixteen is a tombstone
    with transactions the log is made of blocks of 128 offsets, two transactions and plain records side by side

Nothing is kept of what was written: all is worked out, for many offsets at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

BLOCK = 128
MARKER_OF_A, MARKER_OF_B = 125, 126
HOT, COLD = 100, 20_000
KEYS = HOT + COLD
_STRIDE = 7_919  # has no divisor in common with either, so a lap meets each key once
_SHIFT = 31
_AT_A_TIME = 1 << 18


class Part(NamedTuple):
    """An append of a block: by whom, and its offsets within the block."""

    producer: str
    begin: int
    end: int


PARTS = (Part("a", 0, 40), Part("b", 40, 80), Part("", 80, 100), Part("a", 100, MARKER_OF_A))
LAST_PART = Part("", MARKER_OF_B + 1, BLOCK)


class Script:
    """
    What stands where.

    Args:
        is_transactional: with transactions and their markers.
    """

    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional

    def commits(self, producer: str, block: int) -> bool:
        """Tell whether a block's transaction is committed."""
        return block % 3 != 0 if producer == "a" else block % 4 != 1

    def is_record(self, offsets: Offsets) -> Flags:
        """Tell which offsets hold a record, and no marker."""
        place = offsets % BLOCK
        return (
            np.full(len(offsets), True)
            if not self.is_transactional
            else (place != MARKER_OF_A) & (place != MARKER_OF_B)
        )

    def counts(self, offsets: Offsets) -> Flags:
        """Tell which offsets hold a record that was not aborted."""
        if not self.is_transactional:
            return np.full(len(offsets), True)
        place, block = offsets % BLOCK, offsets // BLOCK
        is_a = (place < PARTS[0].end) | ((place >= PARTS[3].begin) & (place < PARTS[3].end))
        is_b = (place >= PARTS[1].begin) & (place < PARTS[1].end)
        is_aborted = (is_a & (block % 3 == 0)) | (is_b & (block % 4 == 1))
        kept: Flags = self.is_record(offsets) & ~is_aborted
        return kept

    def keys(self, offsets: Offsets) -> Offsets:
        """Return the number of each offset's key, below `KEYS`."""
        number, is_hot = offsets // 2, offsets % 2 == 1
        count = np.where(is_hot, HOT, COLD)
        return (number % count * _STRIDE + number // count * _SHIFT) % count + np.where(is_hot, 0, HOT)

    def next_of_key(self, offsets: Offsets) -> Offsets:
        """Return the next offset with a record of the same key that was not aborted."""
        is_hot = offsets % 2 == 1
        count, keys = np.where(is_hot, HOT, COLD), self.keys(offsets) - np.where(is_hot, 0, HOT)
        inverse = np.where(is_hot, pow(_STRIDE, -1, HOT), pow(_STRIDE, -1, COLD))
        lap = offsets // 2 // count
        found = offsets.copy()
        open_ones = np.full(len(offsets), True)
        while open_ones.any():
            lap = lap + 1
            number = lap * count + (keys - lap * _SHIFT) % count * inverse % count
            found[open_ones] = (2 * number + is_hot)[open_ones]
            open_ones &= ~self.counts(found)
        return found

    def is_tombstone(self, offsets: Offsets) -> Flags:
        """Tell which records have no value."""
        found: Flags = (offsets * 40_503 >> 7) % 16 == 0
        return found

    def value_sizes(self, offsets: Offsets) -> Offsets:
        """Return the lengths of the values, -1 for tombstones."""
        return np.where(self.is_tombstone(offsets), -1, 8 + offsets % 53)

    def records(self, begin: int, end: int) -> tuple[list[bytes], list[bytes | None]]:
        """Return keys and values of neighbouring records."""
        offsets = np.arange(begin, end)
        keys = [key.to_bytes(8) for key in self.keys(offsets).tolist()]
        sizes = self.value_sizes(offsets).tolist()
        values = [
            None if size < 0 else offset.to_bytes(8) + b"." * (size - 8)
            for offset, size in zip(offsets.tolist(), sizes, strict=True)
        ]
        return keys, values


class State:
    """The last record of every key as of an offset, moved on and on."""

    def __init__(self, script: Script) -> None:
        self.end = 0
        self._script = script
        self._last = np.full(KEYS, -1)

    def at(self, end: int) -> Offsets:
        """Return the offset of each key's last record below an offset, -1 for none."""
        if end < self.end:
            self.end, self._last = 0, np.full(KEYS, -1)
        while self.end < end:
            offsets = np.arange(self.end, min(end, self.end + _AT_A_TIME))
            offsets = offsets[self._script.counts(offsets)]
            np.maximum.at(self._last, self._script.keys(offsets), offsets)
            self.end = min(end, self.end + _AT_A_TIME)
        return self._last

    def shown(self, end: int) -> Offsets:
        """Return the offsets of the records that a reader of the state gets: those of keys that have a value."""
        last = self.at(end)
        last = np.sort(last[last >= 0])
        return last[~self._script.is_tombstone(last)]
