"""
The producer snapshots of one partition: which exist, and which will be written or removed.

While Kafka loads a log, it removes and writes snapshots, and its next steps depend on which are left. Here these
changes are kept in memory until `apply`, so that a log that turns out to be damaged is refused untouched.

Source: rules R-125, R-126; `ProducerStateManager.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.producer_snapshot import (
    SNAPSHOT_ENTRY,
    ProducerEntry,
    SnapshotRows,
    read_snapshot,
    write_snapshot,
)
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names


class Snapshots:
    """
    The snapshots of a partition as they will be once the pending changes are applied.

    Args:
        offsets: of the snapshots on disk.
    """

    def __init__(self, fs: FileSystem, directory: Path, offsets: Iterable[int]) -> None:
        self._fs = fs
        self._directory = directory
        self._on_disk = set(offsets)
        self._written: dict[int, list[ProducerEntry]] = {}
        self._removed: set[int] = set()

    def offsets(self) -> list[int]:
        """Return the offsets that have a snapshot, ascending."""
        return sorted((self._on_disk - self._removed) | self._written.keys())

    def latest(self) -> int | None:
        """Return the highest offset, None without a snapshot."""
        offsets = self.offsets()
        return offsets[-1] if offsets else None

    def read(self, offset: int) -> SnapshotRows:
        """
        Return a snapshot's entries, SNAPSHOT_ENTRY rows in file order.

        Raises:
            CorruptCheckpointError: the file is damaged (R-125).
        """
        if offset in self._written:
            return np.array(self._written[offset], SNAPSHOT_ENTRY)
        try:
            return read_snapshot(self._fs, self._path(offset))
        except FileNotFoundError as error:
            raise CorruptCheckpointError(self._path(offset), 0, "the snapshot was removed") from error

    def write(self, offset: int, entries: Sequence[ProducerEntry]) -> None:
        """Add a snapshot at `offset`; entries in the order in which the producers became known."""
        self._written[offset] = list(entries)
        # A snapshot removed and written again is replaced, not removed.
        self._removed.discard(offset)

    def remove(self, offset: int) -> None:
        """Remove a snapshot; one that does not exist is fine."""
        self._written.pop(offset, None)
        if offset in self._on_disk:
            self._removed.add(offset)

    def forget(self, offset: int) -> None:
        """Note that the swap of a segment removed a snapshot."""
        self._written.pop(offset, None)
        self._removed.discard(offset)
        self._on_disk.discard(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """
        Remove the snapshots that belong to no segment, except the highest if it lies above all segments (R-126).

        A clean stop writes that one, at the log end.
        """
        bases = set(base_offsets)
        strays = [offset for offset in self.offsets() if offset not in bases]
        if strays and (not bases or strays[-1] >= max(bases)):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def remove_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove the snapshots at or below the log start offset, and those above the log end offset (R-126)."""
        for offset in self.offsets():
            if offset > log_end_offset or offset <= log_start_offset:
                self.remove(offset)

    def has_changes(self) -> bool:
        """Tell whether `apply` has anything to do."""
        return bool(self._written or self._removed)

    def apply(self, fs: FileSystem) -> None:
        """
        Make the pending changes: first the writes (durably), then the removals.

        In this order a crash leaves too many snapshots, never too few: the next load removes strays, while a log
        without any snapshot would make Kafka forget all producers (R-127).
        """
        for offset, entries in sorted(self._written.items()):
            write_snapshot(fs, self._path(offset), entries)
        self._on_disk |= self._written.keys()
        self._written.clear()
        for offset in sorted(self._removed):
            fs.remove(self._path(offset))
        self._on_disk -= self._removed
        self._removed.clear()

    def _path(self, offset: int) -> Path:
        return self._directory / names.snapshot_file_name(offset)
