"""
Reading a cleaned segment back before it takes the place of its sources (rule R9).

A bad disk, a bad codec or a wrong kernel is caught while the old data is still there.
"""

from __future__ import annotations

from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.batch import ReadBuffer, SegmentReader
from cleaner.recopy.cleaned_segment import CleanedSegment, SegmentIndexes, add_offsets
from cleaner.storage.fs import FileSystem


def verify_cleaned(
    fs: FileSystem,
    segment: CleanedSegment,
    messages: int,
    *,
    interval_bytes: int,
    max_index_bytes: int,
    buffer: ReadBuffer,
) -> None:
    """
    Check checksums, order, counts and indexes of the files a group was written to.

    Args:
        segment: finished.
        messages: records that were kept.
        interval_bytes, max_index_bytes: as it was written with; recovery rebuilds the same entries (R-323).
    Raises:
        CorruptBatchError, CorruptIndexError: what is on disk is not what was written.
    """
    indexes = SegmentIndexes(segment.path, segment.base_offset, interval_bytes, max_index_bytes)
    batches = records = read = offset_sum = 0
    with fs.open(segment.path) as file:
        for chunk in SegmentReader(file, size=file.size(), buffer=buffer, check_order_from=segment.base_offset):
            indexes.append(chunk.batches)
            batches += len(chunk.batches)
            records += int(chunk.batches["count"].sum())
            read += chunk.length
            offset_sum = add_offsets(offset_sum, chunk.batches)
    indexes.close()
    if (read, batches, records) != (segment.size, segment.batch_count, messages):
        written = f"{segment.size} bytes, {segment.batch_count} batches and {messages} records were written"
        reason = f"{written}, {read}, {batches} and {records} read back"
        raise CorruptBatchError(segment.path, read, reason)
    if offset_sum != segment.offset_sum:
        raise CorruptBatchError(segment.path, read, "the offsets read back are not those that were written")
    for extension, content in (("index", indexes.offset_index), ("timeindex", indexes.time_index)):
        path = segment.path.with_name(segment.path.name.replace(".log.", f".{extension}."))
        if fs.read_bytes(path) != content:
            raise CorruptIndexError(path, 0, "what was read back does not fit the log it was written for")
