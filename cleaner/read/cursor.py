"""
Reads a log chunk by chunk from an offset on, while its files may be swapped, rolled, cut or deleted.

The cursor knows the next offset; file and position are only where that offset was last found. It keeps its segment
open. When names in the directory have changed and its file is gone, it looks the offset up again: in a cleaned segment
the next record may be at a higher offset, never at a lower one. So no record comes twice or out of order.

After the batches read so far, there may be:

    the end of a closed segment    the cursor moves to the next one. It first looks for the next one, then checks once
                                   more that this one has not grown: a writer appends to it before it creates the next
    bytes that are no batch        in the last segment, at or behind the promised end: an append is under way. Elsewhere
                                   the offset is looked up again; if the bytes are the same, it is damage
    nothing                        the end, for now

A writer cuts its log in the file that is open here, or deletes that file. So the cursor reads the last batch's header
again before it reads on behind it. Before it opens another file, it checks that the batch's leader epoch has not ended
below that batch: a cut begins a new epoch. A topic that was deleted and created again has another id in its directory;
its log is not continued.
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
    """Return a batch's position in its file and its header; no other batch has the same checksum, offset, producer."""
    batch = chunk.batches[row]
    start = int(batch["start"])
    head = chunk.data[start : start + min(HEADER_BYTES, int(batch["size"]))]
    return int(batch["position"]), head.tobytes()


class LogFiles(Protocol):
    """Where a cursor finds segments: `PartitionFiles`, or segments that are held open."""

    directory: Path

    def listing(self) -> PartitionListing:
        """Return the current segments."""

    def is_current(self, listing: PartitionListing) -> bool:
        """Tell whether nothing has changed since."""

    def open(self, listing: PartitionListing, place: SegmentFiles) -> OpenSegment:
        """Open a segment of a listing. Raises FileNotFoundError: it has gone, or was renamed, or its directory was."""

    def end_of_epoch(self, epoch: int) -> int | None:
        """Return where the leader epoch behind this one begins; None for the latest."""


class Cursor:
    """
    Args:
        files: the partition's.
        offset: the first wanted one.
        chunk_bytes: the most bytes to read at a time, except for larger batches; the first chunks are smaller.
        log: a listing of the log to read; None: the one that is there at the first look.
        reuses: each chunk is valid only until the next, which takes its memory.

    Attributes:
        next_offset: first offset not yet read.
        segment: the one the cursor is in; None before the first chunk and behind the last segment.
        listing: the listing that `segment` is from.
    """

    def __init__(
        self,
        files: LogFiles,
        offset: int,
        chunk_bytes: int = LARGEST_CHUNK_BYTES,
        log: PartitionListing | None = None,
        *,
        reuses: bool = False,
    ) -> None:
        self.next_offset = offset
        self.segment: OpenSegment | None = None
        self.listing: PartitionListing | None = None
        self._files = files
        self._first_listing = log
        self._reuses = reuses
        self._max_bytes = max(chunk_bytes, _MIN_BYTES)
        self._chunk_bytes = min(SMALLEST_CHUNK_BYTES, self._max_bytes)
        self._buffer = ReadBuffer(self._chunk_bytes)
        self._path = files.directory
        self._position = 0
        self._order_from = self._read_up_to = 0
        self._last_batch: tuple[int, bytes] | None = None
        self._failures = 0
        self._epoch = -1

    @property
    def path(self) -> Path:
        """The `.log` of the chunk read last."""
        return self._path

    @property
    def last_batch(self) -> tuple[int, bytes] | None:
        """Identity of the last batch read in this segment, see `identity_of`; None if none was read."""
        return self._last_batch

    def go_back(self, offset: int) -> None:
        """Look up an offset again, and read on from there."""
        self.close()
        self.next_offset = offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the batch read last; -1 before the first, and for magic 0 and 1."""
        return self._epoch

    def go_on(self, offset: int, epoch: int) -> None:
        """Read on from an offset up to which records came from elsewhere, the last of them in a leader epoch."""
        self.go_back(offset)
        self._epoch, self._read_up_to = epoch, offset

    def look(self) -> PartitionListing:
        """
        Return the current segments; the first look determines which log this cursor reads.

        Raises:
            LogTruncatedError: that log was deleted, and another one created under its name.
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
        """Close the file; the cursor can still be used."""
        if self.segment is not None:
            self.segment.close()
            self.segment = None
        self._last_batch = None

    def next_chunk(self, end_offset: int) -> Chunk | None:
        """
        Read the next batches that begin below an offset; None at the end.

        The chunk has its own memory, unless the cursor reuses it. Its first batch may hold records below the
        `next_offset` before this call.

        Args:
            end_offset: the log is complete below it.
        Raises:
            CorruptBatchError: damage.
            LogTruncatedError: the log was cut below the last batch read, or is another one.
            LogDirOfflineError: the disk failed.
        """
        while self.next_offset < end_offset:
            if not self._find():
                return None
            try:
                chunk = self._read(end_offset)
            except CorruptBatchError:
                # Perhaps the file was cut and grew again, or the index is wrong: try once more, from its beginning.
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
        """Make sure that the segment of the next offset is open; False if there is none."""
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
        self.segment = segment = self._files.open(listing, place)
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
            wanted = min(self._chunk_bytes, size - self._position)
            # New memory, unless the last chunk's was only lent to its owner.
            if not (self._reuses and wanted <= self._buffer.capacity <= self._max_bytes):
                self._buffer.grow(wanted)
            self._chunk_bytes = min(4 * self._chunk_bytes, self._max_bytes)
            chunk = SegmentReader(
                segment.file, size=size, start=self._position, buffer=self._buffer, check_order_from=self._order_from
            ).next_chunk(self._buffer)
            if chunk is None:
                return None
            rows = chunk.batches
            wanted = int((rows["base_offset"] < end_offset).sum())
            if not wanted:
                # The log is complete below the end, so the records of these offsets were cleaned away.
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
        """Go on to the next segment; False if this is the last one, and it has not grown."""
        segment = self.segment
        if not self._find():
            return False
        if self.segment is not segment:
            return True  # another file holds the next offset now
        assert segment is not None and self.listing is not None  # noqa: S101 - `_find` has seen to it
        following = self.listing.after(segment.base_offset)
        if following is None:
            return False
        # Checked after the listing: nothing is appended here once the next segment exists.
        if self._position >= segment.file.size():
            self.next_offset = max(self.next_offset, following.base_offset)
            self.close()
        return True
