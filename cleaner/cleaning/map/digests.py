"""
Checks and digests the keys of one chunk of the dirty section, and holds the digests until they go into the map.

This part of the first pass needs no order, so several lanes do it in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cleaner.base.key_views import KeyView
from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, Claim
from cleaner.errors import CorruptLogError, RecordAboveLimitError
from cleaner.format.batch import BATCH_DTYPE, Batches, Chunk
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import KeyDigests, Words
from cleaner.format.record_numbers import RecordNumbers
from cleaner.format.records import Block, Unpacker
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.storage.segment.segment import Segment

ENOUGH_BYTES = 8 << 20
"""Of digests to keep until a chunk's turn: more than those of a chunk that is not compressed."""


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

    A chunk of batches that unpack to a thousand times their size has millions of records, and lanes keep their digests
    until their turn. So only some MiB of them are made beforehand; the rest follows, in parts, at the chunk's turn.

    Args:
        memory: reused for every chunk; None: its own.
        in_parts: make some MiB at a time, and the rest by `digest_more`; otherwise all at once.
        record_limit_bytes: the largest record that a compressed batch may have.
        view, numbers: as for `KeyDigests`.

    Attributes:
        error: the error in a record so far.
        refusal: a record above the limit; the records before it are digested.
    """

    def __init__(
        self,
        memory: GrowingBuffer | None = None,
        *,
        in_parts: bool = False,
        record_limit_bytes: int = LARGEST_RECORD_BYTES,
        view: KeyView | None = None,
        numbers: RecordNumbers | None = None,
    ) -> None:
        super().__init__(memory, view, numbers)
        self._in_parts = in_parts
        self._record_limit_bytes = record_limit_bytes
        self.error: CorruptLogError | None = None
        self.refusal: RecordAboveLimitError | None = None
        self._blocks: Iterator[Block] = iter(())
        self._next: Block | None = None

    def digest(self, task: DirtyChunk, unpacker: Unpacker, first_dirty_offset: int, keys: Words) -> None:
        """Check and digest a chunk's first records; errors are kept in `error` and `refusal` until the chunk's turn."""
        self.clear()
        self.error = self.refusal = None
        self._blocks, self._next = iter(()), None
        if task.chunk is not None:
            self._blocks = unpacker.blocks(task.path, task.chunk, task.skipped != 0, self._record_limit_bytes)
            self._digest(task, first_dirty_offset, keys)

    def digest_more(self, task: DirtyChunk, first_dirty_offset: int, keys: Words) -> bool:
        """Replace the rows by those of the chunk's next records; False if there are none. Counts go on."""
        self.drop_rows()
        if self._next is not None:
            self._digest(task, first_dirty_offset, keys)
        return len(self.rows) > 0

    def _digest(self, task: DirtyChunk, first_dirty_offset: int, keys: Words) -> None:
        """Digest blocks up to the end or until there are enough rows; then the next block waits in `_next`."""
        block, self._next = self._next, None
        try:
            while (block := block or next(self._blocks, None)) is not None:
                if self._in_parts and self.rows.nbytes >= ENOUGH_BYTES:
                    self._next = block
                    return
                mine = task.skipped[block.first : block.first + len(block.batches)]
                self.add(task.path, block, mine, keys, first_dirty_offset)
                block = None
        except CorruptLogError as error:
            self.error = error
        except RecordAboveLimitError as error:
            self.refusal = error
