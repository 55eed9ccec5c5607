"""One of the two logs: reads its segments batch by batch, from first to last."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.base.closing import Closing
from cleaner.errors import CorruptBatchError, UncleanableError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import (
    CONTROL_FLAG,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_FLAG,
    Batches,
    Chunk,
    ReadBuffer,
)
from cleaner.format.parallel_reader import ParallelSegmentReader, WindowBuffer
from cleaner.kernels.batch_header import MAGIC, MIN_BATCH_BYTES, size_of
from cleaner.kernels.scan_status import KIND_LEGACY
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.leftovers import SwapState, split_swaps, swap_state
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import Aborts, abort_rows, read_txn_index
from cleaner.storage.segment.segment import Segment

_CHUNK_BYTES = 1 << 20
_NOT_PASSED_OVER = CONTROL_FLAG | TRANSACTIONAL_FLAG | KIND_LEGACY


class BatchPlace(NamedTuple):
    """The place of a batch."""

    path: Path
    position: int


class LogSide:
    """
    A partition directory in its current state; nothing in it is changed.

    Args:
        fs: access to the file system.
        directory: of the partition.
        log_start_offset: from the checkpoint; None: the start of the first segment.
        segments: ascending, if they are not all in the directory; None: the directory's segments.

    Attributes:
        fs: access to the file system.
        segments: ascending.
        log_start_offset: first offset that a reader may request.
    Raises:
        UncleanableError: there is no segment, or a swap must be completed: the next load would change the log.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        log_start_offset: int | None = None,
        segments: Sequence[Segment] | None = None,
    ) -> None:
        self.directory = directory
        self.fs = fs
        files = fs.list_files(directory)
        if swap_state(files) is SwapState.COMPLETED:
            reason = f"{SwapState.COMPLETED.value}; `cleaner recover` its log dir, then try again"
            raise UncleanableError(directory / split_swaps(files)[0][0], reason)
        self.segments = list_segments(fs, directory) if segments is None else segments
        if not self.segments:
            raise UncleanableError(directory, "no segment: not a partition directory")
        self._bases = [segment.base_offset for segment in self.segments]
        self.log_start_offset = max(self._bases[0], log_start_offset or 0)

    @property
    def bases(self) -> Sequence[int]:
        """The segments' base offsets."""
        return self._bases

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self.segments)

    def end_of_recopied(self, end_offset: int) -> int:
        """Return the base offset of the first segment with nothing below an offset; beyond all offsets if none."""
        return next((base for base in self._bases if base >= end_offset), 2**63 - 1)

    def segment_of(self, offset: int) -> Segment:
        """Return the segment that an offset belongs to; the first segment for offsets below all."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1)]

    def range_of(self, offset: int) -> tuple[int, int]:
        """Return the base offsets of the segment that an offset belongs to and of the next segment."""
        number = bisect_right(self._bases, offset)
        return self._bases[max(0, number - 1)], self._bases[number] if number < len(self._bases) else 2**63 - 1

    def find(self, offsets: Sequence[int]) -> list[BatchPlace]:
        """
        Return the places of the batches that hold some offsets, or of the first batches after them.

        Args:
            offsets: ascending.
        """
        found: list[BatchPlace] = []
        while len(found) < len(offsets):
            number = max(0, bisect_right(self._bases, offsets[len(found)]) - 1)
            segment = self.segments[number]
            end = self._bases[number + 1] if number + 1 < len(self._bases) else 2**63
            mine = [offset for offset in offsets[len(found) :] if offset < end]
            found += _positions(segment, mine)
        return found

    def aborted(self, from_base: int = -1) -> Aborts:
        """
        Return the entries of the transaction indexes, of the segments from a base offset on.

        Raises:
            CorruptIndexError: an index is damaged.
        """
        found = [abort_rows(())]
        for segment in self.segments:
            if segment.base_offset >= from_base:
                with suppress(FileNotFoundError):
                    found.append(read_txn_index(self.fs, segment.path(names.TXN_INDEX), log_bytes=segment.size))
        return np.concatenate(found)

    def batches(self) -> BatchStream:
        """Return the log's batches from the first on."""
        return BatchStream(self.fs, self.segments)


class BatchStream(Closing):
    """
    The batches of a log, some at a time. Close it, or use it in a `with` block.

    Attributes:
        chunk: the last one read; its bytes are valid until the next is read.
        rows: its batches that were not taken yet.
        segment: their segment.
        next_offset: after the last batch taken, or the start of the segment after it.
        read_bytes: of batches, so far.
        damage: the error in `rows`, which is then a single batch; only its bytes may be compared.
    """

    def __init__(self, fs: FileSystem, segments: Sequence[Segment]) -> None:
        self._fs = fs
        self.segment = segments[0]
        self._left = list(reversed(segments))
        self._file: File | None = None
        self._reader: SegmentReader | None = None
        self._buffer = ReadBuffer(_CHUNK_BYTES)
        self.next_offset = self._read_up_to = segments[0].base_offset
        self.rows: Batches = self._buffer.table[:0]
        self.chunk = Chunk(self._buffer.data, 0, 0, self.rows)
        self.read_bytes = 0
        self.damage: CorruptBatchError | None = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def fill(self) -> bool:
        """
        Read on if no rows are left; False at the end of the log.

        Raises:
            CorruptBatchError: damage.
        """
        while not len(self.rows):
            if self._reader is None and not self._open_next():
                return False
            assert self._reader is not None  # noqa: S101 - opened above
            self.damage = None
            try:
                chunk = self._reader.next_chunk(self._buffer)
            except CorruptBatchError as error:
                chunk, self.damage = self._pass_over(error), error
            if chunk is None:
                self._buffer.shrink()
                self._reader = None
                continue
            self.chunk, self.rows = chunk, chunk.batches
            self._read_up_to = int(chunk.batches["last_offset"][-1]) + 1
            self.read_bytes += chunk.length
        return True

    def _pass_over(self, error: CorruptBatchError) -> Chunk:
        """Return a batch with a wrong checksum as its own chunk; raises the error if its header cannot be trusted."""
        file, position = self._file, error.position
        assert file is not None  # noqa: S101 - it was being read
        size = size_of(file.read(LOG_OVERHEAD_BYTES, position))
        if not MIN_BATCH_BYTES[MAGIC] <= size <= self.segment.size - position:
            raise error
        order_from = max(self.segment.base_offset, self._read_up_to)
        reader = ParallelSegmentReader(
            file, size=position + size, start=position, window_bytes=size, check_order_from=order_from
        )
        window = reader.claim()
        if window is None:
            raise error
        buffer = WindowBuffer(size)
        reader.fill(window, buffer)
        chunk = reader.arrange(window, buffer)
        # Its transaction flags cannot be trusted.
        if len(chunk.batches) != 1 or chunk.failure is not None or chunk.kinds & _NOT_PASSED_OVER:
            raise error
        self._reader = SegmentReader(
            file,
            size=self.segment.size,
            start=position + size,
            buffer=self._buffer,
            check_order_from=int(chunk.batches[0]["last_offset"]) + 1,
        )
        return chunk

    def _open_next(self) -> bool:
        self.close()
        if not self._left:
            return False
        self.segment = segment = self._left.pop()
        self._file = self._fs.open(segment.log_path)
        self._reader = SegmentReader(
            self._file,
            size=segment.size,
            buffer=self._buffer,
            check_order_from=max(segment.base_offset, self._read_up_to),
        )
        self.next_offset = max(self.next_offset, segment.base_offset)
        return True

    def take(self, count: int, *, keeps_last: bool = False) -> Chunk:
        """Return the next rows as their own chunk, valid until `fill` reads on; the last one may come again."""
        rows, self.rows = self.rows[:count], self.rows[count - keeps_last :]
        if count:
            self.next_offset = int(rows["last_offset"][-1]) + 1
        return Chunk(self.chunk.data, self.chunk.length, self.chunk.position, rows, self.chunk.kinds)


def _positions(segment: Segment, offsets: Sequence[int]) -> list[BatchPlace]:
    """Return the places of the batches of a segment that hold some ascending offsets; its end for later offsets."""
    found: list[BatchPlace] = []
    for chunk in segment.chunks(start=0, buffer=ReadBuffer(), check_order_from=segment.base_offset):
        rows = chunk.batches
        while len(found) < len(offsets) and offsets[len(found)] <= rows["last_offset"][-1]:
            row = int(np.searchsorted(rows["last_offset"], offsets[len(found)]))
            found.append(BatchPlace(segment.log_path, int(rows[row]["position"])))
    return found + [BatchPlace(segment.log_path, segment.size)] * (len(offsets) - len(found))
