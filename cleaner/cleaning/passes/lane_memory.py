"""
What the lanes of a round work in, kept from one round of a process to the next.

A lane's buffers are some 10 to 20 MB. Memory that is asked for anew has to be found and cleared page by page, and what
is given back between other allocations leaves holes that grow with the rounds. So rounds borrow lanes, and what they
give back is kept: as many lanes as all workers need at once, none larger than rounds usually need
(`cleaning/round/memory_budget.py` holds the settings against the machine's memory). Meanwhile the system may have
their pages whenever it is short (`table_memory.offer`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from cleaner.base.table_memory import offer
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.format.records import Unpacker

# What a chunk of usual batches needs. Beyond it memory is a chunk's own: one that unpacks to a lot is met seldom.
USUAL_OUTPUT_BYTES = 4 << 20
_USUAL_DIGEST_BYTES = 4 << 20


@dataclass
class LaneMemory:
    """
    What one lane needs for a chunk, used again for every chunk of every pass.

    Attributes:
        buffer: what is read, and the table of its batches.
        unpacker: makes records readable.
        digests: of a chunk's keys, in the first pass.
        output, rebuilt: what stays of a chunk, and the batch that is being rebuilt, in the second.
    """

    buffer: WindowBuffer
    unpacker: Unpacker
    digests: GrowingBuffer = field(default_factory=GrowingBuffer)
    output: GrowingBuffer = field(default_factory=GrowingBuffer)
    rebuilt: GrowingBuffer = field(default_factory=GrowingBuffer)

    def put_away(self) -> None:
        """Go back to the usual size, and let the system have the pages, should it be short of memory."""
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
    """Lanes that nobody uses."""

    lock = threading.Lock()
    lanes: ClassVar[list[LaneMemory]] = []


@contextmanager
def borrowed_lanes(count: int, batch_limit_bytes: int, *, most_kept: int) -> Iterator[list[LaneMemory]]:
    """
    Lend the memory of some lanes for the length of a `with` block; nobody may use it any more behind it.

    Args:
        count: how many lanes.
        batch_limit_bytes: most bytes one batch may unpack to.
        most_kept: how many the process may keep for later rounds.
    """
    with _Spare.lock:
        # In the order in which they were given back: a small log uses the same one each time, and leaves the others.
        lanes = _Spare.lanes[:count]
        del _Spare.lanes[:count]
    lanes += [LaneMemory(WindowBuffer(), Unpacker(0)) for _ in range(count - len(lanes))]
    for lane in lanes:
        lane.unpacker.limit_bytes = batch_limit_bytes
    try:
        yield lanes
    finally:
        for lane in lanes:
            lane.put_away()
        with _Spare.lock:
            _Spare.lanes[:0] = lanes
            del _Spare.lanes[most_kept:]
