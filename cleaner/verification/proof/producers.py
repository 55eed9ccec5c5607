"""Finds the batches that active producers need, by the log's newest producer snapshot (R-125, R-545)."""

from __future__ import annotations

import numpy as np

from cleaner.errors import CorruptCheckpointError
from cleaner.format.chunks import CONTROL_FLAG, Batches, Mask
from cleaner.storage.files.producer_snapshot import SNAPSHOT_ENTRY, SnapshotRows, read_snapshot
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from cleaner.verification.proof.side import LogSide


class ProtectedBatches:
    """
    The last batch of every active producer, needed for its sequence number; its markers, if its epoch was raised since.

    Args:
        fs: access to the file system.
        side: the log before.
        now_ms, expiration_ms: a producer that has been idle for `expiration_ms` at `now_ms` is no longer active.
        is_now_exact: the last round was at `now_ms`; otherwise any producer may have been active.

    Attributes:
        snapshot_offset: the snapshot covers the offsets below it; 0 without a snapshot, and then no producers.
        first_open_offset: start of the first transaction that was open there; None without one.
    """

    def __init__(self, fs: FileSystem, side: LogSide, now_ms: int, expiration_ms: int, *, is_now_exact: bool) -> None:
        self.snapshot_offset, rows = _newest(fs, side)
        is_active = (now_ms - rows["timestamp_ms"] < expiration_ms) | (rows["current_txn_first_offset"] >= 0)
        has_data = rows["last_offset"] >= 0
        data, markers = rows[is_active & has_data], rows[is_active & ~has_data]
        self._data = {int(row["last_offset"]): int(row["producer_id"]) for row in data}
        self._offsets = np.array(sorted(self._data), np.int64)
        self._epochs = {int(row["producer_id"]): int(row["producer_epoch"]) for row in markers}
        self._superseded: set[int] = set()
        began = rows["current_txn_first_offset"][rows["current_txn_first_offset"] >= 0]
        self.first_open_offset = int(began.min()) if len(began) else None
        known = rows if not is_now_exact else rows[is_active]
        self._epochs_known = {int(row["producer_id"]): int(row["producer_epoch"]) for row in known}
        self._last_known = {int(row["producer_id"]): int(row["last_offset"]) for row in known}

    def see(self, rows: Batches) -> None:
        """Add batches after the snapshot: its state of their producers is no longer valid."""
        later = (rows["base_offset"] >= self.snapshot_offset) & (rows["producer_id"] >= 0)
        if later.any():
            self._superseded.update(np.unique(rows["producer_id"][later]).tolist())
            self._epochs_known.update(_last_of_each(rows[later], "producer_epoch"))
            data = later & (rows["attributes"] & CONTROL_FLAG == 0)
            self._last_known.update(_last_of_each(rows[data], "last_offset"))

    def protects(self, rows: Batches) -> Mask:
        """Tell which batches must stay."""
        protected: Mask = np.isin(rows["last_offset"], self._offsets) & (rows["magic"] == 2)
        is_control = rows["attributes"] & CONTROL_FLAG != 0
        for at in np.flatnonzero(protected).tolist():
            protected[at] = self._data[int(rows["last_offset"][at])] == rows["producer_id"][at]
        if self._epochs:
            for at in np.flatnonzero(is_control & (rows["producer_id"] >= 0)).tolist():
                protected[at] |= self._epochs.get(int(rows["producer_id"][at])) == rows["producer_epoch"][at]
        return protected

    def may_need(self, row: np.void) -> bool:
        """Tell, after the whole log was read, whether a producer may need a batch."""
        producer_id = int(row["producer_id"])
        if self._last_known.get(producer_id) == row["last_offset"]:
            return True
        is_control = bool(row["attributes"] & CONTROL_FLAG)
        return is_control and self._epochs_known.get(producer_id) == row["producer_epoch"]

    def has_latest_state_of(self, producer_id: int) -> bool:
        """Tell, after the whole log was read, whether the snapshot has the latest state of a producer."""
        return producer_id not in self._superseded


def _last_of_each(rows: Batches, column: str) -> dict[int, int]:
    """Return a column's value in the last row of each producer."""
    producers, at = np.unique(rows["producer_id"][::-1], return_index=True)
    return dict(zip(producers.tolist(), rows[column][::-1][at].tolist(), strict=True))


def _newest(fs: FileSystem, side: LogSide) -> tuple[int, SnapshotRows]:
    for offset in reversed(names.offsets_of(fs.list_files(side.directory), names.SNAPSHOT)):
        if offset <= side.log_start_offset:
            break
        try:
            return offset, read_snapshot(fs, side.directory / names.snapshot_file_name(offset))
        except (CorruptCheckpointError, FileNotFoundError):
            continue  # a loader skips it, too
    return 0, np.empty(0, SNAPSHOT_ENTRY)
