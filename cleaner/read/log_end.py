"""
Finds the end of a log that is not loaded: behind the last whole batch of its last segment.

The search starts from the last entries of the offset index. The caller decides how strictly batches are checked:
readers verify checksums, looks and plans read headers only (`ReadBatches`).

The end that a recovery would leave is also found by headers. A recovery reads every segment from the recovery point on
and cuts the log at the first batch that is torn or damaged (R-640). This module walks the same segments and changes
nothing. It does not see a batch with a sound header and a wrong checksum; and if there are very many batches, it reads
only the last ones of the active segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk, ReadableFile
from cleaner.format.headers import HeaderReader
from cleaner.kernels.batch_header import LOG_OVERHEAD_BYTES, MIN_BATCH_BYTES, size_of
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.summary import ListedSegment
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import is_zero_from

# About 300 000 headers are walked in a second; this many bytes of the smallest batches take about one second.
_MAX_BYTES = 64 << 20
# So many bytes are read as fast as an index, which has no entry for them (`index.interval.bytes`).
_UNINDEXED_BYTES = 4096


class ReadBatches(Protocol):
    """Reads the batches of an open `.log`: a source of `batch_source.py`, or `HeaderReader`."""

    def __call__(
        self, file: ReadableFile, *, size: int, start: int, check_order_from: int | None = None
    ) -> Iterable[Chunk]:
        """Return the chunks from `start` up to `size`."""


class LogEnd(NamedTuple):
    """
    The end of a segment's batches.

    Attributes:
        offset: behind the last whole batch; the segment's base offset if there is none.
        position: in its file, behind that batch.
        failure: why the bytes there are not a whole batch; None at the end of the file.
    """

    offset: int
    position: int
    failure: CorruptBatchError | None = None


def end_of(segment: OpenSegment, size: int, read: ReadBatches, starts: Iterable[int] | None = None) -> LogEnd:
    """
    Return where a segment's batches end.

    Args:
        size: bytes of the file that count.
        read: reads the batches.
        starts: positions to try until a batch is found; None: those of the last index entries, then the beginning.
    """
    end = LogEnd(segment.base_offset, 0)
    for start in segment.tail_positions(size) if starts is None else starts:
        end = end_after(segment, LogEnd(segment.base_offset, start), size, read)
        if end.offset > segment.base_offset:
            break
    return end


def end_after(segment: OpenSegment, known: LogEnd, size: int, read: ReadBatches) -> LogEnd:
    """Return where the batches end, starting from a known batch boundary, such as an earlier end."""
    offset, position = known.offset, known.position
    try:
        for chunk in read(segment.file, size=size, start=position, check_order_from=offset):
            last = chunk.batches[-1]
            offset, position = int(last["last_offset"]) + 1, int(last["position"] + last["size"])
    except CorruptBatchError as error:
        return LogEnd(offset, position, error)
    return LogEnd(offset, position)


def is_torn(segment: OpenSegment, position: int, size: int) -> bool:
    """
    Tell whether no more than a torn batch is at a position: an append is under way, or was cut off.

    The file ends within that batch, or there is only room behind it: the zeros that a writer with `preallocate` keeps.
    """
    head = segment.file.read(LOG_OVERHEAD_BYTES, position)
    if not any(head):
        return is_zero_from(segment.file, position)
    if len(head) < LOG_OVERHEAD_BYTES:
        return position + len(head) >= size
    whole = size_of(head)
    behind = position + (whole if whole >= MIN_BATCH_BYTES[0] else LOG_OVERHEAD_BYTES)
    return behind > size or (behind < size and is_zero_from(segment.file, behind))


def end_without_room(segment: OpenSegment) -> int:
    """Return where the batches of a segment's file end, if zeros follow them; else the file's size."""
    size = segment.file.size()
    if any(segment.file.read(1, max(0, size - 1))):
        return size
    end = end_of(segment, size, HeaderReader)
    return end.position if is_torn(segment, end.position, size) else size


class RecoveredEnd(NamedTuple):
    """
    A log as a recovery would leave it.

    Attributes:
        segments: the remaining ones; the last one has its size after the cut.
        log_end_offset: the offset behind the last sound batch.
        cut_bytes: what would be cut, of `.log` files.
    """

    segments: tuple[ListedSegment, ...]
    log_end_offset: int
    cut_bytes: int


def recovered_end(
    fs: FileSystem, directory: Path, segments: Sequence[ListedSegment], recovery_point: int | None
) -> RecoveredEnd:
    """
    Return the end that a recovery would leave.

    Args:
        segments: as listed, at least one.
        recovery_point: the partition's line in the checkpoint; None: the log is being written, so only the end of the
            active segment may be torn.
    Raises:
        FileNotFoundError: a segment has gone.
    """
    last = len(segments) - 1
    first = last
    if recovery_point is not None:
        first = max(0, bisect_right(segments, recovery_point, key=lambda segment: segment.base_offset) - 1)
    is_short = recovery_point is not None and sum(segment.size for segment in segments[first:]) <= _MAX_BYTES
    for row in range(first if is_short else last, last + 1):
        segment = segments[row]
        with OpenSegment(fs, SegmentFiles(directory, segment.base_offset)) as file:
            is_whole = is_short or segment.size <= _UNINDEXED_BYTES
            end = end_of(file, segment.size, HeaderReader, [0] if is_whole else None)
        if end.position < segment.size or row == last:
            cut_bytes = segment.size - end.position + sum(later.size for later in segments[row + 1 :])
            kept = (*segments[:row], segment if end.position == segment.size else segment.shortened(end.position))
            return RecoveredEnd(kept, end.offset, cut_bytes)
    raise AssertionError("the last segment ends every walk")
