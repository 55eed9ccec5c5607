"""
Files that a crash during a swap, a deletion or a copy leaves in a partition directory, and how they are settled.

    .deleted   replaced or expired: is removed
    .cleaned   not finished: is removed, and with it every `.swap` at or above the lowest one (the swap had not begun;
               the old segments are in place)
    .swap      otherwise: the swap is completed. Old files between the new segments' first and next offset are removed,
               then the `.swap` files get their final names. A new segment without an offset index gets one of zeros
    .tmp       an unfinished snapshot: is removed

Source: rules R-630 to R-634; `LogLoader.java`. How a swap leads here: `swap.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import CorruptLogError
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem
from cleaner.storage.segment import names
from cleaner.storage.segment.batch_source import checked_batches
from cleaner.storage.segment.indexes import OFFSET_ENTRY

_INDEX_SUFFIXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)


class SwapState(enum.Enum):
    """What the next load makes of the files of an interrupted swap, in words for all that tell of it."""

    COMPLETED = "a swap was interrupted; the next load completes it"
    TAKEN_BACK = "a swap was interrupted; the next load takes it back"
    REMOVED = "work was interrupted before a swap; the next load removes what it has written"


@dataclass(frozen=True)
class Leftovers:
    """
    Temporary files, by what happens to them.

    Attributes:
        condemned_swaps: `.swap` files of an unfinished swap; removed before `unfinished`.
        unfinished: `.cleaned` files.
        deleted: `.deleted` files.
        swaps: `.swap` files of a swap that is to be completed.
    """

    condemned_swaps: list[str]
    unfinished: list[str]
    deleted: list[str]
    swaps: list[str]

    def removals(self) -> list[list[str]]:
        """
        Return the files to remove, in groups: each must be gone durably before the next.

        Invariant: `.cleaned` files outlive the `.swap` files they condemn. The other way round a crash could leave a
        part of a swap that looks complete, and recovery would install it.
        """
        return [group for group in (self.condemned_swaps, self.unfinished + self.deleted) if group]


def find_leftovers(directory: Path, files: Sequence[str]) -> Leftovers:
    """
    Sort the temporary files of a partition directory.

    Raises:
        CorruptLogError: a `.cleaned` or `.swap` file, a segment or a snapshot without an offset in its name: Kafka
            cannot load such a directory either (R-630).
    """
    _check_names(directory, files)
    cleaned = [name for name in files if name.endswith(names.CLEANED)]
    decided, condemned = split_swaps(files)
    return Leftovers(
        condemned_swaps=condemned,
        unfinished=cleaned,
        deleted=[name for name in files if names.is_deleted(name)],
        swaps=decided,
    )


def split_swaps(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the `.swap` files of a decided swap, and those of an undecided one (R-631)."""
    swaps = [name for name in files if name.endswith(names.SWAP)]
    lowest_cleaned = min((names.offset_of(name) for name in files if name.endswith(names.CLEANED)), default=2**63)
    decided = [name for name in swaps if names.offset_of(name) < lowest_cleaned]
    return decided, [name for name in swaps if names.offset_of(name) >= lowest_cleaned]


def swap_states(files: Sequence[str]) -> dict[str, SwapState]:
    """Return what the next load makes of each `.swap` and `.cleaned` file. ValueError: a name has no offset."""
    decided, condemned = split_swaps(files)
    states = {name: SwapState.REMOVED for name in files if name.endswith(names.CLEANED)}
    return states | dict.fromkeys(decided, SwapState.COMPLETED) | dict.fromkeys(condemned, SwapState.TAKEN_BACK)


def swap_state(files: Sequence[str]) -> SwapState | None:
    """
    Return the state of a partition directory; None: no swap or round was interrupted.

    Until a swap is completed it is unknown what the log holds; otherwise the old segments are in place.
    """
    try:
        found = set(swap_states(files).values())
    except ValueError:
        return SwapState.REMOVED  # a load refuses the directory, and names the file
    return next((state for state in SwapState if state in found), None)


def unfinished_snapshots(files: Sequence[str]) -> list[str]:
    """Return snapshots that a crash left unfinished. Kafka writes no such files, and does not remove them."""
    stems = [name.removesuffix(UNFINISHED) for name in files if name.endswith(UNFINISHED)]
    parsed = [names.parse_file_name(stem) for stem in stems]
    return [file.name + UNFINISHED for file in parsed if file and file.suffix == names.SNAPSHOT and not file.temporary]


def _check_names(directory: Path, files: Sequence[str]) -> None:
    for name in files:
        if name.endswith((names.CLEANED, names.SWAP, *_INDEX_SUFFIXES)):
            try:
                offset = names.offset_of(name)
            except ValueError as error:
                raise CorruptLogError(directory / name, 0, f"a foreign file, Kafka cannot load it: {error}") from error
            if offset < 0:
                raise CorruptLogError(directory / name, 0, f"a foreign file: {offset} is not an offset")
        elif name.endswith((names.LOG, names.SNAPSHOT)) and names.parse_file_name(name) is None:
            # Kafka would open, or create, the file of that number under its proper name instead.
            raise CorruptLogError(directory / name, 0, "a foreign file: its name is not an offset of 20 digits")


def complete_swap(
    fs: FileSystem, directory: Path, files: Sequence[str], swaps: Sequence[str], *, index_bytes: int
) -> None:
    """
    Complete an interrupted swap, as Kafka's loader would (R-631, R-632).

    Old files are removed up to the last batch that survived in the new segments. Old segments behind it, or all of them
    if nothing survived, stay: superseded records come back and will be cleaned again (R-633).

    Args:
        files: all files of the directory.
        swaps: the `.swap` files of a swap that was decided.
        index_bytes: `segment.index.bytes`.
    Raises:
        CorruptBatchError: a new segment is damaged; nothing was changed.
    """
    logs = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    # A killed process may have given these names without a fence. If a power cut took one back after what follows here,
    # a `.cleaned` file would condemn a swap whose old files are gone, or a `.log.swap` new indexes as old ones.
    fs.fsync_dir(directory)
    ranges = [_offset_range(fs, directory / name) for name in logs]
    if ranges:
        swaps = [*swaps, *_create_missing_indexes(fs, directory, logs, swaps, index_bytes)]
        first, end = min(low for low, _ in ranges), max(high for _, high in ranges)
        for name in files:
            if not name.endswith(names.SWAP) and first <= _offset_or_minus_one(name) < end:
                fs.remove(directory / name)
        # Old files must be gone durably before the new ones lose their suffix: without a `.log.swap`, the next load
        # could not know that they are superseded.
        fs.fsync_dir(directory)
    # The logs first, ascending, each durably: the next load clears everything between the lowest and the highest
    # `.log.swap`, so a new log that already has its final name must lie below all others.
    for name in sorted(swaps, key=lambda name: (not name.endswith(names.LOG + names.SWAP), name)):
        fs.rename(directory / name, directory / name.removesuffix(names.SWAP))
        if name.endswith(names.LOG + names.SWAP):
            fs.fsync_dir(directory)
    fs.fsync_dir(directory)


def _create_missing_indexes(
    fs: FileSystem, directory: Path, logs: Sequence[str], swaps: Sequence[str], index_bytes: int
) -> list[str]:
    """
    Give each new segment without an offset index one of zeros, of an index's largest size; returns their names.

    Kafka opens that index to find where the segment ends, and thereby creates it (R-310, R-631). Without it, the
    segment would look as if its index was lost, and be recovered: its producer snapshot and all later ones would be
    removed, and with them open transactions that only the snapshots still record.
    """
    wanted = [name.removesuffix(names.LOG + names.SWAP) + names.INDEX + names.SWAP for name in logs]
    missing = [name for name in wanted if name not in swaps]
    for name in missing:
        with fs.create(directory / name, like=directory) as file:
            file.truncate(index_bytes - index_bytes % OFFSET_ENTRY.itemsize)
            file.fsync()
    return missing


def settle_swap(fs: FileSystem, directory: Path, *, index_bytes: int) -> None:
    """
    Settle a swap that a dead cleaner left, if there is one: complete it, or remove it if it was not decided.

    A running writer calls this before it changes names in a partition. It has the partition's lock, so no swap runs
    and no process uses the `.swap` files. `.cleaned` files without a `.swap` belong to a live cleaner, and stay.

    Args:
        index_bytes: `segment.index.bytes`.
    Raises:
        CorruptLogError: as `find_leftovers` and `complete_swap`.
    """
    files = fs.list_files(directory)
    found = find_leftovers(directory, files)
    if found.swaps:
        complete_swap(fs, directory, files, found.swaps, index_bytes=index_bytes)
    if found.condemned_swaps:
        _remove(fs, directory, Leftovers(found.condemned_swaps, found.unfinished, [], []))


def settle_leftovers(fs: FileSystem, directory: Path, *, deleted_before_ms: int, index_bytes: int) -> None:
    """
    Settle everything that a dead cleaner left in a partition that a writer uses.

    The next cleaner calls this. It has the partition's lock, so no process uses the `.cleaned` files. `.deleted` files
    may be the writer's, waiting for `file.delete.delay.ms` to pass, so only old ones are removed.

    Args:
        deleted_before_ms: only `.deleted` files renamed before this time are removed.
        index_bytes: `segment.index.bytes`.
    Raises:
        CorruptLogError: as `settle_swap`.
    """
    settle_swap(fs, directory, index_bytes=index_bytes)
    found = find_leftovers(directory, fs.list_files(directory))
    long_deleted = [name for name in found.deleted if _renamed_ms(fs, directory / name) < deleted_before_ms]
    _remove(fs, directory, Leftovers([], found.unfinished, long_deleted, []))


def _remove(fs: FileSystem, directory: Path, leftovers: Leftovers) -> None:
    for group in leftovers.removals():
        fs.remove_all(directory, group)
        fs.fsync_dir(directory)


def _renamed_ms(fs: FileSystem, path: Path) -> int:
    """Return when a file was last renamed or otherwise changed (ms); far in the future if it is gone."""
    try:
        return fs.stat(path).st_ctime_ns // 1_000_000
    except FileNotFoundError:
        return 2**63


def _offset_range(fs: FileSystem, path: Path) -> tuple[int, int]:
    base_offset = names.offset_of(path.name)
    next_offset = base_offset
    with fs.open(path) as file:
        for chunk in checked_batches(file, size=file.size()):
            next_offset = int(chunk.batches["last_offset"][-1]) + 1
    return base_offset, next_offset


def _offset_or_minus_one(name: str) -> int:
    try:
        return names.offset_of(name)
    except ValueError:
        return -1
