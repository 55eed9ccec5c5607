"""
Put a cleaned segment in the place of the segments it was made from, so that a crash leaves the old ones or the new one.

The steps are Kafka's (R-601, R-660), with a directory fsync as a fence behind each phase (D-10): no file system that
keeps to POSIX can carry a later phase to disk and forget an earlier one. Together they keep
C-1. `docs/crash-safety.md` tells the same as a story.

    step  what happens                                              a crash right after it leaves, once loaded
    S0    `.cleaned` files written, fsynced, fence                  OLD: every `.cleaned` is removed (R-630)
    S1    `.cleaned` -> `.swap`: log, index, timeindex, txnindex    OLD: one `.cleaned` left condemns the `.swap` files
    S2    fence: the swap is decided                                NEW: completed by the loader (R-632)
    S3    old `.log`s -> `.deleted`, ascending; fence;              NEW: completed by the loader
          old index files -> `.deleted`; fence
    S4    `.log.swap` -> `.log`; fence; index files likewise        NEW: only renames remain (R-634)
    S5    fence: the names are final                                NEW: nothing remains
    S6    snapshots of absorbed segments and all `.deleted` go      NEW: the loader removes them

Why S3 and S4 take the logs first, with a fence of their own: the loader judges by the `.log` files alone. An old `.log`
must not outlive its `.txnindex` (its aborted records would become readable), and the new `.index` and `.txnindex` must
not have their final names while `.log.swap` is still there (the loader would delete them as old ones).

Old segments wholly superseded (R-633). The loader removes old segments between the new segment's base and the end of
its *last surviving batch*. Where the last old segments of a group kept nothing at all they lie behind that end, so a
crash between S2 and the first fence of S3 brings them back, each whole or not at all. It is superseded data, never less
than NEW: what deletes it stands in these segments themselves or in later ones, which are still OLD, and as the cleaner
checkpoint has not moved yet the next round deletes it again. Behind the first fence of S3 they are gone for good.

Nothing here looks into records; the loader (`storage/load/loader.py`) relies on these orders.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from cleaner.errors import CleanerError, LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, SWAP, segment_file_name

# The index files follow their log in every step, in Kafka's order.
_INDEX_SUFFIXES = tuple(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG)
_ALL_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT)


def fsync_sources(fs: FileSystem, directory: Path, bases: Sequence[int]) -> None:
    """
    Force segments that somebody else wrote to disk: log, indexes and producer snapshot of each base, then the names.

    To be called before the first swap of a round (D-10). A swap drops the older value of a key because a newer one is
    in the dirty section; were that only in the page cache (files copied by rsync, a writer that never flushed), a power
    cut would keep the swap and lose the newer value as well.

    Raises:
        LogDirOfflineError: an fsync failed; nothing may be swapped in this log dir (C-2).
    """
    fs.fsync_all(directory, [segment_file_name(base, suffix) for base in bases for suffix in _ALL_SUFFIXES])
    fs.fsync_dir(directory)


def discard_cleaned(fs: FileSystem, directory: Path, base: int) -> None:
    """
    Remove the `.cleaned` files of a base: left-overs before it is written (R-590), its own after a failure (R-595).

    Without a fence: `.cleaned` files that come back after a crash are removed by the loader.
    """
    fs.remove_all(directory, [segment_file_name(base, suffix, CLEANED) for suffix in SEGMENT_SUFFIXES])


def remove_deleted(fs: FileSystem, directory: Path, bases: Sequence[int], threads: int = 1) -> None:
    """
    Remove the `.deleted` files that `keep_deleted=True` left behind, once their last reader is gone (D-11).

    Without a fence, and in any order, on several threads: whatever comes back after a crash the loader removes.
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
    threads: int = 1,
) -> None:
    """
    Let the finished `.cleaned` segment of `new_base` take the place of the old segments (S1 to S6 above).

    The caller has written, fsynced and checked the `.cleaned` files, has set their mtimes *before* that fsync, and has
    fsynced the directory (S0). When this returns, the new names are durable and the room of the old files is free.

    Args:
        directory: the partition's directory.
        new_base: base offset of the new segment, which is that of the first old one.
        old_bases: base offsets of the segments of the group.
        still_held: called before the first rename; raises `LogDirLockedError` when the log dir is not ours any more.
        keep_deleted: leave the `.deleted` files to `remove_deleted`, for the sake of readers that have them open.
        threads: how many, the caller's among them, may remove files.
    Raises:
        LogDirLockedError: from `still_held`. Nothing was renamed; the `.cleaned` files stay, as the directory belongs
            to somebody else now, whose loader removes them.
        LogDirOfflineError: the disk failed. Up to S2 the old segments are in place and the `.cleaned` files gone (as
            far as the disk still obeys); from S3 on the next load completes the swap.
    """
    old = sorted(old_bases)
    if not old or old[0] != new_base:
        raise ValueError(f"the new segment {new_base} does not begin where the old segments {old} begin")
    _require_logs(fs, directory, new_base, old)
    still_held()
    _announce(fs, directory, new_base)
    _retire_old(fs, directory, old)
    _install(fs, directory, new_base)
    _drop_absorbed_snapshots(fs, directory, old[1:])
    if not keep_deleted:
        remove_deleted(fs, directory, old, threads)


def _require_logs(fs: FileSystem, directory: Path, new_base: int, old: Sequence[int]) -> None:
    """Refuse before the first rename what could not be finished: every `.log` concerned has to be there (R-602)."""
    wanted = [segment_file_name(new_base, LOG, CLEANED), *(segment_file_name(base, LOG) for base in old)]
    present = set(fs.find(directory, wanted))
    for name in wanted:
        if name not in present:
            raise LogDirOfflineError(directory / name, FileNotFoundError(errno.ENOENT, "vanished before its swap"))


def _rename_present(
    fs: FileSystem, directory: Path, bases: Sequence[int], suffixes: Sequence[str], old: str, new: str
) -> None:
    """Give those of the segments' files that exist another temporary suffix; index files may be missing (R-602)."""
    named = [segment_file_name(base, suffix) for base in bases for suffix in suffixes]
    fs.rename_all(directory, [(name + old, name + new) for name in named])


def _announce(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    S1 and S2: `.cleaned` becomes `.swap`.

    Invariant: any `.cleaned` left proves that the swap was not decided, and the loader drops the `.swap` files at or
    above it. So the renames may reach the disk in any order, but all of them before any old file loses its name.
    Without this fence a power cut could keep a rename of S3 and forget one of S1: the loader would delete both sides.
    """
    try:
        _rename_present(fs, directory, [new_base], SEGMENT_SUFFIXES, CLEANED, SWAP)
        fs.fsync_dir(directory)
    except BaseException as failure:
        try:
            _take_back(fs, directory, new_base)
        except CleanerError as second:
            failure.add_note(f"taking the swap back failed as well: {second}")
        raise


def _take_back(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    Undo S1, last rename first, so that the same rule holds on the way back: while any `.cleaned` is left, OLD.

    The files are removed only once a fence shows that no `.swap` can come back: a `.log.swap` returning alone would
    count as a complete swap. On a disk that refuses even that they stay, and the loader removes them.
    """
    _rename_present(fs, directory, [new_base], SEGMENT_SUFFIXES[::-1], SWAP, CLEANED)
    fs.fsync_dir(directory)
    discard_cleaned(fs, directory, new_base)


def _retire_old(fs: FileSystem, directory: Path, old: Sequence[int]) -> None:
    """
    S3: the old segments become `.deleted`, the logs before the index files.

    First fence: an old `.log` that the loader leaves in place (R-633) still has its `.txnindex`, else consumers would
    be given its aborted records. Second fence: no old `.txnindex` is left beside the new `.log`; it would name aborted
    transactions whose markers are gone, and consumers would skip committed records of the same producer.
    """
    _rename_present(fs, directory, old, (LOG,), "", DELETED)
    fs.fsync_dir(directory)
    _rename_present(fs, directory, old, _INDEX_SUFFIXES, "", DELETED)
    fs.fsync_dir(directory)


def _install(fs: FileSystem, directory: Path, new_base: int) -> None:
    """
    S4 and S5: `.swap` becomes final, the log before the index files.

    First fence: while `.log.swap` is there the loader deletes whatever else is named in its range of offsets, and that
    would be the new `.txnindex`. Second fence: only then are the old files and the checkpoint let go.
    """
    _rename_present(fs, directory, [new_base], (LOG,), SWAP, "")
    fs.fsync_dir(directory)
    _rename_present(fs, directory, [new_base], _INDEX_SUFFIXES, SWAP, "")
    fs.fsync_dir(directory)


def _drop_absorbed_snapshots(fs: FileSystem, directory: Path, absorbed: Sequence[int]) -> None:
    """S6: a producer snapshot at a base offset that no segment has any more (R-601, R-650)."""
    _rename_present(fs, directory, absorbed, (SNAPSHOT,), "", DELETED)
