"""
Divides a log into cells, some of which are drawn at random and read.

A cell is a part of a segment between two batches in the offset index, near multiples of the cell size. So every batch
is in exactly one cell, and the index of a segment without drawn cells is not read. Cells are read as blocks of records,
with flags for the batches that transactions remove.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptIndexError
from cleaner.format.batch import Batches, ReadBuffer, SegmentReader
from cleaner.format.chunks import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, Flags, control_batches
from cleaner.format.key_digests import FIRST, NUMBER, OFFSET_PLUS_1, KeyDigests, Words
from cleaner.format.record_numbers import RecordNumbers
from cleaner.format.records import Block, Unpacker
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.storage.fs.file_system import File
from cleaner.storage.load.aborted_walk import AbortedWalk
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.segment import Segment

OFFSETS_END = 2**62  # above all offsets
# Small cells give more information for the same bytes, since neighbours are often alike. Smaller ones cost seeks.
_MIN_BYTES = 16 << 10
_MAX_BYTES = 1 << 20
_CELLS_OF_ALL = 256  # if everything is read: they give the number of keys in a part of the log
_MAX_CELLS = 1 << 14


class Cell(NamedTuple):
    """
    One cell, or several adjacent ones of a segment.

    Attributes:
        segment: index of its segment in the list.
        start, end: byte positions in the `.log`; equal where no batch begins in the cell.
        before: bytes of the log before it.
    """

    segment: int
    start: int
    end: int
    before: int


class CellBlock(NamedTuple):
    """Some batches of a cell: their file, their records, and uint8 for each batch: 1 if it is removed unread."""

    path: Path
    block: Block
    gone: Flags


class Cells:
    """
    The cells of some segments. Close it after reading.

    Args:
        segments: in log order, at least one.
        limit_bytes: most bytes a batch may unpack to.
        now_ms: markers whose horizon is at or below it are removed.
        sample_bytes: how much will be drawn; if that is everything, cells are larger.
        record_limit_bytes: most bytes of a record in a compressed batch; see `Unpacker.blocks`.
        numbers: what the survivor rule compares before offsets; None: nothing.
        uses_last_entry: use the last entry of each offset index, which a round may pass over (R-538).

    Attributes:
        before: for each segment the bytes before it, and at the end their sum.
        total_bytes: of all segments.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        limit_bytes: int,
        now_ms: int,
        sample_bytes: int,
        record_limit_bytes: int = LARGEST_RECORD_BYTES,
        *,
        numbers: RecordNumbers | None = None,
        uses_last_entry: bool = True,
    ) -> None:
        self._segments = segments
        self._record_limit_bytes = record_limit_bytes
        self._uses_last_entry = uses_last_entry
        sizes = np.array([segment.size for segment in segments], np.int64)
        self.before = np.concatenate([[0], np.cumsum(sizes)])
        self.total_bytes = int(self.before[-1])
        count = _MAX_CELLS if sample_bytes < self.total_bytes else _CELLS_OF_ALL
        usual_bytes = self.total_bytes // count
        self._cell_bytes = max(_MIN_BYTES, min(_MAX_BYTES, usual_bytes))
        self._first: list[int] = [0, *np.cumsum(-(-sizes // self._cell_bytes)).tolist()]
        self._index = -1, np.zeros(0, np.int64)
        self._aborted = AbortedRanges(AbortedWalk().collect(segments, segments[0].base_offset, OFFSETS_END, 0))
        self._now_ms = now_ms
        self._buffer = ReadBuffer()
        self._file: File | None = None
        self._unpacker = Unpacker(limit_bytes)
        self._digests = KeyDigests(numbers=numbers)

    def draw(self, first: int, end: int, max_bytes: int, chance: random.Random) -> list[Cell]:
        """Draw at least two cells of segments [first, end), up to `max_bytes` in all; returns them in order."""
        numbers: Sequence[int] = range(self._first[first], self._first[end])
        wanted = max(2, max_bytes // self._cell_bytes)
        if wanted < len(numbers):
            numbers = sorted(chance.sample(numbers, wanted))
        cells = [cell for cell in map(self._cells_from, numbers) if cell.start < cell.end]
        # If batches are larger than cells, most cells are empty.
        few = len(cells) < 2 and wanted < self._first[end] - self._first[first]
        return self.draw(first, end, 4 * wanted * self._cell_bytes, chance) if few else cells

    def stretches(self, count: int, max_bytes: int) -> list[Cell]:
        """Return a few long runs of adjacent cells, spread over the log."""
        length, end = max(1, max_bytes // self._cell_bytes), self._first[-1]
        return [self._cells_from(number, length) for number in sorted({end * i // count for i in range(count)})]

    def _cells_from(self, number: int, count: int = 1) -> Cell:
        row = bisect_right(self._first, number) - 1
        if row != self._index[0]:
            self._index = row, _positions(self._segments[row], uses_last_entry=self._uses_last_entry)
        edge, size, positions = (number - self._first[row]) * self._cell_bytes, self._segments[row].size, self._index[1]
        start = int(positions[bisect_right(positions, edge) - 1])
        edge += count * self._cell_bytes
        end = int(positions[bisect_right(positions, edge) - 1]) if edge < size else size
        return Cell(row, start, end, int(self.before[row]) + start)

    def blocks(self, cell: Cell, *, leaves_cache: bool = False) -> Iterator[CellBlock]:
        """
        Read a cell.

        Args:
            cell: the cell.
            leaves_cache: it will be read again soon; else pages that were not cached before are dropped.
        Raises:
            CorruptBatchError: damage.
            RecordAboveLimitError: a record that a cleaning refuses.
            FileNotFoundError: its segment is gone.
        """
        segment = self._segments[cell.segment]
        # Cells are mostly read in order, and there may be thousands in a segment.
        if self._file is None or self._file.path != segment.log_path:
            self.close()
            self._file = segment.open_log()
        file = self._file
        drops = not leaves_cache and not file.is_cached(cell.start)
        chunks = SegmentReader(
            file, size=cell.end, start=cell.start, buffer=self._buffer, check_order_from=segment.base_offset
        )
        for chunk in chunks:
            gone = self._gone(chunk.batches)
            for block in self._unpacker.blocks(segment.log_path, chunk, gone != 0, self._record_limit_bytes):
                yield CellBlock(segment.log_path, block, gone[block.first : block.first + len(block.batches)])
        if drops:
            file.drop_cache(cell.start, cell.end - cell.start)

    def close(self) -> None:
        """Close the segment that was read last; cells can still be read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def digest(self, part: CellBlock, secret: Words) -> tuple[Words, Words, Words]:
        """
        Return the digests of a block's records with a key, their offsets plus 1, and their numbers, or none.

        They are valid until the next call.
        """
        path, block, gone = part
        rows = self._digests.of(path, block, gone | control_batches(block.batches), secret)
        return rows[:, FIRST], rows[:, OFFSET_PLUS_1], rows[:, NUMBER:].reshape(-1)

    def _gone(self, batches: Batches) -> Flags:
        """Return which batches are data of aborted transactions, or markers past their horizon."""
        kinds = batches["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
        # A marker gets its horizon once its transaction has no data left.
        has_horizon = batches["attributes"] & (CONTROL_FLAG | DELETE_HORIZON_FLAG) == CONTROL_FLAG | DELETE_HORIZON_FLAG
        is_expired = has_horizon & (batches["magic"] == 2) & (batches["base_timestamp"] <= self._now_ms)
        gone: Flags = is_expired.astype(np.uint8)
        if (kinds == TRANSACTIONAL_FLAG).any():
            gone |= self._aborted.hidden(batches)
        return gone


def _positions(segment: Segment, *, uses_last_entry: bool) -> npt.NDArray[np.int64]:
    """Return the positions of batches in the offset index; none if it cannot be read."""
    try:
        positions = segment.offset_index()["position"].astype(np.int64)
        return np.concatenate([[0], positions if uses_last_entry else positions[:-1]])
    except CorruptIndexError:
        return np.zeros(1, np.int64)
