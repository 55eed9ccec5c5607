"""Planted defects: the product believes in more than a disk promises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cleaner.cleaning.passes.segment_chunks import ArrangedChunk, SegmentChunks
from cleaner.errors import CorruptBatchError, LogDirOfflineError
from cleaner.format.chunks import Chunk
from cleaner.log.active_segment import ActiveSegment
from cleaner.log.reader import LogReader
from cleaner.log.served_topics import ServedTopics
from cleaner.storage.fs.open_file import File
from cleaner.storage.load import loader
from tests.simulation.disk import SimFiles
from tests.simulation.planting import breaks, current_task, unsynced

# ---- an fsync that has failed ---------------------------------------------------------------------------------------


@breaks(ActiveSegment, "_force")
def failed_fsyncs_are_tried_again(real: Any, self: ActiveSegment, *files: Any, data_only: bool = False) -> None:
    """An fsync that fails is called again, and the second success is believed."""
    try:
        real(self, *files, data_only=data_only)
    except LogDirOfflineError:
        self._fsync_error = None
        real(self, *files, data_only=data_only)


@breaks(loader, "_drop_page_cache")
def recovery_believes_the_page_cache(_real: Any, _fs: Any, _directory: Path) -> None:
    """An opening reads what a failed fsync has left in memory, and takes it for the disk's."""


# ---- directories ----------------------------------------------------------------------------------------------------


def _without_directory_fsyncs(real: Any, self: ServedTopics, *args: Any) -> Any:
    fs = self._services.fs
    with unsynced(current_task(fs), "fsync_dir") if isinstance(fs, SimFiles) else contextlib.nullcontext():
        return real(self, *args)


@breaks(ServedTopics, "create")
def topics_are_made_without_directory_fsyncs(real: Any, self: ServedTopics, *args: Any) -> Any:
    """A topic is there, and its directory is not on the disk."""
    return _without_directory_fsyncs(real, self, *args)


@breaks(ServedTopics, "delete")
def topics_are_deleted_without_directory_fsyncs(real: Any, self: ServedTopics, *args: Any) -> Any:
    """A topic is gone, and its directory still has its name on the disk."""
    return _without_directory_fsyncs(real, self, *args)


# ---- short reads and writes -----------------------------------------------------------------------------------------


@breaks(File, "write")
def short_writes_count_as_whole(_real: Any, self: File, data: Any, position: int) -> None:
    """What one call has not written is not written at all."""
    self._write_some(memoryview(data).cast("B"), position)


@breaks(File, "read_into")
def short_reads_count_as_whole(_real: Any, self: File, buffer: memoryview, position: int) -> int:
    """What one call has not read counts as behind the end of the file."""
    return self._read_some(buffer, position)


# ---- files at rest --------------------------------------------------------------------------------------------------


@breaks(SegmentChunks, "verify")
def rounds_believe_damaged_batches(_real: Any, arranged: ArrangedChunk) -> Chunk:
    """A round recopies batches without a look at their checksums, and gives what it rebuilds new ones."""
    return arranged.chunk


@breaks(LogReader, "columns")
def readers_end_at_damage(real: Any, self: LogReader, *args: Any, **named: Any) -> Iterator[Any]:
    """A reader that comes to a damaged batch takes it for the end, and tells nothing."""
    try:
        yield from real(self, *args, **named)
    except CorruptBatchError:
        return
