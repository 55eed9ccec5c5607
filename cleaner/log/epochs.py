"""
Leader epochs of a log that this process leads: when one begins, and where an earlier one ended.

A reader that remembers "offset 120 of epoch 3" asks where epoch 3 ended: an answer below 120 means that records it
read were cut off since. So an opening after an unclean stop begins an epoch: records read before may be gone.

Not so where a cluster has the topic: there its controller gives out the epochs, one at each election. A broker that
leads in an epoch below the log's forgets the log's; and a consumer that has committed an offset with an epoch that the
cluster has not reached waits for that epoch.

Source: rules R-113, R-123; `LeaderEpochFileCache.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cleaner.base.model import EpochEntry
from cleaner.storage.files.leader_epochs import (
    UNDEFINED,
    EpochEnd,
    assign_epoch,
    end_of_epoch,
    truncate_from_start,
    write_leader_epochs,
)
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names

__all__ = ["EpochEnd", "LeaderEpochs"]


class LeaderEpochs:
    """
    The epochs of one log, kept in its `leader-epoch-checkpoint`; the caller has the log's lock.

    Args:
        entries: ascending, as in the file.
    """

    def __init__(self, fs: FileSystem, directory: Path, entries: Iterable[EpochEntry]) -> None:
        self._fs = fs
        self._path = directory / names.LEADER_EPOCHS
        self._entries = list(entries)

    @property
    def latest(self) -> int:
        """The epoch that batches get; -1 before the first one."""
        return self._entries[-1].epoch if self._entries else UNDEFINED

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at the log end, durably."""
        self._put(assign_epoch(self._entries, epoch, start_offset))

    def cut_start(self, start_offset: int) -> None:
        """Drop the epochs that ended below a new log start, durably."""
        self._put(truncate_from_start(self._entries, start_offset))

    def _put(self, entries: list[EpochEntry]) -> None:
        if entries != self._entries:
            write_leader_epochs(self._fs, self._path, entries)
            self._entries = entries

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where an epoch ended, see `end_of_epoch`."""
        return end_of_epoch(self._entries, epoch, log_end_offset)
