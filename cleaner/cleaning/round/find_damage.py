"""
Finds the damaged batches of a log that can be copied unchanged, before a round decides anything.

A batch can be kept if its length, magic and offsets can be trusted: the batches before and after it must fit. It cannot
be kept among transactions: it might be a marker, or belong to a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.passes.damage import DamagedBatch, KnownDamage, digest_of
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.segment_chunks import SegmentChunks
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk
from cleaner.format.layout import lay_out
from cleaner.format.parallel_reader import verify_checksums
from cleaner.format.records import Unpacker, leave_out
from cleaner.storage.segment.segment import Segment

_ALL_OFFSETS = (-(2**63), 2**63 - 1)


def find_damage(segments: Sequence[Segment], end_offset: int, memory: LaneMemory, context: RoundContext) -> KnownDamage:
    """
    Read whole segments and list the damaged batches that can be kept.

    Args:
        segments: all segments that a round may recopy, ascending.
        end_offset: base offset of the segment after them.
    Raises:
        CorruptLogError: damage that cannot be kept, or is among transactions.
    """
    chunks = SegmentChunks(
        ((number, segment, 0) for number, segment in enumerate(segments)),
        memory.buffer.window_bytes,
        most_bytes=context.window_bytes,
        drops_behind=True,
    )
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    found: list[DamagedBatch] = []
    has_transactions = False
    try:
        while (claim := chunks.claim()) is not None:
            context.check_done()
            context.throttle(claim.window.size)
            memory.buffer.shrink()
            chunks.fill(claim, memory.buffer)
            chunk = chunks.arrange(claim, memory.buffer).chunk
            has_transactions |= bool(chunk.kinds & (TRANSACTIONAL_FLAG | CONTROL_FLAG))
            errors = _damage_of(claim.path, chunk, memory.unpacker)
            found += _batches(chunk, errors, claim.segment.base_offset, ends[claim.number])
            if chunk.failure is not None:
                raise _cannot_keep(chunk.failure, "its header does not fit its place, or cannot be read")
            chunks.release(claim)
    finally:
        chunks.close()
    if found and has_transactions:
        first = CorruptBatchError(found[0].path, found[0].position, found[0].reason)
        raise _cannot_keep(first, "the log holds transactions that it may belong to")
    return KnownDamage(found)


def _damage_of(path: Path, chunk: Chunk, unpacker: Unpacker) -> dict[int, CorruptBatchError]:
    """Return the errors of a chunk, by row. Raises CorruptBatchError for batches of magic 0 and 1."""
    errors: dict[int, CorruptBatchError] = {}
    first = 0
    while first < len(chunk.batches):
        part = verify_checksums(path, replace(chunk, batches=chunk.batches[first:], failure=None))
        if part.failure is None:
            break
        first += len(part.batches)
        _note(chunk, first, part.failure, errors)
        first += 1
    skipped = np.zeros(len(chunk.batches), np.uint8)
    skipped[list(errors)] = 1
    while True:
        try:
            # A copy: unpacking changes the rows.
            for block in unpacker.blocks(path, replace(chunk, batches=chunk.batches.copy()), unwanted=skipped != 0):
                lay_out(path, block, skipped[block.first : block.first + len(block.batches)], *_ALL_OFFSETS)
        except CorruptBatchError as error:
            _note(chunk, leave_out(chunk.batches, skipped, error), error, errors)
        else:
            return errors


def _cannot_keep(error: CorruptBatchError, why: str) -> CorruptBatchError:
    return CorruptBatchError(error.path, error.position, f"{error.reason}; it cannot be kept: {why}")


def _note(chunk: Chunk, row: int, error: CorruptBatchError, errors: dict[int, CorruptBatchError]) -> None:
    if chunk.batches[row]["magic"] < 2:
        raise _cannot_keep(error, "only batches of magic 2 are")
    errors[row] = error


def _batches(chunk: Chunk, errors: dict[int, CorruptBatchError], segment: int, end_offset: int) -> list[DamagedBatch]:
    found = []
    for row, error in sorted(errors.items()):
        batch = chunk.batches[row]
        # Listing has checked that it fits the next batch in its segment.
        if batch["last_offset"] >= end_offset:
            raise _cannot_keep(error, "its last offset reaches into the next segment")
        start, size = int(batch["start"]), int(batch["size"])
        found.append(
            DamagedBatch(
                path=error.path,
                position=error.position,
                size=size,
                base_offset=int(batch["base_offset"]),
                last_offset=int(batch["last_offset"]),
                reason=error.reason,
                segment=segment,
                digest=digest_of(chunk.data.data[start : start + size]),
            )
        )
    return found
