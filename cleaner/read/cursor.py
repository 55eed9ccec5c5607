"""
A place in a log that moves on through it, chunk by chunk, whatever happens to the files meanwhile.

The cursor knows the next offset; file and position are only where that was last found. It has the segment open that it
is in, and looks the offset up anew when names in the directory have changed and its file is not there any more: in a
cleaned segment the next record may be at a higher offset, never at a lower one. So nothing comes twice or out of order.

Three things may be met at the end of what was read:

    the end of a closed segment    on to the next one. First whether there is one, then, once more, whether this one
                                   has grown: who appends to it does so before the next one is there
    a batch that makes no sense    in the last segment, at or behind what was promised: an append under way. Anywhere
                                   else the offset is looked up again, and if it is still there it is damage
    nothing                        the end, for now

A writer that cuts its log does so in the file that is open here, or deletes it. The batch read last is looked at again
before what stands behind it is taken for its continuation; and before another file is, whether its leader epoch has
ended below it since: a cut begins one. A topic that was deleted and created anew has another id in its directory, and
its log is not gone on with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from cleaner.errors import CorruptBatchError, LogChangedError, LogTruncatedError
from cleaner.format.batch import SegmentReader
from cleaner.format.chunks import HEADER_BYTES, Chunk, ReadBuffer
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import PartitionListing

SMALLEST_CHUNK_BYTES = 64 << 10
LARGEST_CHUNK_BYTES = 1 << 20
_MIN_BYTES = 128  # a header, so that a batch's size is seen
_MAX_TRIES = 1000


def identity_of(chunk: Chunk, row: int) -> tuple[int, bytes]:
    """Return where a batch is in its file, and its header: no other there has its checksum, offset, producer."""
    batch = chunk.batches[row]
    start = int(batch["start"])
    head = chunk.data[start : start + min(HEADER_BYTES, int(batch["size"]))]
    return int(batch["position"]), head.tobytes()


class LogFiles(Protocol):
    """Where a cursor finds segments: `PartitionFiles`, or some that are held open."""

    directory: Path

    def listing(self) -> PartitionListing:
        """Return the segments as they are now."""

    def is_current(self, listing: PartitionListing) -> bool:
        """Tell whether nothing has changed since."""

    def open(self, place: SegmentFiles) -> OpenSegment:
        """Open a segment. Raises FileNotFoundError: it has gone, or was renamed."""

    def end_of_epoch(self, epoch: int) -> int | None:
        """Return where the leader epoch behind this one begins; None for the latest."""


class Cursor:
    """
    Args:
        files: the partition's.
        offset: the first that is wanted.
        chunk_bytes: the most that is read at a time, but for larger batches; the first chunks are smaller.

    Attributes:
        next_offset: first offset not read yet.
        segment: the one the cursor is in; None before the first chunk and behind the last segment.
        listing: the one `segment` was found in.
    """

    def __init__(self, files: LogFiles, offset: int, chunk_bytes: int = LARGEST_CHUNK_BYTES) -> None:
        self.next_offset = offset
        self.segment: OpenSegment | None = None
        self.listing: PartitionListing | None = None
        self._files = files
        self._first_listing: PartitionListing | None = None
        self._max_bytes = max(chunk_bytes, _MIN_BYTES)
        self._chunk_bytes = min(SMALLEST_CHUNK_BYTES, self._max_bytes)
        self._buffer = ReadBuffer(self._chunk_bytes)
        self._path = files.directory
        self._position = 0
        self._order_from = self._read_up_to = 0
        self._last_batch: tuple[int, bytes] | None = None
        self._failures = 0
        # Of the batch read last; -1 before the first, and for magic 0 and 1.
        self._epoch = -1

    @property
    def path(self) -> Path:
        """The `.log` of the chunk read last."""
        return self._path

    @property
    def last_batch(self) -> tuple[int, bytes] | None:
        """What the last batch read in this segment is known by; None without one."""
        return self._last_batch

    def go_back(self, offset: int) -> None:
        """Look an offset up anew, and read on from there."""
        self.close()
        self.next_offset = offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the batch read last; -1 before the first, and for magic 0 and 1."""
        return self._epoch

    def go_on(self, offset: int, epoch: int) -> None:
        """Read on behind what somebody else has read for this cursor, up to an offset and in a leader epoch."""
        self.go_back(offset)
        self._epoch, self._read_up_to = epoch, offset

    def look(self) -> PartitionListing:
        """
        Return the segments as they are now; the first look says which log the offset is of.

        Raises:
            LogTruncatedError: that log was deleted, and another created under its name.
            LogDirOfflineError: the directory is gone, or the disk failed.
        """
        listing = self._files.listing()
        if self._first_listing is None:
            self._first_listing = listing
        elif not listing.is_of_same_log(self._first_listing):
            self.close()
            raise LogTruncatedError(self._files.directory, self.next_offset, is_another=True)
        return listing

    def close(self) -> None:
        """Close the file; the cursor can be used on."""
        if self.segment is not None:
            self.segment.close()
            self.segment = None
        self._last_batch = None

    def next_chunk(self, end_offset: int) -> Chunk | None:
        """
        Read the next batches that begin below an offset; None at the end.

        The chunk has memory of its own. Its first batch may hold records below `next_offset` as it was before.

        Args:
            end_offset: all below it is in the log, whole.
        Raises:
            CorruptBatchError: damage.
            LogTruncatedError: the log was cut below what was read, or is another one.
            LogDirOfflineError: the disk failed.
        """
        while self.next_offset < end_offset:
            if not self._find():
                return None
            try:
                chunk = self._read(end_offset)
            except CorruptBatchError:
                # Perhaps the file was cut and grew again, or the index led astray: once more, from its beginning.
                self._failures += 1
                if self._failures > 2:
                    raise
                self.close()
                continue
            if chunk is not None:
                self._failures = 0
                return chunk
            if not self._move_on():
                return None
        return None

    def _find(self) -> bool:
        """See to it that the segment of the next offset is open; False when there is none."""
        for _ in range(_MAX_TRIES):
            if self.segment is not None and self.listing is not None and self._files.is_current(self.listing):
                self._require_uncut()
                return True
            listing = self.look()
            number = listing.holder_of(self.next_offset)
            if number < 0:
                self.close()
                return False
            place = listing.places[number]
            if self.segment is not None and self.segment.base_offset == place.base_offset and self.segment.is_at(place):
                self.listing = listing
                self._require_uncut()
                return True
            try:
                self._open(listing, place)
            except FileNotFoundError:
                continue  # renamed since
            return True
        raise LogChangedError(f"{self._files.directory}: its segments change faster than they can be opened")

    def _open(self, listing: PartitionListing, place: SegmentFiles) -> None:
        self.close()
        self.segment = segment = self._files.open(place)
        self.listing = listing
        self._path = segment.file.path
        end = self._files.end_of_epoch(self._epoch) if self._epoch >= 0 else None
        if end is not None and end < self._read_up_to:
            self.close()
            raise LogTruncatedError(self._files.directory, self._read_up_to)
        self._position = 0 if self._failures > 1 else segment.position_at(self.next_offset)
        self._order_from = segment.base_offset

    def _require_uncut(self) -> None:
        if self._last_batch is None or self.segment is None:
            return
        position, head = self._last_batch
        if self.segment.file.read(len(head), position) != head:
            self.close()
            raise LogTruncatedError(self._files.directory, self.next_offset)

    def _read(self, end_offset: int) -> Chunk | None:
        """Read on in the open segment; None at its end."""
        segment = self.segment
        assert segment is not None  # noqa: S101 - `_find` has seen to it
        size = segment.file.size()
        while self._position < size:
            # New memory: the last chunk's belongs to its owner.
            self._buffer.grow(min(self._chunk_bytes, size - self._position))
            self._chunk_bytes = min(4 * self._chunk_bytes, self._max_bytes)
            chunk = SegmentReader(
                segment.file, size=size, start=self._position, buffer=self._buffer, check_order_from=self._order_from
            ).next_chunk(self._buffer)
            if chunk is None:
                return None
            rows = chunk.batches
            wanted = int((rows["base_offset"] < end_offset).sum())
            if not wanted:
                # All below the end is there, so the offsets up to here are those of records that were cleaned away.
                self.next_offset = end_offset
                return None
            last = rows[wanted - 1]
            self._position = int(last["position"] + last["size"])
            self._order_from = int(last["last_offset"]) + 1
            self._last_batch = identity_of(chunk, wanted - 1)
            self._epoch, self._read_up_to = int(last["leader_epoch"]), self._order_from
            if self._order_from > self.next_offset:
                self.next_offset = self._order_from
                return Chunk(chunk.data, self._position - chunk.position, chunk.position, rows[:wanted], chunk.kinds)
        return None

    def _move_on(self) -> bool:
        """Go on behind what was read to the end; False when this is the last segment, and has not grown."""
        segment = self.segment
        if not self._find():
            return False
        if self.segment is not segment:
            return True  # another file holds the next offset now
        assert segment is not None and self.listing is not None  # noqa: S101 - `_find` has seen to it
        following = self.listing.after(segment.base_offset)
        if following is None:
            return False
        # Looked at behind the listing: nothing was appended here since the next segment began.
        if self._position >= segment.file.size():
            self.next_offset = max(self.next_offset, following.base_offset)
            self.close()
        return True
