"""
Finds the bytes of a log that hold a range of offsets: for whoever passes batches on as they are.

An extent lies in one segment. It begins with the batch that holds the wanted offset, or the next one, and is as long as
asked for: it may end within a batch, as an answer of Kafka to a fetch does. It never reaches behind the end offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.errors import CorruptBatchError, LogChangedError
from cleaner.format.headers import HeaderReader
from cleaner.read.held_files import HeldFiles
from cleaner.read.open_segment import OpenSegment
from cleaner.read.partition_files import PartitionFiles, PartitionListing

_FEW_ROWS = 4
_MAX_TRIES = 1000


@dataclass(frozen=True)
class Extent:
    """
    Bytes of an open segment. Close it.

    Attributes:
        segment: open.
        listing: where it was found.
        position, size: in its `.log`.
        bound: above all offsets in these bytes.
    """

    segment: OpenSegment
    listing: PartitionListing
    position: int
    size: int
    bound: int

    @property
    def upper_offset(self) -> int:
        """An offset above all in these bytes, not always by little; looked up in the index."""
        known = self.segment.offset_behind(self.position + self.size)
        return self.bound if known is None else min(known, self.bound)

    def close(self) -> None:
        """Close the segment."""
        self.segment.close()


def find_extent(
    files: PartitionFiles | HeldFiles, first_offset: int, end_offset: int, max_bytes: int, *, whole_batch: bool
) -> Extent | None:
    """
    Return the bytes of the batches from an offset on that begin below another; None if there are none.

    Args:
        max_bytes: the most bytes.
        whole_batch: the first batch is whole, even if it is larger.
    Raises:
        CorruptBatchError: no batch can be found there.
        LogDirOfflineError: the directory is gone, or the disk failed.
    """
    for _ in range(_MAX_TRIES):
        listing = files.listing()
        try:
            return _find(files, listing, first_offset, end_offset, max_bytes, whole_batch)
        except FileNotFoundError:
            continue  # it was swapped
    raise LogChangedError(f"{files.directory}: its segments change faster than they can be opened")


def _find(
    files: PartitionFiles | HeldFiles,
    listing: PartitionListing,
    first_offset: int,
    end_offset: int,
    max_bytes: int,
    whole_batch: bool,
) -> Extent | None:
    bounds = [place.base_offset for place in listing.places[1:]]
    for number in range(max(listing.holder_of(first_offset), 0), len(listing.places)):
        place = listing.places[number]
        if place.base_offset >= end_offset:
            break
        above = bounds[number] if number < len(bounds) else None
        segment = files.open(listing, place)
        try:
            found = _within(segment, listing, first_offset, end_offset, above, max_bytes, whole_batch)
        except BaseException:
            segment.close()
            raise
        if found is not None:
            return found
        segment.close()  # what it held of these offsets was cleaned away
    return None


def _within(
    segment: OpenSegment,
    listing: PartitionListing,
    first_offset: int,
    end_offset: int,
    above: int | None,
    max_bytes: int,
    whole_batch: bool,
) -> Extent | None:
    size = segment.file.size()
    first = _first_batch(segment, size, first_offset)
    if first is None or first[2] >= end_offset:
        return None
    begin, batch_bytes, _ = first
    wanted = max(max_bytes, batch_bytes if whole_batch else 0)
    if above is not None and above <= end_offset:
        stop, upper = min(begin + wanted, size), above
    else:
        stop, upper = _end_of(segment, size, begin, end_offset, begin + wanted), end_offset
    if stop <= begin:
        return None
    return Extent(segment, listing, begin, stop - begin, upper)


def _first_batch(segment: OpenSegment, size: int, offset: int) -> tuple[int, int, int] | None:
    """Return position, size and base offset of the first batch that ends at or above an offset; None without one."""
    for chunk in HeaderReader(segment.file, size=size, start=segment.position_at(offset), max_rows=_FEW_ROWS):
        for row in chunk.batches:
            if row["last_offset"] >= offset:
                return int(row["position"]), int(row["size"]), int(row["base_offset"])
    return None


def _end_of(segment: OpenSegment, size: int, begin: int, end_offset: int, limit: int) -> int:
    """Return the position behind the last batch that begins below an offset, or the limit if that is less."""
    position = max(begin, segment.position_at(end_offset))
    if position >= limit:
        return min(limit, size)
    try:
        for chunk in HeaderReader(segment.file, size=size, start=position, max_rows=_FEW_ROWS):
            for row in chunk.batches:
                if row["base_offset"] >= end_offset or position >= limit:
                    return min(position, limit)
                position = int(row["position"] + row["size"])
    except CorruptBatchError:
        return min(position, limit)  # an append is under way, or damage: what is before it can be read
    return min(position, limit)
