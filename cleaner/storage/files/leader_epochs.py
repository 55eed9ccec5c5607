"""
Leader epochs: the offset at which each leader of a partition began.

Followers and consumers compare these epochs to find where their copy and the leader's diverge, so an epoch must never
name an offset beyond the log. Kafka cuts them to the log whenever it loads one; the functions here make those cuts, on
plain lists in ascending order, and read and write the file.

Source: rules R-113, R-123; `LeaderEpochFileCache.java`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cleaner.base.model import EpochEntry
from cleaner.errors import CorruptCheckpointError
from cleaner.storage.files.checkpoint import (
    CHECKPOINT_LIMIT_BYTES,
    parse_checkpoint,
    read_bounded,
    read_number,
    write_checkpoint,
)
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import ReadableFiles

UNDEFINED = -1


class EpochEnd(NamedTuple):
    """An epoch and the offset at which it ended, exclusive; both -1 where nothing is known."""

    epoch: int
    end_offset: int


def end_of_epoch(entries: Sequence[EpochEntry], epoch: int, log_end_offset: int) -> EpochEnd:
    """
    Return where an epoch ended, as Kafka answers OffsetsForLeaderEpoch.

    For an epoch between two known ones: the lower one and its end. Below all: where the first begins. Above all:
    unknown.
    """
    if epoch == UNDEFINED:
        return EpochEnd(UNDEFINED, UNDEFINED)
    if entries and epoch == entries[-1].epoch:
        return EpochEnd(epoch, log_end_offset)
    above = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
    if above == len(entries):
        return EpochEnd(UNDEFINED, UNDEFINED)
    known = entries[above - 1].epoch if above else epoch
    return EpochEnd(known, entries[above].start_offset)


def read_leader_epochs(fs: ReadableFiles, path: Path) -> list[EpochEntry]:
    """
    Read `leader-epoch-checkpoint`; a missing or empty file is an empty list.

    Entries are added one by one as in `assign_epoch`, so the result ascends in epoch and in offset even if the lines
    do not.

    Raises:
        CorruptCheckpointError: malformed, or a negative epoch or offset, with which Kafka could not load the log.
    """
    return parse_leader_epochs(read_bounded(fs, path, CHECKPOINT_LIMIT_BYTES) or b"", path)


def parse_leader_epochs(data: bytes, path: Path) -> list[EpochEntry]:
    """Parse the content of `leader-epoch-checkpoint`; the path is for errors. Raises as `read_leader_epochs`."""
    entries: list[EpochEntry] = []
    for position, (epoch_word, offset_word) in parse_checkpoint(data, path, 2):
        epoch = read_number(epoch_word, 32, path, position, "the epoch")
        start_offset = read_number(offset_word, 64, path, position, "the start offset")
        if epoch < 0 or start_offset < 0:
            raise CorruptCheckpointError(path, position, f"epoch {epoch} at offset {start_offset}: negative")
        _assign(entries, EpochEntry(epoch, start_offset))
    return entries


def write_leader_epochs(fs: FileSystem, path: Path, entries: Sequence[EpochEntry]) -> None:
    """Replace `leader-epoch-checkpoint` durably."""
    write_checkpoint(fs, path, [f"{epoch} {start_offset}" for epoch, start_offset in entries])


def assign_epoch(entries: Sequence[EpochEntry], epoch: int, start_offset: int) -> list[EpochEntry]:
    """
    Note that `epoch` begins at `start_offset`, as a batch of a new leader does.

    Nothing changes while the latest epoch continues. Otherwise the new entry replaces entries at the end that are not
    older in both epoch and offset.
    """
    result = list(entries)
    _assign(result, EpochEntry(epoch, start_offset))
    return result


def _assign(entries: list[EpochEntry], new: EpochEntry) -> None:
    if entries and new.epoch == entries[-1].epoch and new.start_offset >= entries[-1].start_offset:
        return
    while entries and (entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset):
        entries.pop()
    entries.append(new)


def truncate_from_end(entries: Sequence[EpochEntry], end_offset: int) -> list[EpochEntry]:
    """Drop from the end the epochs that begin at or above `end_offset`, the log end; nothing if that is negative."""
    result = list(entries)
    while end_offset >= 0 and result and result[-1].start_offset >= end_offset:
        result.pop()
    return result


def truncate_from_start(entries: Sequence[EpochEntry], start_offset: int) -> list[EpochEntry]:
    """
    Drop the epochs that begin at or below `start_offset`, except the last of them, which then begins there.

    On loading, `start_offset` is the *checkpointed* log start offset, 0 without one (R-123).
    """
    gone = 0
    while gone < len(entries) and entries[gone].start_offset <= start_offset:
        gone += 1
    if gone == 0:
        return list(entries)
    return [EpochEntry(entries[gone - 1].epoch, start_offset), *entries[gone:]]
