"""
Damaged batches that a round copies unchanged: identified by their place before the round, and by their bytes after it.

Only the length, magic and offsets of such a batch are trusted. Its keys do not count: they supersede nothing, and
nothing supersedes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import Batches, Flags

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DamagedBatch:
    """
    A batch with a wrong checksum, or whose records cannot be read.

    Attributes:
        path, position, size: the source's `.log`, the byte position in it, and the bytes.
        base_offset, last_offset: from its header, consistent with its neighbours.
        reason: the error, in words.
        segment: base offset of the source segment.
        digest: of its bytes.
    """

    path: Path
    position: int
    size: int
    base_offset: int
    last_offset: int
    reason: str
    segment: int
    digest: bytes


class KnownDamage:
    """
    The damaged batches of a log, before a round.

    Args:
        batches: in order of their offsets.
    """

    def __init__(self, batches: Sequence[DamagedBatch] = ()) -> None:
        self.batches = tuple(batches)
        self._digests = {batch.base_offset: batch.digest for batch in batches}
        by_segment: dict[int, list[int]] = {}
        for batch in batches:
            by_segment.setdefault(batch.segment, []).append(batch.position)
        self._positions = {base: np.array(positions, np.int64) for base, positions in by_segment.items()}

    def positions(self, segment: int) -> Longs:
        """Return the positions of the damaged batches of a source segment, ascending."""
        return self._positions.get(segment, _NO_POSITIONS)

    def flags(self, segment: int, rows: Batches) -> Flags:
        """Return uint8 for each batch of a source segment: 1 if it is damaged."""
        positions = self.positions(segment)
        flags: Flags = np.zeros(len(rows), np.uint8)
        if len(positions):
            flags[np.isin(rows["position"], positions)] = 1
        return flags

    def has(self, base_offset: int, content: memoryview) -> bool:
        """Tell whether a damaged batch at this offset had exactly these bytes."""
        return self._digests.get(base_offset) == digest_of(content)


def digest_of(content: memoryview) -> bytes:
    """Return a digest that identifies the bytes of a damaged batch."""
    return blake2b(content, digest_size=32).digest()


_NO_POSITIONS: Longs = np.zeros(0, np.int64)
NO_DAMAGE = KnownDamage()
