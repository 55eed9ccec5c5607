"""
The changes that loading a log makes on disk, collected until the log is known to be sound.

Kafka's loader changes files as it goes. A cleaner that may still refuse the log collects the same changes here, and
`apply` makes them.

Source: rules R-126, R-330, R-331, R-635, R-640, R-641, D-07.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cleaner.base.model import EpochEntry
from cleaner.storage.files.leader_epochs import write_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.snapshots import Snapshots
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import txn_index_bytes
from cleaner.storage.segment.segment import Segment

SaveCut = Callable[[Path, int], None]
"""Keeps the bytes of a `.log` from a position on, durably, before they are cut off."""


class LoadChanges:
    """
    Pending changes in one partition directory.

    Args:
        save_cut: called before a recovery's cuts are made.

    Attributes:
        snapshots: the producer snapshots, with pending changes of their own.
        epochs: the leader epochs as they will be.
        has_epochs: `leader-epoch-checkpoint` exists.
    """

    def __init__(
        self,
        directory: Path,
        snapshots: Snapshots,
        epochs: Sequence[EpochEntry],
        *,
        has_epochs: bool,
        save_cut: SaveCut | None = None,
    ) -> None:
        self.snapshots = snapshots
        self.epochs = list(epochs)
        self._directory = directory
        self._has_epochs = has_epochs
        self._written_epochs: list[EpochEntry] | None = list(epochs) if has_epochs else None
        self._removals: list[list[Path]] = []
        self._missing: list[Path] = []
        self._segments: dict[int, Segment] = {}
        self._valid_bytes: dict[int, int] = {}
        self._save_cut = save_cut
        self._cuts: dict[Path, int] = {}

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files; they are gone durably before those of a later call."""
        group = list(paths)
        if group:
            self._removals.append(group)

    def remove_segment(self, segment: Segment) -> None:
        """Remove a segment and its snapshot."""
        self.remove(segment.path(suffix) for suffix in names.SEGMENT_SUFFIXES)
        self.snapshots.remove(segment.base_offset)
        self.forget_segment(segment)

    def forget_segment(self, segment: Segment) -> None:
        """Drop the pending writes for a segment that no longer exists."""
        paths = {segment.path(suffix) for suffix in names.SEGMENT_SUFFIXES}
        self._missing = [path for path in self._missing if path not in paths]
        self._segments.pop(segment.base_offset, None)
        self._valid_bytes.pop(segment.base_offset, None)

    def clear_epochs(self) -> None:
        """Forget all leader epochs; the file is written even if there were none."""
        self.epochs = []
        self._written_epochs = None
        self._has_epochs = True

    def create_empty(self, path: Path) -> None:
        """Create an empty file if it does not exist: a missing time index, the files of a new segment."""
        self._missing.append(path)

    def write_indexes(self, segment: Segment) -> None:
        """Write the `rebuilt` indexes of a segment."""
        self._segments[segment.base_offset] = segment

    def truncate(self, segment: Segment, valid_bytes: int) -> None:
        """Cut a segment's `.log`."""
        self._valid_bytes[segment.base_offset] = valid_bytes
        self.write_indexes(segment)

    def note_cut(self, segment: Segment, position: int) -> None:
        """Note that recovery cuts a segment's `.log` from a position on, so that the bytes can be saved elsewhere."""
        self._cuts[segment.log_path] = position

    def rebuilt_bytes(self) -> int:
        """Return how many bytes of memory the pending indexes take."""
        return sum(segment.index_bytes + segment.time_index_bytes for segment in self._segments.values())

    @property
    def are_pending(self) -> bool:
        """Whether `apply` would change anything."""
        files = self._cuts or self._removals or self._segments or self._missing
        return bool(files) or self.epochs != self._written_epochs or self.snapshots.has_changes()

    def apply(self, fs: FileSystem) -> None:
        """
        Make the changes durably; afterwards none are pending.

        Invariant: later segments are gone durably before an earlier one is cut. A crash in between leaves the damage
        that caused the cut, so the next recovery finds it again and finishes. In the other order, the later segments
        would stay and the log would have a hole.
        """
        if self._save_cut is not None:
            for path, position in self._cuts.items():
                self._save_cut(path, position)
        self._cuts.clear()
        names_changed = bool(self._missing or self._segments or self.snapshots.has_changes())
        for group in self._removals:
            for path in group:
                fs.remove(path)
            fs.fsync_dir(self._directory)
        self._removals.clear()
        for segment in self._segments.values():
            _write_segment(fs, segment, self._valid_bytes.get(segment.base_offset))
        self._segments.clear()
        self._valid_bytes.clear()
        for path in self._missing:
            if not fs.exists(path):
                with fs.create(path, like=self._directory) as file:
                    file.fsync()
        self._missing.clear()
        if self.epochs != self._written_epochs:
            self._write_epochs(fs)
        self.snapshots.apply(fs)
        if names_changed:
            fs.fsync_dir(self._directory)

    def _write_epochs(self, fs: FileSystem) -> None:
        path = self._directory / names.LEADER_EPOCHS
        if self.epochs or self._has_epochs:
            write_leader_epochs(fs, path, self.epochs)
        else:
            # Kafka creates the file empty when it first opens it.
            fs.create(path, like=self._directory).close()
        self._written_epochs = list(self.epochs)
        self._has_epochs = True


def _write_segment(fs: FileSystem, segment: Segment, valid_bytes: int | None) -> None:
    with fs.open(segment.log_path, write=True) as file:
        if valid_bytes is not None and valid_bytes < file.size():
            file.truncate(valid_bytes)
        file.fsync()
    rebuilt = segment.rebuilt
    if rebuilt is None:
        return
    _write(fs, segment.index_path, rebuilt.offsets.tobytes(), like=segment.log_path)
    _write(fs, segment.time_index_path, rebuilt.times.tobytes(), like=segment.log_path)
    if rebuilt.txns is not None and (rebuilt.txns or fs.exists(segment.txn_index_path)):
        _write(fs, segment.txn_index_path, txn_index_bytes(rebuilt.txns), like=segment.log_path)
    segment.rebuilt = None


def _write(fs: FileSystem, path: Path, data: bytes, *, like: Path) -> None:
    """
    Write a file's content in place: the clean-shutdown marker is written last, and without it the next load rebuilds
    every index that this one was about to write.
    """
    with fs.open(path, write=True) if fs.exists(path) else fs.create(path, like=like) as file:
        file.write(data, 0)
        if file.size() > len(data):
            file.truncate(len(data))
        file.fsync()
