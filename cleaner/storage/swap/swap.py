"""
Replaces segments by the cleaned segment made from them, so that a crash leaves either the old ones or the new one.

The steps are Kafka's (R-601, R-660), with a directory fsync as a fence after each phase (D-10): no POSIX file system
can then have a later phase on disk without an earlier one. Together they keep C-1. `docs/crash-safety.md` has the steps
in detail, and why each fence is there.

    step  what happens                                              a crash right after it leaves, once loaded
    S0    `.cleaned` files written, fsynced, fence                  OLD: every `.cleaned` is removed (R-630)
    S1    `.cleaned` -> `.swap`: log, index, timeindex, txnindex    OLD: one `.cleaned` left condemns the `.swap` files
    S2    fence: the swap is decided                                NEW: completed by the loader (R-632)
    S3    old `.log`s -> `.deleted`, ascending; fence;              NEW: completed by the loader
          old index files -> `.deleted`; fence
    S4    `.log.swap` -> `.log`; fence                              NEW: only renames remain (R-634)
    S5    index files' `.swap` -> final names; fence                NEW: nothing remains
    S6    snapshots of absorbed segments and `.deleted` removed     NEW: the loader removes them

Logs are renamed before index files (within S3, and S4 before S5), with a separate fence, because the loader decides by
the `.log` files only. An old `.log` must not outlive its `.txnindex` (its aborted records would become readable), and
the new `.index` and `.txnindex` must not have their final names while `.log.swap` still exists (the loader would delete
them as old ones).

Fully superseded old segments (R-633): the loader removes old segments between the new segment's base and the end of its
*last surviving batch*. If the last old segments of a group kept no record, they lie after that end, so a crash between
S2 and the first fence of S3 brings them back, each complete or not at all. This adds only superseded data to NEW: the
records that supersede it are in these segments or in later ones, which are still OLD, and as the cleaner checkpoint has
not moved yet, the next round deletes it again. After the first fence of S3 they are gone durably.

A split, or an undone cleaning, replaces one segment by several (`replace_by_several`), one of which may have its name:
S1 from the highest base offset down, each log durably before its indexes, so that the lowest `.cleaned` condemns every
`.swap`; S2 when that one is durable; S3 for the old segment; S4 and S5 from the lowest base offset up; S6.

Nothing here reads records; the loader (`storage/load/loader.py`) relies on these orders.

Source: rules R-601, R-602, R-612 to R-614, R-630 to R-634, R-650, R-660; `LocalLog.java` (replaceSegments,
splitOverflowedSegment).
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from cleaner.errors import CleanerError, LogDirOfflineError, UncleanableError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    cleaned_file_name,
    segment_file_name,
)

# The index files follow their log in every step, in Kafka's order.
_INDEX_SUFFIXES = tuple(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG)
_ALL_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT)
_MANY_NAMES = 1000


def fsync_sources(fs: FileSystem, directory: Path, bases: Sequence[int]) -> None:
    """
    Force segments written by other processes to disk: log, indexes and producer snapshot of each base, then the names.

    Call it before the first swap of a round (D-10). A swap drops the older value of a key because the dirty section
    has a newer one. If that were only in the page cache (files copied by rsync, a writer that never flushed), a power
    cut would keep the swap and lose the newer value as well.

    Raises:
        LogDirOfflineError: an fsync failed; nothing may be swapped in this log dir (C-2).
    """
    fs.fsync_all(directory, [segment_file_name(base, suffix) for base in bases for suffix in _ALL_SUFFIXES])
    fs.fsync_dir(directory)


def discard_cleaned(fs: FileSystem, directory: Path, base: int, attempt: str = "") -> None:
    """
    Remove a base's `.cleaned` files: leftovers before it is written (R-590), its own after a failure (R-595).

    With `attempt`, those that this attempt writes (`cleaned_file_name`).

    Without a fence: the loader removes `.cleaned` files that come back after a crash.
    """
    fs.remove_all(directory, [cleaned_file_name(base, suffix, attempt) for suffix in SEGMENT_SUFFIXES])


def remove_deleted(fs: FileSystem, directory: Path, bases: Sequence[int], threads: int = 1) -> None:
    """
    Remove the `.deleted` files that `keep_deleted=True` left, once their last reader is gone (D-11).

    Without a fence, in any order, on several threads: the loader removes files that come back after a crash.
    """
    names = [segment_file_name(base, suffix, DELETED) for base in bases for suffix in _ALL_SUFFIXES]
    fs.remove_all(directory, names, threads)


def replace_segments(
    fs: FileSystem,
    directory: Path,
    *,
    new_base: int,
    old_bases: Sequence[int],
    still_held: Callable[[], None],
    keep_deleted: bool = False,
) -> None:
    """
    Replace the old segments by the finished `.cleaned` segment of `new_base` (S1 to S6 above).

    The caller has written, fsynced and checked the `.cleaned` files, has set their mtimes *before* that fsync, and has
    fsynced the directory (S0). On return, the new names are durable and those of the old files gone; the room of large
    ones is free soon after (`FileSystem.wait_until_freed`).

    Args:
        directory: the partition's directory.
        new_base: base offset of the new segment; equals that of the first old one.
        old_bases: base offsets of the segments of the group.
        still_held: called before the first rename; raises `LogDirLockedError` if the log dir is no longer ours.
        keep_deleted: leave the `.deleted` files to `remove_deleted`, because readers have them open.
    Raises:
        LogDirLockedError: from `still_held`. Nothing was renamed; the `.cleaned` files stay, as another process may
            use the directory now, whose loader removes them.
        UncleanableError: a directory is in the way. Nothing was renamed.
        LogDirOfflineError: the disk failed. Up to S2 the old segments are in place and the `.cleaned` files removed
            (as far as the disk allows); from S3 on the next load completes the swap.
    """
    old = sorted(old_bases)
    if not old or old[0] != new_base:
        raise ValueError(f"the new segment {new_base} does not begin where the old segments {old} begin")
    _require_logs(fs, directory, new_base, old)
    _require_free_names(fs, directory, old)
    still_held()
    _announce(fs, directory, new_base)
    _retire_old(fs, directory, old)
    _install(fs, directory, new_base)
    _retire_absorbed_snapshots(fs, directory, old[1:])
    if not keep_deleted:
        remove_deleted(fs, directory, old)


def _require_logs(fs: FileSystem, directory: Path, new_base: int, old: Sequence[int]) -> None:
    """Refuse a swap that could not be finished, before the first rename: every `.log` must exist (R-602)."""
    wanted = [cleaned_file_name(new_base, LOG), *(segment_file_name(base, LOG) for base in old)]
    present = set(fs.find(directory, wanted))
    for name in wanted:
        if name not in present:
            raise LogDirOfflineError(directory / name, FileNotFoundError(errno.ENOENT, "vanished before its swap"))


def _require_free_names(fs: FileSystem, directory: Path, old: Sequence[int]) -> None:
    """Refuse a swap that could not be finished, because a directory has a name that an old file is to get."""
    names = {segment_file_name(base, suffix, DELETED) for base in old for suffix in _ALL_SUFFIXES}
    # A look at each name costs less than a list of a large directory, unless they are many.
    for name in fs.list_dirs(directory) if len(names) > _MANY_NAMES else fs.find(directory, sorted(names)):
        if name in names and stat.S_ISDIR(fs.stat(directory / name).st_mode):
            raise UncleanableError(directory / name, "a directory with the name of a file to be deleted; remove it")


def _rename_present(
    fs: FileSystem, directory: Path, bases: Sequence[int], suffixes: Sequence[str], old: str, new: str
) -> None:
    """Change the temporary suffix of the segments' existing files; index files may be missing (R-602)."""
    named = [segment_file_name(base, suffix) for base in bases for suffix in suffixes]
    fs.rename_all(directory, [(name + old, name + new) for name in named])


def _announce(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    S1 and S2: `.cleaned` becomes `.swap`.

    Invariant: any `.cleaned` left proves that the swap was not decided, and the loader drops the `.swap` files at or
    above it. So the renames may reach the disk in any order, but all of them before any old file loses its name.
    Without this fence, a power cut could keep a rename of S3 and lose one of S1: the loader would delete both sides.
    """
    try:
        _rename_present(fs, directory, [new_base], SEGMENT_SUFFIXES, CLEANED, SWAP)
        fs.fsync_dir(directory)
    except BaseException as failure:
        try:
            _take_back(fs, directory, new_base)
        except CleanerError as second:
            failure.add_note(f"undoing the swap failed, too: {second}")
        raise


def _take_back(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    Undo S1, last rename first, so that the same rule holds on the way back: while any `.cleaned` is left, OLD.

    The files are removed only after a fence has made sure that no `.swap` can come back: a `.log.swap` alone would
    count as a complete swap. If the disk refuses even this fence, they stay, and the loader removes them.
    """
    _rename_present(fs, directory, [new_base], SEGMENT_SUFFIXES[::-1], SWAP, CLEANED)
    fs.fsync_dir(directory)
    discard_cleaned(fs, directory, new_base)


def _retire_old(fs: FileSystem, directory: Path, old: Sequence[int]) -> None:
    """
    S3: the old segments become `.deleted`, the logs before the index files.

    First fence: an old `.log` that the loader leaves in place (R-633) still has its `.txnindex`; otherwise consumers
    would get its aborted records. Second fence: no old `.txnindex` remains next to the new `.log`; it would name
    aborted transactions whose markers are gone, and consumers would skip committed records of the same producer.
    """
    _rename_present(fs, directory, old, (LOG,), "", DELETED)
    fs.fsync_dir(directory)
    _rename_present(fs, directory, old, _INDEX_SUFFIXES, "", DELETED)
    fs.fsync_dir(directory)


def _install(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    S4, `.log.swap` becomes `.log`, and S5, the index files likewise.

    Fence of S4: while `.log.swap` exists, the loader deletes every other file in its range of offsets, and that would
    include the new `.txnindex`. Fence of S5: only after it may the old files be removed and the checkpoint move.
    """
    _rename_present(fs, directory, [new_base], (LOG,), SWAP, "")
    fs.fsync_dir(directory)
    _rename_present(fs, directory, [new_base], _INDEX_SUFFIXES, SWAP, "")
    fs.fsync_dir(directory)


def _retire_absorbed_snapshots(fs: FileSystem, directory: Path, absorbed: Sequence[int]) -> None:
    """S6: rename to `.deleted` producer snapshots at base offsets that no segment has any more (R-601, R-650)."""
    _rename_present(fs, directory, absorbed, (SNAPSHOT,), "", DELETED)


def replace_by_several(fs: FileSystem, directory: Path, old_base: int, bases: Sequence[int]) -> None:
    """
    Replace one segment by finished `.cleaned` segments, whose files are already durable.

    Invariant: segments get their final names in ascending order, one after the other, each durably. Recovery removes
    everything between the lowest and the highest `.log.swap`, so a new segment that already has its final name must lie
    below all others.

    Args:
        bases: of the new segments, ascending; within the old one's offsets.
    Raises:
        UncleanableError: a directory is in the way. Nothing was renamed.
    """
    _require_free_names(fs, directory, [old_base])
    for base in reversed(bases):
        for suffixes in ((LOG,), _INDEX_SUFFIXES):
            _rename_present(fs, directory, [base], suffixes, CLEANED, SWAP)
            fs.fsync_dir(directory)
    _retire_old(fs, directory, [old_base])
    for base in bases:
        _install(fs, directory, base)
    fs.remove_all(directory, [segment_file_name(old_base, suffix, DELETED) for suffix in SEGMENT_SUFFIXES])
