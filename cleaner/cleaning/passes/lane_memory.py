"""
The memory of a round's lanes, kept from one round of a process to the next.

A lane's buffers take about 10 to 20 MB. New memory must be allocated and cleared page by page, and freed memory leaves
holes between other allocations that grow with the rounds. So rounds borrow lanes, and returned lanes are kept: as many
as all workers need at once, each no larger than rounds usually need (`cleaning/round/memory_budget.py` compares the
settings with the machine's memory). Between rounds the system may take their pages if it is short of memory
(`table_memory.offer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from cleaner.base import concurrency
from cleaner.base.table_memory import offer
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker

# Enough for a chunk of usual batches. More is allocated for the chunk alone: few chunks unpack to more.
USUAL_OUTPUT_BYTES = 4 << 20
_USUAL_DIGEST_BYTES = 4 << 20


@dataclass
class LaneMemory:
    """
    The memory of one lane, reused for every chunk of every pass.

    Attributes:
        buffer: the bytes read, and the table of their batches.
        unpacker: unpacks records.
        digests: of a chunk's keys, in the first pass.
        output, rebuilt: output of a chunk, and the batch being rebuilt, in the second pass.
    """

    buffer: WindowBuffer
    unpacker: Unpacker
    digests: GrowingBuffer = field(default_factory=GrowingBuffer)
    output: GrowingBuffer = field(default_factory=GrowingBuffer)
    rebuilt: GrowingBuffer = field(default_factory=GrowingBuffer)

    def shrink_and_offer(self) -> None:
        """Shrink to the usual size, and let the system take the pages if it is short of memory."""
        self.buffer.shrink()
        self.unpacker.shrink()
        self.digests.shrink(_USUAL_DIGEST_BYTES)
        self.output.shrink(USUAL_OUTPUT_BYTES)
        self.rebuilt.shrink(USUAL_OUTPUT_BYTES)
        for array in (*self.buffer.arrays, *self.unpacker.arrays):
            offer(array)
        for buffer in (self.digests, self.output, self.rebuilt):
            offer(buffer.array)


class _Spare:
    """Unused lanes."""

    lock = concurrency.Lock()
    lanes: ClassVar[list[LaneMemory]] = []


@contextmanager
def borrowed_lanes(count: int, batch_limit_bytes: int, *, max_kept: int) -> Iterator[list[LaneMemory]]:
    """
    Lend the memory of some lanes for a `with` block; it must not be used after the block.

    Args:
        count: how many lanes.
        batch_limit_bytes: most bytes one batch may unpack to.
        max_kept: how many the process may keep for later rounds.
    """
    with _Spare.lock:
        # Use the lane returned last: a small log uses the same one each time, and leaves the others.
        lanes = _Spare.lanes[:count]
        del _Spare.lanes[:count]
    lanes += [LaneMemory(WindowBuffer(), Unpacker(0)) for _ in range(count - len(lanes))]
    for lane in lanes:
        lane.unpacker.limit_bytes = batch_limit_bytes
    try:
        yield lanes
    finally:
        for lane in lanes:
            lane.shrink_and_offer()
        with _Spare.lock:
            _Spare.lanes[:0] = lanes
            del _Spare.lanes[max_kept:]
