"""The results of `erase`: frozen values, printed unchanged by `--format json`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.app.erase_places import Place
from cleaner.cleaning.recopy.erasure import ErasedRecords
from cleaner.errors import UsageError


@dataclass(frozen=True)
class EraseOptions:
    """
    How to erase.

    Attributes:
        dry_run: only count; nothing is written, and no lock is taken.
        punch: overwrite files with zeros before they are removed, and punch holes into them.
        kept: directories that `clean --keep-old` has filled.
        cut: directories that `recover --save-cut` has filled.
        index_dir: of key indexes; None: `cleaner.index.dir`, if that is set.
    """

    dry_run: bool = False
    punch: bool = False
    kept: tuple[Path, ...] = ()
    cut: tuple[Path, ...] = ()
    index_dir: Path | None = None


@dataclass(frozen=True)
class ErasedFile:
    """
    A `.log` with something to erase.

    Attributes:
        path: absolute.
        batches: that held records to erase.
        records: erased.
        bytes_before, bytes_after: of the file; 0 if it is removed.
    """

    path: str
    batches: int
    records: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class EraseReport:
    """
    What was erased in one directory; with `dry_run`, what would be.

    Attributes:
        partition: as the partition's own directory is named.
        place: `log`; `future`, `stray` and `delete` for a renamed directory; `kept` and `cut` for what
            `clean --keep-old` and `recover --save-cut` have kept.
        directory: absolute.
        dry_run: nothing was changed.
        batches, records: with records to erase, and erased.
        segments, bytes: read: all of the directory; of `cut` the files.
        files: the segments with something to erase.
        left_over_files, left_over_bytes: of swaps and deletions; removed, or a swap was completed.
        unknown_files: names in the directory of which nothing is known; they were not searched.
        linked_files: removed files that have another name elsewhere, where their records still are.
        overwritten_bytes: with `punch`: of removed files.
        unpunched_file: a file on a file system that cannot punch holes: it was overwritten only.
        elapsed_seconds: for this directory.
    """

    partition: str
    place: Place
    directory: str
    dry_run: bool
    batches: int
    records: int
    segments: int = 0
    bytes: int = 0
    files: tuple[ErasedFile, ...] = ()
    left_over_files: int = 0
    left_over_bytes: int = 0
    unknown_files: tuple[str, ...] = ()
    linked_files: tuple[str, ...] = ()
    overwritten_bytes: int = 0
    unpunched_file: str | None = None
    elapsed_seconds: float = 0.0

    JSON_PROPERTIES = ("is_complete",)

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is left in the directory, or linked from it, that may hold a record to erase."""
        return not self.unknown_files and not self.linked_files


def wanted_records(
    keys: Iterable[bytes], prefixes: Collection[bytes], offsets: tuple[int, int] | None, given: Sequence[str]
) -> ErasedRecords:
    """
    Return what is erased.

    Args:
        keys, prefixes, offsets: as for `ErasedRecords`.
        given: names of topics and partitions.
    Raises:
        UsageError: nothing, or several kinds at once; offsets of several logs; a prefix that every key has.
    """
    if not given:
        raise UsageError("name the topics or partitions to erase from")
    if offsets is not None and len(given) != 1:
        raise UsageError("offsets are those of one partition: name one TOPIC-PARTITION")
    if b"" in prefixes:
        raise UsageError("an empty prefix: every key begins with it")
    wanted = ErasedRecords(keys, prefixes, offsets)
    if sum((wanted.key_count > 0, bool(prefixes), offsets is not None)) != 1:
        raise UsageError("give keys, prefixes of keys, or offsets: one of the three, and not empty")
    return wanted
