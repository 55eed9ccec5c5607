"""
Renames the oldest segments of a log, and removes them later, so that their current readers can finish.

    step                                        what a crash after it leaves
    1  log start offset into its checkpoint     a log with the new start; the segments below cannot be read
    2  leader epochs cut below it               the same
    3  `.log` -> `.deleted`                     some of them: a log with holes, all of them below its start
    4  indexes, snapshots -> `.deleted`         index files without a `.log`, which a load removes (R-635)
    5  the checkpoint's line is dropped         the log without its old segments, and `.deleted` files; the first
                                                segment says where it begins (R-118)
    6  `.deleted` files removed after a delay   nothing

Each step except 4 is on disk before the next one begins. After a power cut, renames may be on disk in any order.

Invariant: between 3 and 5 an old segment may exist and a younger one not. Only the checkpoint's line keeps the records
of the old one from being read again. A load in between starts at the line, and the next pass deletes older segments.

Invariant: no `.log` exists without its index. A load would rebuild the index, and thereby remove the producer snapshots
above that segment: with the clean-shutdown marker, and no snapshot left, it forgets all producers (R-127).

A caller does steps 1 and 5 for all logs of a log dir at once: the checkpoint is one file.

Source: rules R-118, R-122, R-123, R-610, R-630, R-913.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.storage.files.leader_epochs import read_leader_epochs, truncate_from_start, write_leader_epochs
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names


def cut_epochs(fs: FileSystem, directory: Path, log_start_offset: int) -> None:
    """
    Drop the leader epochs that end below the log start offset (R-123).

    Raises:
        CorruptCheckpointError: the file is damaged; it is left as it is.
    """
    path = directory / names.LEADER_EPOCHS
    epochs = read_leader_epochs(fs, path)
    left = truncate_from_start(epochs, log_start_offset)
    if left != epochs:
        write_leader_epochs(fs, path, left)


def rename_to_deleted(fs: FileSystem, directory: Path, base_offsets: Sequence[int]) -> None:
    """
    Rename the files of segments, and the snapshots at their base offsets, to `.deleted`.

    On return the segments are gone durably; an index file or snapshot that comes back belongs to no segment.

    Args:
        base_offsets: of the segments, ascending; all below the log start offset in the checkpoint.
    """
    _rename(fs, directory, base_offsets, (names.LOG,))
    fs.fsync_dir(directory)
    _rename(fs, directory, base_offsets, (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT))


def _rename(fs: FileSystem, directory: Path, base_offsets: Sequence[int], suffixes: Sequence[str]) -> None:
    found = [names.segment_file_name(base_offset, suffix) for base_offset in base_offsets for suffix in suffixes]
    fs.rename_all(directory, [(name, name + names.DELETED) for name in found])


def list_deleted(fs: FileSystem, directory: Path) -> list[str]:
    """Return the names of the `.deleted` files in a partition directory."""
    return [name for name in fs.list_files(directory) if names.is_deleted(name)]
