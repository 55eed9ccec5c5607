"""
Checks and digests the keys of one chunk of the dirty section, and holds the digests until they go into the map.

This part of the first pass needs no order, so several lanes do it in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, Claim
from cleaner.errors import CorruptLogError
from cleaner.format.batch import BATCH_DTYPE, Batches, Chunk
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import KeyDigests, Words
from cleaner.format.records import Unpacker
from cleaner.storage.segment.segment import Segment


@dataclass
class DirtyChunk:
    """
    A chunk of the dirty section, from claim to commit.

    Attributes:
        number: of its segment in the dirty section.
        claim: its window; None if there was an error before.
        arranged: its batches, by their headers.
        skipped: uint8 for each batch: 1 for control and aborted batches.
        chunk: its batches with good checksums.
        error: found before its checksums were verified.
    """

    number: int
    segment: Segment
    claim: Claim | None = None
    arranged: ArrangedChunk | None = None
    skipped: Flags = field(default_factory=lambda: np.zeros(0, np.uint8))
    chunk: Chunk | None = None
    error: CorruptLogError | None = None

    @property
    def path(self) -> Path:
        """Path of the segment's `.log`."""
        return self.segment.log_path if self.claim is None else self.claim.path

    @property
    def batches(self) -> Batches:
        """The good batches; none if reading failed."""
        return np.zeros(0, BATCH_DTYPE) if self.chunk is None else self.chunk.batches

    @property
    def length(self) -> int:
        """Bytes that the good batches cover."""
        return 0 if self.chunk is None else self.chunk.length

    @property
    def failure(self) -> CorruptLogError | None:
        """The error after the good batches."""
        return None if self.chunk is None else self.chunk.failure


class DigestedChunk(KeyDigests):
    """
    The digests of a chunk's keyed records in the dirty section.

    Args:
        memory: reused for every chunk; None: its own.

    Attributes:
        error: the error in a record.
    """

    def __init__(self, memory: GrowingBuffer | None = None) -> None:
        super().__init__(memory)
        self.error: CorruptLogError | None = None

    def digest(self, task: DirtyChunk, unpacker: Unpacker, first_dirty_offset: int, keys: Words) -> None:
        """Check and digest a chunk's records; an error is kept in `error` until the chunk's turn."""
        self.clear()
        self.error = None
        if task.chunk is None:
            return
        try:
            for block in unpacker.blocks(task.path, task.chunk, unwanted=task.skipped != 0):
                mine = task.skipped[block.first : block.first + len(block.batches)]
                self.add(task.path, block, mine, keys, first_dirty_offset)
        except CorruptLogError as error:
            self.error = error
