"""
The spans of segments that a task reads, cut where an index entry points to a batch.

A segment without an index is one span, because only reading it shows where its batches begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptIndexError, OffsetOutOfRangeError
from cleaner.kernels.batch_header import HEAD_BYTES, MAGIC, MAGIC_AT, base_offset_of
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.snapshot import UNKNOWN_END, LogSnapshot
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import read_offset_index


@dataclass(frozen=True)
class Span:
    """
    Adjacent batches of a segment, and which of their records are wanted.

    Attributes:
        directory: of the partition.
        path: the segment's `.log`, under its name at planning time.
        inode: of that file; another file of this name holds other batches at these positions.
        base_offset: of the segment.
        position, end_position: range of the batches in the file, the end exclusive.
        first_offset, end_offset: range of the records wanted, the end exclusive.
        topic_id: of the log, as in `LogSnapshot`.
    """

    topic_partition: TopicPartition
    directory: Path
    path: Path
    inode: int
    base_offset: int
    position: int
    end_position: int
    first_offset: int
    end_offset: int
    topic_id: bytes = b""

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.end_position - self.position


def spans_of(
    log: LogSnapshot,
    first_offset: int,
    end_offset: int,
    task_bytes: int,
    min_timestamp_ms: int | None = None,
    max_records: int | None = None,
) -> Iterator[Span]:
    """
    Yield the spans that hold a log's records within a range of offsets, in order.

    Args:
        task_bytes: no span is much larger if an index says where to cut.
        min_timestamp_ms: segments whose time index says that all records are older are left out.
        max_records: no span has more offsets; None: any number.
    Raises:
        FileNotFoundError: a segment was removed after it was listed.
    """
    for place, first, end in log.bounds(first_offset, end_offset):
        with OpenSegment(log.fs, place) as segment:
            is_last = place is log.places[-1]
            if min_timestamp_ms is not None and not is_last:
                largest = segment.largest_timestamp()
                if largest is not None and largest < min_timestamp_ms:
                    continue
            about = segment.file.stat()
            size = log.end_position if is_last else about.st_size
            position = segment.position_at(first)
            cuts = [(position, first), *_cuts(log, segment, position, size, task_bytes), (size, end)]
            path = place.path(names.LOG)
            for (at, offset), (following, next_offset) in pairwise(cuts):
                lower, upper = max(first, offset), min(end, next_offset)
                if at < following and lower < upper:
                    span = Span(
                        *(log.topic_partition, log.directory, path, about.st_ino),
                        *(place.base_offset, at, following, lower, upper),
                        topic_id=log.topic_id,
                    )
                    yield from _divided(segment, span, max_records)


def _divided(segment: OpenSegment, span: Span, max_records: int | None) -> Iterator[Span]:
    """Split a span into parts of at most `max_records` offsets; a batch that belongs to two parts is read twice."""
    if max_records is None or span.end_offset == UNKNOWN_END:
        yield span
        return
    for first in range(span.first_offset, span.end_offset, max_records):
        end = min(first + max_records, span.end_offset)
        position = max(span.position, segment.position_at(first))
        yield replace(span, position=position, first_offset=first, end_offset=end)


def _cuts(log: LogSnapshot, segment: OpenSegment, start: int, size: int, task_bytes: int) -> list[tuple[int, int]]:
    """Return positions where batches begin, about `task_bytes` apart, and the batches' base offsets."""
    if size - start < 2 * task_bytes:
        return []
    place: SegmentFiles = segment.place
    try:
        entries = read_offset_index(log.fs, place.path(names.INDEX), size)
    except (FileNotFoundError, CorruptIndexError):
        return []
    positions = entries["position"].astype(np.int64)
    wanted = np.arange(start + task_bytes, size - task_bytes // 2, task_bytes)
    rows = np.unique(np.searchsorted(positions, wanted))
    found = []
    for row in rows[rows < len(positions)].tolist():
        position, largest = int(positions[row]), place.base_offset + int(entries["relative_offset"][row])
        head = segment.file.read(HEAD_BYTES, position)
        offset = base_offset_of(head)
        # An entry that points into the middle of a batch gives no base offset. In magic 0 and 1 the header's offset is
        # a last offset.
        if len(head) == HEAD_BYTES and head[MAGIC_AT] == MAGIC and place.base_offset <= offset <= largest:
            found.append((position, offset))
    return found


def out_of_range(log: LogSnapshot, offset: int) -> OffsetOutOfRangeError:
    """Return the error for an offset that a log does not have."""
    error = OffsetOutOfRangeError(log.directory, offset, log.start_offset, log.end_offset)
    error.args = (f"{error}; failOnDataLoss=false reads the rest",)
    return error
