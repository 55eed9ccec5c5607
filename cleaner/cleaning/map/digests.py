"""
The keys of one chunk of the dirty section, checked and digested, until it is their turn to go into the map.

This is the part of the first pass that needs no order, so several lanes do it side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.offset_map import Words
from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, Claim
from cleaner.errors import CorruptLogError
from cleaner.format.batch import BATCH_DTYPE, Batches, Chunk
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Flags
from cleaner.format.records import Unpacker, bad_record
from cleaner.kernels import offset_map as kernel
from cleaner.storage.segment.segment import Segment


@dataclass
class DirtyChunk:
    """
    A chunk of the dirty section, from claim to commit.

    Attributes:
        number: of its segment in the dirty section.
        claim: its place; None when none was left.
        arranged: its batches, by their headers.
        skipped: uint8 a batch: 1 for control and aborted batches.
        chunk: its batches with good checksums.
        error: what was wrong before its checksums were looked at.
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
        """Of the segment's `.log`."""
        return self.segment.log_path if self.claim is None else self.claim.path

    @property
    def batches(self) -> Batches:
        """The good batches; none when reading failed."""
        return np.zeros(0, BATCH_DTYPE) if self.chunk is None else self.chunk.batches

    @property
    def length(self) -> int:
        """Bytes they cover."""
        return 0 if self.chunk is None else self.chunk.length

    @property
    def failure(self) -> CorruptLogError | None:
        """What is wrong behind them."""
        return None if self.chunk is None else self.chunk.failure


class DigestedChunk:
    """
    The digests of a chunk's keyed records.

    Args:
        memory: used again for every chunk; None for memory of its own.
    """

    def __init__(self, memory: GrowingBuffer | None = None) -> None:
        self._memory = GrowingBuffer() if memory is None else memory
        self.error: CorruptLogError | None = None
        self._state = np.zeros(kernel.STATE_CELLS, np.int64)

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """`DIGEST_WORDS` for each record with a key in the dirty section; what lies behind them is of no use."""
        return self._memory.array.view(np.uint64)

    @property
    def keyed(self) -> int:
        """Records with a key in the dirty section."""
        return int(self._state[kernel.STATE_KEYED])

    @property
    def messages(self) -> int:
        """Records seen; batches of aborted transactions count whole, markers as one (R-718)."""
        return int(self._state[kernel.STATE_MESSAGES])

    @property
    def keyless(self) -> int:
        """Records without a key in the dirty section."""
        return int(self._state[kernel.STATE_KEYLESS])

    def digest(self, task: DirtyChunk, unpacker: Unpacker, first_dirty_offset: int, keys: Words) -> None:
        """Check and digest a chunk's records; what is wrong with one is kept for when its turn comes."""
        self._state[:] = 0
        self.error = None
        if task.chunk is None:
            return
        try:
            self._digest(task, task.chunk, unpacker, first_dirty_offset, keys)
        except CorruptLogError as error:
            self.error = error

    def _digest(self, task: DirtyChunk, chunk: Chunk, unpacker: Unpacker, first_dirty_offset: int, keys: Words) -> None:
        path = task.path
        for block in unpacker.blocks(path, chunk, unwanted=task.skipped != 0):
            mine = task.skipped[block.first : block.first + len(block.batches)]
            row_bytes = 8 * kernel.DIGEST_WORDS
            self._memory.ensure((self.keyed + block.record_count(mine)) * row_bytes, keep=self.keyed * row_bytes)
            status = kernel.digest_records(
                block.data,
                block.unpacked,
                block.batches,
                mine,
                first_dirty_offset,
                keys,
                self.digests,
                self._state,
            )
            if status != kernel.DIGEST_GOOD:
                row = block.batches[int(self._state[kernel.STATE_BATCH])]
                record_position = int(self._state[kernel.STATE_RECORD_POSITION])
                raise bad_record(path, row, int(self._state[kernel.STATE_STATUS]), record_position)
