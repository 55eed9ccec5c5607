"""
Follows the transactions of a log by its batches alone, without an index: a marker decides the batches before it.

Readers use this to find the last stable offset and aborted transactions. A cleaning round does its own accounting
(`cleaning/passes/transactions.py`). `plan`, the daemon and `check` use what a load would know (`ProducerState`), which
also considers epochs and replication.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptCheckpointError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk
from cleaner.format.control import ControlType, control_type_of
from cleaner.storage.files.producer_snapshot import read_snapshot
from cleaner.storage.fs.readable import ReadableFiles
from cleaner.storage.segment.names import snapshot_file_name


class Transactions:
    """
    The transactions of batches that are added in offset order.

    Args:
        begin: batches that begin below it are ignored, as already known.
        still_open: the transactions open at `begin`: producers and first offsets.

    Attributes:
        begin: as given.
        open: producers whose last transaction has no marker yet, with its first offset.
        aborted: transactions with an abort marker, in the order of the markers.
    """

    def __init__(self, begin: int = 0, still_open: dict[int, int] | None = None) -> None:
        self.begin = begin
        self.open: dict[int, int] = still_open or {}
        self.aborted: list[AbortedTxn] = []
        self._last_offset = -1

    @staticmethod
    def at_snapshot(
        fs: ReadableFiles, directory: Path, snapshots: Sequence[int], first_offset: int, last_offset: int
    ) -> Transactions:
        """Begin at the last readable producer snapshot within a range (R-125), or at the first offset."""
        for offset in reversed(snapshots):
            if first_offset <= offset <= last_offset:
                try:
                    rows = read_snapshot(fs, directory / snapshot_file_name(offset))
                except (FileNotFoundError, CorruptCheckpointError):
                    continue
                is_open = rows["current_txn_first_offset"] >= 0
                producers, firsts = rows["producer_id"][is_open], rows["current_txn_first_offset"][is_open]
                return Transactions(offset, dict(zip(producers.tolist(), firsts.tolist(), strict=True)))
        return Transactions(first_offset)

    def take(self, path: Path, chunk: Chunk, end_offset: int | None = None) -> None:
        """
        Add the batches of a chunk that begin below `end_offset`; None: all.

        Raises:
            CorruptBatchError: a control record cannot be read.
        """
        rows = chunk.batches
        wanted = (rows["magic"] == 2) & (rows["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0)
        wanted &= rows["base_offset"] >= self.begin
        if end_offset is not None:
            wanted &= rows["base_offset"] < end_offset
        for row in rows[wanted]:
            producer, offset = int(row["producer_id"]), int(row["base_offset"])
            if not row["attributes"] & CONTROL_FLAG:
                self.open.setdefault(producer, offset)
                continue
            kind = control_type_of(path, chunk.data, row)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                first = self.open.pop(producer, None)
                if kind is ControlType.ABORT and first is not None:
                    self.aborted.append(AbortedTxn(producer, first, int(row["last_offset"]), offset))
        self._last_offset = int(rows[-1]["last_offset"])

    def cut(self) -> None:
        """Count the open transactions as aborted: damage behind the last added batch hides their markers."""
        self.aborted += self.open_until(self._last_offset)
        self.open.clear()

    def open_until(self, last_offset: int) -> list[AbortedTxn]:
        """Return the open transactions as if they were aborted, up to an offset."""
        return [AbortedTxn(producer, first, last_offset, first) for producer, first in self.open.items()]

    def first_open(self, end_offset: int) -> int:
        """Return the first offset of the open transactions; `end_offset` if none is open."""
        return min(self.open.values(), default=end_offset)
