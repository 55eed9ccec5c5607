"""Reading cells of a log (`cells.py`) as blocks of records, with what transactions make of their batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.cleaning.estimate.cells import Cell
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.format.batch import Batches, ReadBuffer, SegmentReader
from cleaner.format.chunks import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, Flags
from cleaner.format.key_digests import MESSAGES_BEFORE, SIP, KeyDigests, Words
from cleaner.format.records import Block, Unpacker
from cleaner.policy.record_filter import BatchRetention
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from cleaner.storage.segment.aborted import AbortedRanges
from cleaner.storage.segment.indexes import abort_rows
from cleaner.storage.segment.names import TXN_INDEX
from cleaner.storage.segment.segment import Segment


class CellBlock(NamedTuple):
    """Some batches of a cell: their file, their records, and uint8 a batch: 1 for those that go unread."""

    path: Path
    block: Block
    gone: Flags

    def fates(self) -> BlockRetention:
        """Return what is known before records are read."""
        usual = BlockRetention.undecided(len(self.gone), legacy_deletes_stay=True)
        fates = np.where(self.gone, BatchRetention.DROP, BatchRetention.KEEP_IF_NOT_EMPTY).astype(np.int8)
        return BlockRetention(fates, self.gone, self.gone, usual.empties_marker, legacy_deletes_stay=True)


class CellReader:
    """
    Reads cells, in log order; to be closed.

    Args:
        fs: the door to the file system.
        segments: those the cells are of.
        limit_bytes: most bytes a batch may unpack to.
        now_ms: markers whose horizon is at or below it go.
    """

    def __init__(self, fs: FileSystem, segments: Sequence[Segment], limit_bytes: int, now_ms: int) -> None:
        self._fs = fs
        self._segments = segments
        self._buffer = ReadBuffer()
        self._unpacker = Unpacker(limit_bytes)
        self._aborted = _aborted(fs, segments)
        self._now_ms = now_ms
        self._open: tuple[int, File] | None = None
        self._digests = KeyDigests()

    def __enter__(self) -> CellReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def blocks(self, cell: Cell, *, leaves_cache: bool = False) -> Iterator[CellBlock]:
        """
        Read a cell.

        Args:
            cell: which.
            leaves_cache: it will be read again soon; else what was not in memory before is not kept there.
        Raises:
            CorruptBatchError: damage.
            FileNotFoundError: its segment has gone.
        """
        if cell.start >= cell.end:
            return
        segment, file = self._segments[cell.segment], self._file(cell.segment)
        was_cold = not file.is_cached(cell.start)
        chunks = SegmentReader(
            file, size=cell.end, start=cell.start, buffer=self._buffer, check_order_from=segment.base_offset
        )
        for chunk in chunks:
            gone = self._gone(chunk.batches)
            for block in self._unpacker.blocks(segment.log_path, chunk, unwanted=gone != 0):
                yield CellBlock(segment.log_path, block, gone[block.first : block.first + len(block.batches)])
        if was_cold and not leaves_cache:
            file.drop_cache(cell.start, cell.end - cell.start)

    def digest(self, part: CellBlock, keys: Words) -> tuple[Words, Words]:
        """
        Digest the keys of a block; valid until the next call.

        Returns:
            The digests of records with a key, and their places among the block's records that are read.
        """
        block, gone = part.block, part.gone
        is_control = ((block.batches["attributes"] & CONTROL_FLAG != 0) & (block.batches["magic"] == 2)).astype(
            np.uint8
        )
        skipped = gone | is_control
        rows = self._digests.of(part.path, block, skipped, keys)
        return rows[:, SIP], _places(block.batches, skipped, gone, rows[:, MESSAGES_BEFORE])

    def _gone(self, batches: Batches) -> Flags:
        """Return which batches are data of aborted transactions, or markers past their horizon."""
        kinds = batches["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)
        # A marker gets its horizon once its transaction has left no data.
        has_horizon = batches["attributes"] & (CONTROL_FLAG | DELETE_HORIZON_FLAG) == CONTROL_FLAG | DELETE_HORIZON_FLAG
        is_expired = has_horizon & (batches["magic"] == 2) & (batches["base_timestamp"] <= self._now_ms)
        gone: Flags = is_expired.astype(np.uint8)
        if (kinds == TRANSACTIONAL_FLAG).any():
            gone |= self._aborted.hidden(batches)
        return gone

    def _file(self, row: int) -> File:
        if self._open is None or self._open[0] != row:
            self._close()
            self._open = (row, self._segments[row].open_log())
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _places(batches: Batches, skipped: Flags, gone: Flags, messages: Words) -> Words:
    """Turn how many messages came before each record, as the kernel counts them, into places among verdicts."""
    counts = np.where(batches["attributes"] & CONTROL_FLAG != 0, 1, batches["count"])
    before = np.concatenate([[0], np.cumsum(np.where(skipped, counts, batches["count"]))])
    verdicts = np.concatenate([[0], np.cumsum(np.where(gone, 0, batches["count"]))])
    of_message = messages.astype(np.int64)
    batch = np.searchsorted(before, of_message, side="right") - 1
    places: Words = (verdicts[batch] + of_message - before[batch]).astype(np.uint64)
    return places


def _aborted(fs: FileSystem, segments: Sequence[Segment]) -> AbortedRanges:
    """Read the transaction indexes, of which there are few."""
    present = set(fs.list_files(segments[0].directory)) if segments else set()
    found = [segment.aborted_txns() for segment in segments if segment.path(TXN_INDEX).name in present]
    return AbortedRanges(np.concatenate([abort_rows(()), *found]))
