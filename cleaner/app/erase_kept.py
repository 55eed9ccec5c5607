"""
Erases records from what was kept outside of log dirs: old segments (`clean --keep-old`) and cut bytes (`recover
--save-cut`).

Old segments are rewritten like those of a log, and their manifest follows, so that `undo` still works: it compares the
kept files, and those that have replaced them, with the manifest. While kept files are rewritten the manifest says so,
and an interrupted erasure is told from a damaged file.

Cut bytes are no part of any log, and no command puts them back. A file of them is removed if it holds a record to
erase, or bytes that are no sound batch, which may hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cleaner.app.erase_places import left_overs
from cleaner.app.erase_reports import ErasedFile
from cleaner.cleaning.recopy.erasure import ErasedRecords, ErasingSurvivors
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.cleaning.round.erase import FoundInSegment, SegmentEraser
from cleaner.errors import CorruptCheckpointError, CorruptLogError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import HEADER_BYTES
from cleaner.format.records import Unpacker
from cleaner.kernels.batch_header import MAGIC
from cleaner.state.kept_manifest import KeptFile, KeptGroup, KeptPartition, is_group_name, manifest
from cleaner.state.state_file import BadStateError
from cleaner.storage.fs.file_system import UNFINISHED, File, FileSystem
from cleaner.storage.load.leftovers import settle_leftovers
from cleaner.storage.load.loaded_log import LoadedLog, list_segments
from cleaner.storage.segment import names
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.backup import crc32_of

_FAR = 2**63 - 1


class KeptErasure:
    """
    The old segments that one directory keeps of one partition.

    Args:
        fs: the file system.
        directory: of the partition, in the directory that `--keep-old` named.
    Raises:
        CorruptCheckpointError: the manifest cannot be read.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self.directory = directory
        self._fs = fs
        self._file = manifest(fs, directory)
        try:
            # A crash may have kept even the first group out of a manifest.
            self._kept = self._file.peek()
        except BadStateError as error:
            raise CorruptCheckpointError(self._file.path, 0, str(error)) from error
        self._has_same_active = False
        self._replaced: set[str] = set()  # groups whose new files are those in the log, and are about to change

    @property
    def log_dir(self) -> Path | None:
        """The log dir that the segments are of; None without a manifest."""
        return None if self._kept is None else Path(self._kept.log_dir)

    @property
    def places(self) -> list[Path]:
        """The directories of the groups, also of one that a crash has kept out of the manifest."""
        return [self.directory / name for name in self._fs.list_dirs(self.directory) if is_group_name(name)]

    @property
    def unknown_files(self) -> list[str]:
        """Names of which nothing is known."""
        own = (names.KEPT_MANIFEST, names.KEPT_MANIFEST + UNFINISHED, names.UNDONE_MANIFEST)
        found = [name for name in self._fs.list_dir(self.directory) if name not in own and not is_group_name(name)]
        return found + [f"{place.name}/{name}" for place in self.places for name in left_overs(self._fs, place).unknown]

    def search(
        self, eraser: SegmentEraser, *, index_bytes: int, dry_run: bool
    ) -> tuple[list[Segment], list[ErasedFile], Callable[[], None]]:
        """
        Search the kept segments.

        Returns:
            all kept segments, those with something to erase, and what erases it.
        Raises:
            CorruptLogError, UncleanableError: as for a log; nothing was changed.
        """
        segments, todo = list[Segment](), list[tuple[Path, list[FoundInSegment]]]()
        for place in self.places:
            if not dry_run:
                settle_leftovers(self._fs, place, deleted_before_ms=_FAR, index_bytes=index_bytes)
            here = list_segments(self._fs, place)
            todo.append((place, eraser.search(here, _any_end)))
            segments += here
        found = [erased_file(each) for _, some in todo for each in some]
        return segments, found, partial(self._erase, eraser, todo)

    def _erase(self, eraser: SegmentEraser, todo: Sequence[tuple[Path, Sequence[FoundInSegment]]]) -> None:
        kept = self._kept
        if not any(some for _, some in todo) and (kept is None or not kept.erasing):
            for place, _ in todo:  # an earlier erasure may have removed files, and could not force that to disk
                self._fs.fsync_dir(place)
            return
        if kept is not None:
            self._save(replace(kept, erasing=True))
        for place, some in todo:
            with self._fs.hold(place):
                eraser.erase(some, _any_end, eraser.into_directory(place))
        if kept is not None:
            self._save(replace(kept, groups=tuple(map(self._as_found, kept.groups)), erasing=False))

    def _as_found(self, group: KeptGroup) -> KeptGroup:
        """Return a group with its kept files as they are now; a swap that a load completes takes snapshots away."""
        place = self.directory / group.directory
        there = set(self._fs.find(place, [file.name for file in group.old]))
        return replace(
            group,
            old=tuple(
                KeptFile(file.name, *crc32_of(self._fs, place / file.name)) if file.name in there else file
                for file in group.old
                if file.name in there or not file.name.endswith(names.SNAPSHOT)
            ),
        )

    def _save(self, kept: KeptPartition) -> None:
        self._file.save(kept)
        self._kept = kept

    def before(self, log: LoadedLog, log_dir: Path, found: Sequence[FoundInSegment]) -> None:
        """Note which files of the log the manifest describes, before the log changes."""
        active, kept = log.active_segment, self._kept
        if kept is None or kept.log_dir != str(log_dir):
            return
        self._has_same_active = (active.base_offset, active.size) == (kept.active_base, kept.active_bytes)
        bases = {each.segment.base_offset for each in found}
        groups = [group for group in kept.groups if group.new_log[0] in bases]
        self._replaced = {group.directory for group in groups if self._look(log, group) == group.new}

    def after(self, log: LoadedLog) -> None:
        """Describe the log's files as they are now, if the manifest described them before."""
        kept = self._kept
        if kept is None:
            return
        groups = tuple(
            replace(group, new=self._look(log, group)) if group.directory in self._replaced else group
            for group in kept.groups
        )
        active_bytes = log.active_segment.size if self._has_same_active else kept.active_bytes
        changed = replace(kept, groups=groups, active_bytes=active_bytes)
        if changed != kept:
            self._save(changed)

    def _look(self, log: LoadedLog, group: KeptGroup) -> tuple[KeptFile, ...]:
        there = self._fs.find(log.directory, [file.name for file in group.new])
        return tuple(KeptFile(name, *crc32_of(self._fs, log.directory / name)) for name in there)


def _any_end(_segment: Segment) -> int:
    """Return where a kept segment may end: the next one may be of another round, which a crash has left there."""
    return _FAR


def erased_file(found: FoundInSegment) -> ErasedFile:
    """Return what is reported of a segment."""
    size = found.segment.size
    return ErasedFile(str(found.segment.log_path), found.batches, found.records, size, found.bytes_after)


def search_cut(
    fs: FileSystem, directory: Path, wanted: ErasedRecords, limit_bytes: int
) -> tuple[int, int, list[ErasedFile]]:
    """
    Find the files of cut bytes that hold, or may hold, a record to erase.

    Args:
        fs: the file system.
        directory: of the partition, in the directory that `--save-cut` named.
        wanted: what is erased.
        limit_bytes: most bytes a batch may unpack to.
    Returns:
        how many files there are, their bytes, and those to remove.
    """
    found, count, total = list[ErasedFile](), 0, 0
    for name in fs.list_files(directory):
        path, survivors = directory / name, ErasingSurvivors(wanted)
        with fs.open(path) as file:
            size = file.size()
            is_sound = _judge(file, size, survivors, limit_bytes)
        count, total = count + 1, total + size
        if not is_sound or survivors.touched_batches:
            found.append(ErasedFile(str(path), survivors.touched_batches, survivors.erased_records, size, 0))
    return count, total, found


def _judge(file: File, size: int, survivors: ErasingSurvivors, limit_bytes: int) -> bool:
    """Judge all records of a file, markers too; returns whether all of it are sound batches, and hide none."""
    unpacker, verdicts = Unpacker(limit_bytes), np.zeros(0, np.uint8)
    try:
        for chunk in SegmentReader(file, size=size, check_order_from=0):
            rows = chunk.batches
            if ((rows["magic"] == MAGIC) & (rows["count"] <= 0) & (rows["size"] > HEADER_BYTES)).any():
                return False  # a batch that has bytes of records, and says it has none
            for block in unpacker.blocks(file.path, chunk):
                retention = BlockRetention.undecided(len(block.batches), legacy_deletes_stay=True)
                verdicts = np.zeros(block.record_count(retention.unread), np.uint8)
                survivors.judge(file.path, block, retention, verdicts)
    except CorruptLogError:
        return False
    return True
