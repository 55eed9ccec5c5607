"""
Splits a segment whose offsets are too far from its base to be indexed (KAFKA-6264; written by brokers before 2.0).

Whole batches are copied into as many new segments as needed; each gets its first batch's offset as base. They replace
the old one through `.cleaned` and `.swap` like a cleaned segment, the highest first: while any `.cleaned` is left,
recovery drops the `.swap` files at or above it and the old segment stays (R-601, R-630).

Source: rules R-304, R-601, R-612, R-614; `LocalLog.java` (splitOverflowedSegment, replaceSegments).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cleaner.base.segments import MAX_RELATIVE_OFFSET
from cleaner.config.values import TopicConfig
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk, ReadBuffer
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment import names
from cleaner.storage.segment.index_builder import IndexBuilder
from cleaner.storage.segment.indexes import LAST_OFFSET, Aborts, txn_index_bytes
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.swap import discard_cleaned, replace_by_several


@dataclass
class _Part:
    """A new segment being written; `size` is the bytes in its `.log` so far."""

    base_offset: int
    log: File
    builder: IndexBuilder
    size: int = 0


def split_overflowed_segment(fs: FileSystem, segment: Segment, topic: TopicConfig, buffer: ReadBuffer) -> list[int]:
    """
    Split a segment in place.

    The entries of the transaction index go to the segments that hold their markers; Kafka leaves that to a recovery.

    Returns:
        The base offsets of the new segments, ascending.
    Raises:
        CorruptBatchError: damage, or an offset below the segment's base; nothing was changed.
        UncleanableError: an index of a new segment would be full.
    """
    bases: list[int] = []
    try:
        _write_parts(fs, segment, topic, buffer, bases)
        fs.fsync_dir(segment.directory)
    except BaseException:
        for base in bases:
            discard_cleaned(fs, segment.directory, base)
        raise
    replace_by_several(fs, segment.directory, segment.base_offset, bases)
    return bases


def _write_parts(fs: FileSystem, segment: Segment, topic: TopicConfig, buffer: ReadBuffer, bases: list[int]) -> None:
    txns = segment.aborted_txns()
    part: _Part | None = None
    try:
        for chunk in segment.chunks(buffer=buffer):
            begin = 0
            while begin < len(chunk.batches):
                if part is None or _fitting(chunk, begin, part.base_offset) == begin:
                    if part is not None:
                        _finish(fs, segment, part, txns)
                        part.log.close()
                    part = _start(fs, segment, topic, int(chunk.batches["base_offset"][begin]), bases)
                end = _fitting(chunk, begin, part.base_offset)
                if end == begin:
                    position = int(chunk.batches["position"][begin])
                    raise CorruptBatchError(segment.log_path, position, "a batch at which no segment can begin")
                _copy(chunk, begin, end, part)
                begin = end
        if part is not None:
            _finish(fs, segment, part, txns)
    finally:
        if part is not None:
            part.log.close()


def _fitting(chunk: Chunk, begin: int, base_offset: int) -> int:
    """Return the first row from `begin` on whose last offset does not fit a segment with this base."""
    relative = chunk.batches["last_offset"][begin:] - base_offset
    outside = np.flatnonzero((relative < 0) | (relative > MAX_RELATIVE_OFFSET))
    return begin + int(outside[0]) if len(outside) else len(chunk.batches)


def _start(fs: FileSystem, segment: Segment, topic: TopicConfig, base_offset: int, bases: list[int]) -> _Part:
    if base_offset < segment.base_offset or (bases and base_offset <= bases[-1]):
        raise CorruptBatchError(segment.log_path, 0, f"offset {base_offset} is not above the offsets before it")
    bases.append(base_offset)
    discard_cleaned(fs, segment.directory, base_offset)
    path = segment.directory / names.cleaned_file_name(base_offset, names.LOG)
    builder = IndexBuilder(
        path, base_offset, interval_bytes=topic.index_interval_bytes, max_index_bytes=topic.segment_index_bytes
    )
    return _Part(base_offset, fs.create(path, like=segment.log_path), builder)


def _copy(chunk: Chunk, begin: int, end: int, part: _Part) -> None:
    rows = chunk.batches[begin:end]
    first, last = int(rows["start"][0]), int(rows["start"][-1] + rows["size"][-1])
    part.builder.append_checked(rows)
    part.log.write(chunk.data[first:last].data, part.size)
    part.size += last - first


def _finish(fs: FileSystem, segment: Segment, part: _Part, txns: Aborts) -> None:
    """Write a part's indexes, give its files the source's mtime and force them to disk."""
    offsets, times = part.builder.finish()
    next_base = part.base_offset + MAX_RELATIVE_OFFSET
    last_offsets = txns[:, LAST_OFFSET]
    own = txns[(part.base_offset <= last_offsets) & (last_offsets <= next_base)]
    contents = [(names.INDEX, offsets.tobytes()), (names.TIME_INDEX, times.tobytes())]
    if len(own):
        contents.append((names.TXN_INDEX, txn_index_bytes(own)))
    mtime_ns = segment.mtime_ms * 1_000_000
    fs.set_mtime_ns(part.log.path, mtime_ns)
    part.log.fsync()
    for suffix, data in contents:
        path = segment.directory / names.cleaned_file_name(part.base_offset, suffix)
        with fs.create(path, like=segment.log_path) as file:
            file.write(data, 0)
            fs.set_mtime_ns(path, mtime_ns)
            file.fsync()
