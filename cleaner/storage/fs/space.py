"""
Checks the disk's free space before a group is written, so that it does not run out half-way.

While a group is cleaned, its output exists next to its sources; the sources are removed once the swap is durable. So a
whole round needs extra room for the largest output of one group, which is checked here (C-3). Another process may still
fill the disk during the round: then the write fails with `NoSpaceError` and the `.cleaned` files are removed.
"""

from __future__ import annotations

from pathlib import Path

from cleaner.errors import NoSpaceError
from cleaner.storage.fs.file_system import FileSystem

# A segment is four files, each rounded up to a block: 64 KiB is the largest block size ext4 and XFS know. Twice that,
# since directory entries, extents and the checkpoint's temporary file need a block now and then too.
_OVERHEAD_BYTES = 2 * 4 * 65536


def require_room(fs: FileSystem, directory: Path, wanted_bytes: int, overhead_bytes: int = _OVERHEAD_BYTES) -> None:
    """
    Make sure that a group's output fits next to its sources, or a copy into a directory.

    Args:
        directory: the partition's directory.
        wanted_bytes: the most bytes that are written; of a new segment its index files included.
        overhead_bytes: what blocks and directory entries may take in addition.
    Raises:
        NoSpaceError: it does not fit; carries how many bytes are missing. Nothing was changed.
    """
    missing_bytes = wanted_bytes + overhead_bytes - fs.free_bytes(directory)
    if missing_bytes > 0:
        fs.wait_until_freed()  # of the group before
        missing_bytes = wanted_bytes + overhead_bytes - fs.free_bytes(directory)
    if missing_bytes > 0:
        raise NoSpaceError(directory, missing_bytes)
