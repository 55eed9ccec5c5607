"""
Where a log ends that is not loaded: behind the last whole batch of its last segment.

It is looked for from the last entries of the offset index on. How much is asked of a batch is for who asks: readers
verify checksums, looks and plans go by headers (`ReadBatches`).

What a recovery would find is told by headers, too. It reads every segment from the recovery point on and cuts the log
at the first batch that is torn or damaged (R-640). The same segments are walked here and nothing is changed; so a batch
whose header is sound and whose checksum is wrong is not seen, and where there are very many batches only the active
segment's last ones are.
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

# Some 300 000 headers are walked in a second; so much of the smallest batches takes about one.
_MAX_BYTES = 64 << 20


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
        offset: behind the last whole one; the segment's base offset without any.
        position: in its file, behind that batch.
        failure: what was found there that is no whole batch; None where the file ends.
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
        starts: positions to try until there is a batch; None: where the index leads to, and the beginning.
    """
    end = LogEnd(segment.base_offset, 0)
    for start in segment.tail_positions(size) if starts is None else starts:
        end = end_behind(segment, LogEnd(segment.base_offset, start), size, read)
        if end.offset > segment.base_offset:
            break
    return end


def end_behind(segment: OpenSegment, known: LogEnd, size: int, read: ReadBatches) -> LogEnd:
    """Return where the batches end behind a place where a batch may begin, or the end was some time ago."""
    offset, position = known.offset, known.position
    try:
        for chunk in read(segment.file, size=size, start=position, check_order_from=offset):
            last = chunk.batches[-1]
            offset, position = int(last["last_offset"]) + 1, int(last["position"] + last["size"])
    except CorruptBatchError as error:
        return LogEnd(offset, position, error)
    return LogEnd(offset, position)


def is_torn(segment: OpenSegment, position: int, size: int) -> bool:
    """Tell whether a segment's file ends within the batch at a position: an append under way, or one that never was."""
    head = segment.file.read(LOG_OVERHEAD_BYTES, position)
    if position + len(head) >= size and len(head) < LOG_OVERHEAD_BYTES:
        return True
    whole = size_of(head)
    return whole >= MIN_BATCH_BYTES[0] and position + whole > size


class RecoveredEnd(NamedTuple):
    """
    What is left of a log.

    Attributes:
        segments: those that stay, the last as long as it will be.
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
    Walk the end of a log.

    Args:
        segments: as listed, at least one.
        recovery_point: the partition's line in the checkpoint; None: somebody appends, and only the active segment's
            end may be torn.
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
            end = end_of(file, segment.size, HeaderReader, [0] if is_short else None)
        if end.position < segment.size or row == last:
            cut_bytes = segment.size - end.position + sum(later.size for later in segments[row + 1 :])
            kept = (*segments[:row], segment if end.position == segment.size else segment.shortened(end.position))
            return RecoveredEnd(kept, end.offset, cut_bytes)
    raise AssertionError("the last segment ends every walk")
