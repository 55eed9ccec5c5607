"""Transactions followed through the batches of a log, which need no index: a marker decides what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptBatchError, CorruptCheckpointError
from cleaner.format.chunks import CONTROL_FLAG, TRANSACTIONAL_FLAG, Chunk
from cleaner.format.control import ControlRecordError, ControlType, read_control_type
from cleaner.storage.files.producer_snapshot import read_snapshot
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import snapshot_file_name


class Decisions:
    """
    What became of the transactions of the batches taken in, in offset order.

    Attributes:
        open: producers whose last transaction has no marker yet, with its first offset.
        aborted: transactions with an abort marker, in the order of these.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []

    def take(self, path: Path, chunk: Chunk, first_offset: int = 0) -> None:
        """
        Take in the batches of a chunk that begin at an offset or above it.

        Raises:
            CorruptBatchError: a control record that cannot be read.
        """
        rows = chunk.batches
        concerned = (rows["magic"] == 2) & (rows["attributes"] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0)
        for row in rows[concerned & (rows["base_offset"] >= first_offset)]:
            producer, offset = int(row["producer_id"]), int(row["base_offset"])
            if not row["attributes"] & CONTROL_FLAG:
                self.open.setdefault(producer, offset)
                continue
            try:
                kind = read_control_type(chunk.data[int(row["body_start"]) : int(row["body_end"])].data)
            except ControlRecordError as error:
                raise CorruptBatchError(path, int(row["position"]), str(error)) from error
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                first = self.open.pop(producer, None)
                if kind is ControlType.ABORT and first is not None:
                    self.aborted.append(AbortedTxn(producer, first, int(row["last_offset"]), offset))


def open_at_snapshot(
    fs: FileSystem, directory: Path, snapshots: Sequence[int], first_offset: int, last_offset: int
) -> tuple[int, dict[int, int]] | None:
    """
    Return the offset of the last producer snapshot within a range that can be read (R-125), and the transactions open
    there: producers and first offsets. None where there is no such snapshot.
    """
    for offset in reversed(snapshots):
        if first_offset <= offset <= last_offset:
            try:
                rows = read_snapshot(fs, directory / snapshot_file_name(offset))
            except (FileNotFoundError, CorruptCheckpointError):
                continue
            is_open = rows["current_txn_first_offset"] >= 0
            producers, firsts = rows["producer_id"][is_open], rows["current_txn_first_offset"][is_open]
            return offset, dict(zip(producers.tolist(), firsts.tolist(), strict=True))
    return None
