"""
Where the segments of a log lie on disk, for a reader that changes nothing.

Usually that is one `.log` a segment. A cleaner that died in the middle of a swap leaves `.swap` files; whoever loads
the log next completes the swap or drops it, and a reader sees the log as it will be then (R-630 to R-634).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cleaner.errors import CorruptBatchError
from cleaner.format.headers import HeaderReader
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names

_NO_SUFFIXES: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SegmentPlace:
    """
    One segment.

    Attributes:
        directory: the partition's.
        base_offset: lower bound of its offsets.
        swapped: the suffixes of those of its files that still have `.swap` behind their names.
    """

    directory: Path
    base_offset: int
    swapped: frozenset[str] = _NO_SUFFIXES

    def path(self, suffix: str) -> Path:
        """Return the path of the segment's file with one of `names.SEGMENT_SUFFIXES`."""
        temporary = names.SWAP if suffix in self.swapped else ""
        return self.directory / names.segment_file_name(self.base_offset, suffix, temporary)


@dataclass(frozen=True)
class FoundFiles:
    """
    What is in a partition's directory.

    Attributes:
        places: the segments, ascending.
        snapshots: offsets of the producer snapshots, ascending.
        has_swap: a swap is under way, or was when somebody died.
    """

    places: tuple[SegmentPlace, ...]
    snapshots: tuple[int, ...]
    has_swap: bool


def find_files(fs: FileSystem, directory: Path) -> FoundFiles:
    """
    List a partition's segments by their names.

    Raises:
        FileNotFoundError: there is no such directory; or a `.swap` file was renamed meanwhile, then try again.
    """
    logs: set[int] = set()
    snapshots: list[int] = []
    swapped: dict[int, set[str]] = {}
    lowest_cleaned = 2**63
    for name in fs.list_files(directory):
        file = names.parse_file_name(name)
        if file is None or file.temporary == names.DELETED:
            continue
        if file.temporary == names.CLEANED:
            lowest_cleaned = min(lowest_cleaned, file.offset)
        elif file.temporary == names.SWAP:
            swapped.setdefault(file.offset, set()).add(file.suffix)
        elif file.suffix == names.LOG:
            logs.add(file.offset)
        elif file.suffix == names.SNAPSHOT:
            snapshots.append(file.offset)
    decided = {base: suffixes for base, suffixes in swapped.items() if base < lowest_cleaned}
    logs = _after_swap(fs, directory, logs, decided)
    places = tuple(SegmentPlace(directory, base, frozenset(decided.get(base, _NO_SUFFIXES))) for base in sorted(logs))
    return FoundFiles(places, tuple(sorted(snapshots)), bool(swapped))


def _after_swap(fs: FileSystem, directory: Path, logs: set[int], decided: dict[int, set[str]]) -> set[int]:
    """Return the base offsets there will be when a swap that was decided is completed (R-631, R-632)."""
    new = [base for base, suffixes in decided.items() if names.LOG in suffixes]
    if not new:
        return logs
    end = max(_next_offset(fs, directory, base) for base in new)
    return {base for base in logs if not min(new) <= base < end} | set(new)


def _next_offset(fs: FileSystem, directory: Path, base_offset: int) -> int:
    next_offset = base_offset
    with fs.open(directory / names.segment_file_name(base_offset, names.LOG, names.SWAP)) as file:
        try:
            for chunk in HeaderReader(file, size=file.size()):
                next_offset = int(chunk.batches[-1]["last_offset"]) + 1
        except CorruptBatchError:
            # The old segments stay in sight; reading the new one will name the damage.
            return next_offset
    return next_offset
