"""
The marks that a stream keeps with its offsets, to detect that a log has changed: a micro-batch that is tried again,
maybe days later, has the same rows, or the stream says why not.

A log that was truncated and rewritten has other records at the same offsets: the batch below the offset shows it. A
cleaner may have removed records: its checkpoint shows it, or the batch that it rebuilt.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError, LogChangedError
from cleaner.format.chunks import HEADER_BYTES
from cleaner.read.open_segment import OpenSegment
from cleaner.read.snapshot import LogSnapshot, LogSnapshots
from cleaner.storage.segment.batch_source import batch_headers

_MODERN = 2
# The fields that a cleaner keeps when it rebuilds a batch.
_KEPT = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")

NO_BATCH = -1
"""There is no batch below the offset: nothing was written yet, or it was cleaned away."""


class StreamMark(NamedTuple):
    """
    The state of a log when a stream planned to read up to an offset.

    Attributes:
        origin: identifies the batch that holds the offset below, also after a cleaner rebuilt it; or `NO_BATCH`.
        content: identifies this batch as it is now; or `NO_BATCH`.
        clean_end: the offset up to which the log was cleaned.
    """

    origin: int
    content: int
    clean_end: int


Marks = dict[TopicPartition, StreamMark]


def mark_of(taker: LogSnapshots, log: LogSnapshot, offset: int) -> StreamMark:
    """
    Return the mark of a log at an offset.

    Raises:
        FileNotFoundError: a segment was removed after it was listed.
        CorruptCheckpointError: the cleaner's checkpoint is damaged.
    """
    for place, last, _ in log.bounds(offset - 1, offset):
        with OpenSegment(log.fs, place) as segment:
            size = log.end_position if place is log.places[-1] else segment.file.size()
            return StreamMark(*_batch_with(segment, last, size), taker.clean_end(log))
    return StreamMark(NO_BATCH, NO_BATCH, taker.clean_end(log))


def change(before: StreamMark, now: StreamMark, begin: int) -> str | None:
    """
    Return why some records between an offset and a marked one may be missing now; None if all are the same.

    Raises:
        LogChangedError: they are different records.
    """
    is_there = NO_BATCH not in (before.origin, now.origin)
    if is_there and before.origin != now.origin:
        raise LogChangedError("it was truncated and rewritten")
    if now.clean_end > max(begin, before.clean_end):
        return f"it was cleaned up to offset {now.clean_end}"
    # A cleaning round may be under way; it writes its checkpoint last.
    return "it was cleaned, or truncated and rewritten" if is_there and before.content != now.content else None


def _batch_with(segment: OpenSegment, offset: int, size: int) -> tuple[int, int]:
    """Return origin and content of the batch that holds an offset."""
    try:
        for chunk in batch_headers(segment.file, size=size, start=segment.position_at(offset)):
            rows = chunk.batches[chunk.batches["last_offset"] >= offset]
            if not len(rows):
                continue
            row = rows[0]
            if row["magic"] == _MODERN and row["base_offset"] > offset:
                break
            kept = ",".join(str(row[name]) for name in _KEPT)
            head = segment.file.read(HEADER_BYTES, int(row["position"]))
            return zlib.crc32(kept.encode()), zlib.crc32(head)
    except CorruptBatchError:
        pass  # the reader reports the damage
    return NO_BATCH, NO_BATCH
