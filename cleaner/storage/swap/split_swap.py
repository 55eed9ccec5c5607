"""
Replaces one segment by several, for a split or an undone cleaning; a crash leaves the old one or all new ones.

The steps are those of `swap.py` in a different order. The new segments' `.cleaned` files are already durable. One of
them may have the name of the old segment.

    step  what happens                                              a crash right after it leaves, once loaded
    S1    `.cleaned` -> `.swap`, from the highest base offset       OLD: the lowest `.cleaned` condemns every `.swap`
          down, each log durably before its indexes
    S2    the last, lowest, is durable: the swap is decided         NEW: completed by the loader
    S3    the old files -> `.deleted`, the log durably first        NEW: completed by the loader
    S4    `.swap` -> final names, from the lowest base offset up    NEW: only renames remain
    S6    the `.deleted` files are removed                          NEW: the loader removes them

Source: rules R-612 to R-614, R-630; `LocalLog.java` (splitOverflowedSegment, replaceSegments).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names


def replace_by_several(fs: FileSystem, directory: Path, old_base: int, bases: Sequence[int]) -> None:
    """
    Replace one segment by finished `.cleaned` segments.

    Invariant: segments get their final names in ascending order, one after the other, each durably. Recovery removes
    everything between the lowest and the highest `.log.swap`, so a new segment that already has its final name must lie
    below all others.

    Args:
        bases: of the new segments, ascending; within the old one's offsets.
    """
    for base in reversed(bases):
        _rename(fs, directory, base, names.CLEANED, names.SWAP)
    _rename(fs, directory, old_base, "", names.DELETED)
    for base in bases:
        _rename(fs, directory, base, names.SWAP, "")
    for path in segment_paths(directory, old_base, names.DELETED):
        fs.remove(path)


def _rename(fs: FileSystem, directory: Path, base: int, old: str, new: str) -> None:
    """Change the suffix of a segment's files, the log first and durably: recovery judges by the logs."""
    pairs = zip(segment_paths(directory, base, old), segment_paths(directory, base, new), strict=True)
    for number, (source, target) in enumerate(pairs):
        if fs.exists(source):
            fs.rename(source, target)
        if number == 0:
            fs.fsync_dir(directory)
    fs.fsync_dir(directory)


def segment_paths(directory: Path, base: int, temporary: str) -> list[Path]:
    """Return the paths of a segment's files with a temporary suffix, the log first, whether they exist or not."""
    return [directory / names.segment_file_name(base, suffix, temporary) for suffix in names.SEGMENT_SUFFIXES]
