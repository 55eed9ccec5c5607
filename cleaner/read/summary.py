"""
A summary of a log by names, sizes and checkpoints alone: no file is opened.

It is used for a log that may be in use or was not closed in order: its tail and the indexes of its active segment may
be torn. Thousands of logs can be summarized in a second. Open transactions are not considered (`open_transactions.py`),
so a summary gives an upper bound of the dirty bytes that may be cleaned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from cleaner.errors import CorruptBatchError, CorruptIndexError, NotCleanlyShutDownError
from cleaner.storage.fs.file_system import DirectoryEntry, FileSystem
from cleaner.storage.load.last_stable import last_stable_offset
from cleaner.storage.segment.batch_source import batch_headers
from cleaner.storage.segment.names import (
    CLEANED,
    DELETED,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    offset_of,
    parse_file_name,
    segment_file_name,
)
from cleaner.storage.segment.segment import Segment

_ENDINGS = (LOG, TIME_INDEX, SNAPSHOT, CLEANED, SWAP, DELETED)


def state_of(about: os.stat_result) -> tuple[int, int, int, int]:
    """
    Return what stays the same only as long as a file does: inode, bytes, and both times (ns).

    `cp -p` and `rsync` set the time of modification back, but no program sets the other one.
    """
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class ListedSegment:
    """
    A segment as it was listed; its timestamps are read when first needed, and kept: they do not change.

    Attributes:
        base_offset: lower bound of its offsets.
        size: bytes of the `.log` file.
        mtime_ns: modification time of the `.log` file.
        state: its inode, size and times; unchanged as long as the file is.
    """

    __slots__ = (
        "_directory",
        "_first_timestamp",
        "_fs",
        "_largest_timestamp",
        "_time_index",
        "base_offset",
        "mtime_ns",
        "size",
        "state",
    )

    def __init__(self, fs: FileSystem, directory: Path, found: DirectoryEntry, time_index: int = 0) -> None:
        self.base_offset = offset_of(found.name)
        self.size = found.size
        self.mtime_ns = found.mtime_ns
        self.state = found[1:]
        self._time_index = time_index  # a hash of its name and state, 0: it has none; timestamps are read from it
        self._fs = fs
        self._directory = directory
        self._largest_timestamp: int | None = None
        self._first_timestamp: int | None = None

    def is_still(self, found: DirectoryEntry, time_index: int) -> bool:
        """Tell whether this is the same file, unchanged, with the same time index."""
        return self.state == found[1:] and self._time_index == time_index

    def shortened(self, size: int) -> ListedSegment:
        """Return the segment as it would be with a file of `size` bytes."""
        found = DirectoryEntry(segment_file_name(self.base_offset, LOG), self.state[0], size, self.mtime_ns)
        return ListedSegment(self._fs, self._directory, found)

    def follow(self, about: os.stat_result) -> None:
        """Take over the file's new size and times; for an active segment."""
        state = state_of(about)
        if self.state != state:
            self.state, self.size, self.mtime_ns = state, about.st_size, about.st_mtime_ns
            self._largest_timestamp = self._first_timestamp = None

    def largest_timestamp(self) -> int:
        """
        Return the largest timestamp (ms), or the file's mtime when the segment has none (R-324).

        Raises:
            FileNotFoundError: the segment has gone since.
        """
        if self._largest_timestamp is None:
            self._largest_timestamp = self._segment().largest_timestamp()
        return self._largest_timestamp

    def first_batch_timestamp(self) -> int:
        """
        Return the maximum timestamp (ms) of the first batch on disk; -1 without one (R-416).

        Raises:
            FileNotFoundError: the segment has gone since.
        """
        if self._first_timestamp is None:
            self._first_timestamp = self._segment().first_batch_timestamp()
        return self._first_timestamp

    def position_at(self, offset: int) -> int:
        """
        Return a batch position at or before the batch that holds an offset; 0 if the index is not usable, such as that
        of an active segment, which is padded while it is written.
        """
        try:
            return self._segment().position_at(offset)
        except CorruptIndexError:
            return 0

    def batch_at(self, offset: int) -> int | None:
        """
        Return the base offset of the batch that holds an offset, or of the next one; None beyond the last batch. If the
        batch cannot be read, return the offset itself.

        Raises:
            FileNotFoundError: the segment has gone since.
        """
        try:
            for chunk in self._segment().chunks(start=self.position_at(offset)):
                for batch in chunk.batches[chunk.batches["last_offset"] >= offset][:1]:
                    return int(batch["base_offset"])
        except CorruptBatchError:
            return offset
        return None

    @property
    def mtime_ms(self) -> int:
        """Modification time of the `.log` file, milliseconds."""
        return self.mtime_ns // 1_000_000

    def _segment(self) -> Segment:
        return Segment(
            self._fs,
            self._directory,
            self.base_offset,
            size=self.size,
            mtime_ns=self.mtime_ns,
            source=batch_headers,
        )


class TemporaryFiles(NamedTuple):
    """Temporary files in a partition directory: of a swap or copy (which may be under way), and awaiting removal."""

    unfinished: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """
    The content of a partition directory.

    Attributes:
        segments: ascending; the last is the active one. Empty only in a directory that needs a recovery.
        snapshots: offsets of the producer snapshots, ascending, each with the state of its file (see `state_of`).
        temporary_files: how many there are.
    """

    segments: tuple[ListedSegment, ...] = ()
    snapshots: tuple[tuple[int, tuple[int, ...]], ...] = ()
    temporary_files: TemporaryFiles = field(default=TemporaryFiles())


def list_log_files(fs: FileSystem, directory: Path, before: ListedFiles | None = None) -> ListedFiles:
    """
    List the files of a partition directory; no file is opened.

    Args:
        before: an earlier listing; unchanged segments are taken over with the timestamps already read.
    Raises:
        FileNotFoundError: the directory has gone.
        OSError: it cannot be listed.
    """
    known = {segment.base_offset: segment for segment in before.segments} if before is not None else {}
    logs: list[tuple[int, DirectoryEntry]] = []
    snapshots = []
    time_indexes: dict[str, int] = {}
    unfinished = deleted = 0
    for found in fs.scan_dir(directory, _ENDINGS):
        if found.name.endswith(DELETED):
            deleted += 1
        elif found.name.endswith((CLEANED, SWAP)):
            unfinished += 1
        elif found.name.endswith(TIME_INDEX):
            time_indexes[found.name.removesuffix(TIME_INDEX)] = hash(found)
        elif (file := parse_file_name(found.name)) is not None:
            if file.suffix == LOG:
                logs.append((file.offset, found))
            else:
                snapshots.append((file.offset, found[1:]))
    segments = []
    for offset, found in logs:
        segment, time_index = known.get(offset), time_indexes.get(found.name.removesuffix(LOG), 0)
        if segment is None or not segment.is_still(found, time_index):
            segment = ListedSegment(fs, directory, found, time_index)
        segments.append(segment)
    segments.sort(key=lambda segment: segment.base_offset)
    return ListedFiles(tuple(segments), tuple(sorted(snapshots)), TemporaryFiles(unfinished, deleted))


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A log with the attributes that policies need."""

    segments: Sequence[ListedSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int

    def unstable_from(self, first_unstable_offset: int | None) -> LogSummary:
        """
        Return the summary with the last stable offset; None: there are no unstable transactions.

        Raises:
            FileNotFoundError: the segment of the offset has gone.
        """
        stable = last_stable_offset(
            self.segments,
            first_unstable_offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
        )
        return replace(self, last_stable_offset=stable)


def summarize(
    directory: Path,
    segments: Sequence[ListedSegment],
    *,
    log_start_offset: int,
    high_watermark: int | None,
    log_end_offset: int | None = None,
) -> LogSummary:
    """
    Summarize a log from a listing and the partition's lines in the checkpoints, as if no transaction was open.

    If the log end is not given, the larger of the active segment's base offset and the high watermark is used: it is at
    least that.

    Args:
        directory: for the error message.
        segments: as listed.
        log_start_offset: 0 without a line.
        high_watermark: None without a line: the log start offset (D-03).
        log_end_offset: if it is known; it then limits the high watermark.
    Raises:
        NotCleanlyShutDownError: there are no segments.
    """
    if not segments:
        raise NotCleanlyShutDownError(f"{directory}: no segments; it must be recovered first")
    start = max(segments[0].base_offset, log_start_offset)
    watermark = max(start, high_watermark or 0)
    if log_end_offset is not None:
        watermark = min(watermark, max(start, log_end_offset))
    end = max(segments[-1].base_offset, watermark) if log_end_offset is None else max(start, log_end_offset)
    return LogSummary(segments, start, end, watermark, watermark)
