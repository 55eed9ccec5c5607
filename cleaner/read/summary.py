"""
A summary of a log by names, sizes and checkpoints alone: no file is opened.

It is used for a log that may be in use or was not closed in order: its tail and the indexes of its active segment may
be torn. Thousands of logs can be summarized in a second. Open transactions are not considered (`open_transactions.py`),
so a summary gives an upper bound of the dirty bytes that may be cleaned.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from cleaner.base.clock import Clock
from cleaner.errors import (
    CleanerError,
    CleaningAborted,
    CorruptBatchError,
    CorruptIndexError,
    CorruptLogError,
    LogChangedError,
    NotCleanlyShutDownError,
    disk_error,
)
from cleaner.storage.fs.file_system import DirectoryEntry, FileState, FileSystem
from cleaner.storage.load.last_stable import last_stable_offset
from cleaner.storage.load.leftovers import SwapState, swap_state
from cleaner.storage.segment.batch_source import batch_headers
from cleaner.storage.segment.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    offset_of,
    parse_file_name,
    segment_file_name,
)
from cleaner.storage.segment.segment import Segment

MOST_LOOKS = 20
"""How often a log is read that changes while it is read; each reading may take hours, or microseconds."""

MOST_DOUBTS = 5
"""How often of these without a change that shows: the end of a log that is written to may look damaged."""

_PAUSES, _PAUSE_SECONDS = 5, 0.1  # between a last swap and its checkpoint are some fsyncs
_Result = TypeVar("_Result")
_ENDINGS = (LOG, INDEX, TIME_INDEX, SNAPSHOT, CLEANED, SWAP, DELETED)


class ListedSegment:
    """
    A segment as it was listed; its timestamps are read when first needed, and kept: they do not change.

    Attributes:
        base_offset: lower bound of its offsets.
        state: of the `.log` file.

    Args:
        found: its `.log`.
        time_index: the state of its time index, from which timestamps are read; None: it has none.
    """

    __slots__ = (
        "_directory",
        "_first_timestamp",
        "_fs",
        "_largest_timestamp",
        "_time_index",
        "base_offset",
        "state",
    )

    def __init__(
        self, fs: FileSystem, directory: Path, found: DirectoryEntry, time_index: FileState | None = None
    ) -> None:
        self.base_offset = offset_of(found.name)
        self.state = found.state
        self._time_index = time_index
        self._fs = fs
        self._directory = directory
        self._largest_timestamp: int | None = None
        self._first_timestamp: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the `.log` file."""
        return self.state.size

    @property
    def mtime_ns(self) -> int:
        """Modification time of the `.log` file."""
        return self.state.mtime_ns

    def is_still(self, found: DirectoryEntry, time_index: FileState | None) -> bool:
        """Tell whether this is the same file, unchanged, with the same time index."""
        return self.state == found.state and self._time_index == time_index

    def shortened(self, size: int) -> ListedSegment:
        """Return the segment as it would be with a file of `size` bytes."""
        found = DirectoryEntry(segment_file_name(self.base_offset, LOG), self.state._replace(size=size))
        return ListedSegment(self._fs, self._directory, found)

    def follow(self, state: FileState) -> None:
        """Take over the file's new state; for an active segment."""
        if self.state != state:
            self.state = state
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
    """Temporary files in a partition directory: of a swap (which may be under way), and how many await removal."""

    swap: SwapState | None = None
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """
    The content of a partition directory.

    Attributes:
        segments: ascending; the last is the active one. Empty only in a directory that needs a recovery.
        snapshots: offsets of the producer snapshots, ascending, each with the state of its file.
        temporary_files: what they are of.
        lacks_index: whether a segment has no offset index.
    """

    segments: tuple[ListedSegment, ...] = ()
    snapshots: tuple[tuple[int, FileState], ...] = ()
    temporary_files: TemporaryFiles = field(default=TemporaryFiles())
    lacks_index: bool = False


def list_log_files(fs: FileSystem, directory: Path, before: ListedFiles | None = None) -> ListedFiles:
    """
    List the files of a partition directory; no file is opened.

    Args:
        before: an earlier listing; unchanged segments are taken over with the timestamps already read.
    Raises:
        FileNotFoundError: the directory has gone.
        LogDirOfflineError: it cannot be listed, or a segment is a link or another file that is never opened.
    """
    known = {segment.base_offset: segment for segment in before.segments} if before is not None else {}
    files: dict[str, dict[int, DirectoryEntry]] = {suffix: {} for suffix in (LOG, INDEX, TIME_INDEX, SNAPSHOT)}
    unfinished, deleted = list[str](), 0
    for found in fs.scan_dir(directory, _ENDINGS):
        if found.name.endswith(DELETED):
            deleted += 1
        elif found.name.endswith((CLEANED, SWAP)):
            unfinished.append(found.name)
        elif (file := parse_file_name(found.name)) is not None:
            if not found.is_regular:
                if file.suffix == LOG:
                    raise disk_error(directory / found.name, OSError(errno.EINVAL, "not a regular file"))
                continue
            files[file.suffix][file.offset] = found
    segments = []
    for offset, found in sorted(files[LOG].items()):
        time_index = files[TIME_INDEX][offset].state if offset in files[TIME_INDEX] else None
        segment = known.get(offset)
        if segment is None or not segment.is_still(found, time_index):
            segment = ListedSegment(fs, directory, found, time_index)
        segments.append(segment)
    snapshots = tuple(sorted((offset, found.state) for offset, found in files[SNAPSHOT].items()))
    lacks_index = not files[LOG].keys() <= files[INDEX].keys()
    return ListedFiles(tuple(segments), snapshots, TemporaryFiles(swap_state(unfinished), deleted), lacks_index)


def are_exchanged(fs: FileSystem, directory: Path, before: ListedFiles) -> bool:
    """
    Tell whether other files are in place of the closed segments of a listing: what was read since may be of both.

    A directory that cannot be listed counts as unchanged: what it was asked about is an error already.
    """
    try:
        now = list_log_files(fs, directory)
    except FileNotFoundError:
        return True
    except CleanerError:
        return False
    return _identities(now.segments[: len(before.segments)]) != _identities(before.segments)


def _identities(segments: Sequence[ListedSegment]) -> list[tuple[int, FileState | int]]:
    """Return what tells segments apart; the last one only grows."""
    closed: list[tuple[int, FileState | int]] = [(each.base_offset, each.state) for each in segments[:-1]]
    return closed + [(each.base_offset, each.state.inode) for each in segments[-1:]]


def until_still(path: Path, look: Callable[[], _Result]) -> _Result:
    """
    Look at a log, or a part of it, until it does not change meanwhile: the one rule of how often that is tried.

    Args:
        path: what is looked at.
        look: raises FileNotFoundError or LogChangedError if something has changed.
    Raises:
        LogChangedError: it changed each time.
    """
    for _ in range(MOST_LOOKS):
        try:
            return look()
        except (FileNotFoundError, LogChangedError) as error:
            changed = error
    raise LogChangedError(f"{path}: another process keeps changing it; try again later") from changed


def look_again(
    fs: FileSystem,
    directories: Sequence[Path],
    work: Callable[[Sequence[ListedFiles]], _Result],
    *,
    is_sound: Callable[[_Result], bool] = lambda _: True,
    has_moved: Callable[[], bool] = lambda: False,
    is_doubtful: Callable[[CleanerError], bool] = lambda _: False,
) -> _Result:
    """
    Read logs that another process may clean meanwhile: again, if files were exchanged and what was read is not sound.

    Args:
        directories: of the partitions.
        work: reads them, given their listings; a FileNotFoundError counts as an exchange.
        is_sound: whether a result has nothing in it that exchanged files would explain.
        has_moved: whether something else has changed that what is not sound may come from, such as a checkpoint.
        is_doubtful: whether an error may come from a change that does not show, at most `MOST_DOUBTS` times.
    Raises:
        LogChangedError: they were exchanged each time.
        LogDirOfflineError: there is no such directory.
        others: those of `work`, if no file was exchanged.
    """
    doubts = 0

    def look() -> _Result:
        nonlocal doubts
        before = [_listed(fs, each) for each in directories]
        error: CleanerError | None = None
        try:
            result = work(before)
            if is_sound(result):
                return result
        except (CleaningAborted, LogChangedError):
            raise
        except CleanerError as raised:
            error = raised
        if any(map(partial(are_exchanged, fs), directories, before)) or has_moved():
            raise LogChangedError(f"{directories[0]}: other files have taken the place of its own") from error
        if error is None:
            return result
        doubts += 1
        if doubts < MOST_DOUBTS and (isinstance(error.__cause__, FileNotFoundError) or is_doubtful(error)):
            raise LogChangedError(str(error)) from error
        raise error

    return until_still(directories[0], look)


def moves_soon(has_moved: Callable[[], bool], is_in_use: Callable[[], bool], clock: Clock) -> bool:
    """Tell whether a checkpoint changes within a moment, as that of a round does that has made its last swap."""
    for _ in range(_PAUSES):
        if has_moved():
            return True
        if not is_in_use():
            break
        clock.sleep(_PAUSE_SECONDS)
    return has_moved()


def may_pass(error: CleanerError, clock: Clock) -> bool:
    """Tell whether an error about a log in use may be gone at the next look; waits where that takes a moment."""
    if isinstance(error, NotCleanlyShutDownError):
        clock.sleep(_PAUSE_SECONDS)  # a topic that is being made has no segment yet
    return isinstance(error, CorruptLogError | NotCleanlyShutDownError)


def _listed(fs: FileSystem, directory: Path) -> ListedFiles:
    try:
        return list_log_files(fs, directory)
    except FileNotFoundError as error:
        raise disk_error(directory, error) from error


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
