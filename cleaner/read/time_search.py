"""Finds an offset by time (R-314), as `LogSegment.findOffsetByTimestamp` and `FileRecords.searchForTimestamp` do."""

from __future__ import annotations

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.headers import HeaderReader
from cleaner.format.layout import lay_out
from cleaner.format.records import Unpacker
from cleaner.read.cursor import SMALLEST_CHUNK_BYTES, Cursor
from cleaner.read.open_segment import SegmentFiles
from cleaner.read.partition_files import PartitionFiles, PartitionListing


def find_by_time(
    files: PartitionFiles, log: PartitionListing, first_offset: int, end_offset: int, timestamp_ms: int
) -> int | None:
    """Return the offset of the record that `find_record_by_time` finds; None if there is none."""
    found = find_record_by_time(files, log, first_offset, end_offset, timestamp_ms)
    return None if found is None else found[0]


def find_record_by_time(
    files: PartitionFiles, log: PartitionListing, first_offset: int, end_offset: int, timestamp_ms: int
) -> tuple[int, int] | None:
    """
    Return offset and timestamp (ms) of the first record in [first, end) with at least this timestamp; None without one.

    Segments in which every record is older by the time index are skipped, and so is the older part of the next segment.
    Transaction markers count, as in Kafka.

    Args:
        log: the listing of the log that has these offsets.
    Raises:
        LogTruncatedError: that log was deleted, and another one created under its name.
    """
    start = max(first_offset, _first_candidate(files, timestamp_ms))
    cursor, unpacker = Cursor(files, start, SMALLEST_CHUNK_BYTES, log), Unpacker(files.batch_limit_bytes)
    try:
        while (chunk := cursor.next_chunk(end_offset)) is not None:
            rows = chunk.batches
            too_old = (rows["max_timestamp"] < timestamp_ms) | (rows["last_offset"] < start)
            if too_old.all():
                continue
            for block in unpacker.blocks(cursor.path, chunk, unwanted=too_old):
                mine = too_old[block.first : block.first + len(block.batches)].astype(np.uint8)
                layout = lay_out(cursor.path, block, mine, start, end_offset)
                found = np.flatnonzero(layout.timestamps_ms >= timestamp_ms)
                if len(found):
                    return int(layout.offsets[found[0]]), int(layout.timestamps_ms[found[0]])
    finally:
        cursor.close()
    return None


def largest_timestamp(files: PartitionFiles) -> int:
    """
    Return the largest timestamp (ms) of a log, by its time indexes where it has them; -1 without records.

    Raises:
        CorruptBatchError: damage, other than at the log's end.
    """
    while True:
        listing = files.listing()
        try:
            return max((_largest_of(files, listing, place) for place in listing.places), default=-1)
        except FileNotFoundError:
            continue  # it was swapped


def _largest_of(files: PartitionFiles, listing: PartitionListing, place: SegmentFiles) -> int:
    largest, is_last = -1, place is listing.places[-1]
    with files.open(listing, place) as segment:
        # The index of an active segment may not have the last entries yet.
        closed = None if is_last else segment.largest_timestamp()
        if closed is not None:
            return closed
        try:
            for chunk in HeaderReader(segment.file, size=segment.file.size()):
                largest = max(largest, int(chunk.batches["max_timestamp"].max()))
        except CorruptBatchError:
            if not is_last:
                raise
    return largest


def _first_candidate(files: PartitionFiles, timestamp_ms: int) -> int:
    """Return an offset below which all records are older."""
    while True:
        listing = files.listing()
        try:
            found = _search_indexes(files, listing, timestamp_ms)
        except FileNotFoundError:
            continue  # it was swapped
        if files.is_unchanged(listing):
            return found


def _search_indexes(files: PartitionFiles, listing: PartitionListing, timestamp_ms: int) -> int:
    for place in listing.places[:-1]:
        with files.open(listing, place) as segment:
            largest = segment.largest_timestamp()
            if largest is None or largest >= timestamp_ms:
                return segment.offset_before(timestamp_ms)
    if not listing.places:
        return 0
    with files.open(listing, listing.places[-1]) as segment:
        return segment.offset_before(timestamp_ms)
