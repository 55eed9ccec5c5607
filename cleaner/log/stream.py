"""Records of a log in offset order as columns, chunk by chunk: the base of all reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from cleaner.errors import CleanerError, OffsetOutOfRangeError
from cleaner.format.chunks import TRANSACTIONAL_FLAG, Chunk, Flags, control_batches
from cleaner.format.layout import lay_out
from cleaner.format.records import Block, Unpacker
from cleaner.log.columns import Columns
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.cursor import LARGEST_CHUNK_BYTES, Cursor
from cleaner.read.open_segment import OpenSegment
from cleaner.read.partition_files import PartitionFiles, PartitionListing
from cleaner.read.view import ReadView

Isolation = Literal["read_uncommitted", "read_committed"]
Until = Literal["high_watermark", "end"]


def reach(view: ReadView, isolation: Isolation, until: Until) -> int:
    """Return the end of what may be read now, exclusive; for committed records the last stable offset."""
    if isolation == "read_committed":
        return view.last_stable_offset
    return view.high_watermark if until == "high_watermark" else view.log_end_offset


class RecordStream:
    """
    A reader's way through the log that is there when it is made.

    Args:
        files: the partition's files.
        view: how far the log reaches.
        offset: where to begin.
        chunk_bytes: the most read at a time, except larger batches.

    Attributes:
        next_offset: first offset not handed out yet.
        bytes_read: of batches, as stored in the log.
        end_offset: how far it reads, as `reach` found out last; lower if the log was cut since.
        block: what the columns handed out last were made of, until the next step.
        position: of that block's `data` in the segment's file.
    """

    def __init__(
        self,
        files: PartitionFiles,
        view: ReadView,
        offset: int,
        isolation: Isolation,
        chunk_bytes: int = LARGEST_CHUNK_BYTES,
    ) -> None:
        self.next_offset = self.end_offset = offset
        self.bytes_read = 0
        self.block: Block | None = None
        self.position = 0
        self._files = files
        self._view = view
        self._isolation = isolation
        self._until: Until = "high_watermark"
        self._owes_all = False  # else the caller answers for what has expired
        self._generation: int | None = None  # before the end was found; None: the caller answers for the end
        self._is_committed = isolation == "read_committed"
        # How far to read is asked after this; the topic may be deleted and made again at any time, and one log's end
        # must not be the limit in another.
        self._cursor = Cursor(files, offset, chunk_bytes, files.listing())
        self._unpacker = Unpacker(files.batch_limit_bytes)
        self._aborted: tuple[PartitionListing, AbortedTransactions] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether it has a file open."""
        return self._cursor.segment is not None

    @property
    def segment(self) -> OpenSegment | None:
        """The open segment: that of the columns handed out last, until the next step."""
        return self._cursor.segment

    def close(self) -> None:
        """Close the open file; the stream can still be used."""
        self._cursor.close()

    def go_back(self, offset: int) -> None:
        """Go on from an offset that was handed out by the last call, or never."""
        self._cursor.go_back(offset)
        self.next_offset = offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the last batch read; -1 before that."""
        return self._cursor.epoch

    def go_on(self, offset: int, epoch: int) -> None:
        """Go on after records that another stream has read, up to an offset and in a leader epoch."""
        self._cursor.go_on(offset, epoch)
        self.next_offset = offset

    def reach(self, until: Until) -> int:
        """Find out how far may be read now, exclusive: `end_offset`."""
        self._until, self._generation, self._owes_all = until, self._files.generation(), True
        self.end_offset = reach(self._view, self._isolation, until)
        return self.end_offset

    def stop_at(self, end_offset: int, generation: int | None) -> None:
        """
        Read up to an offset.

        Args:
            end_offset: all below was complete, and decided.
            generation: the partition's number before that was found out; None: the caller answers for it.
        """
        self.end_offset, self._generation = end_offset, generation

    def next_columns(self) -> Iterator[Columns]:
        """
        Yield the records of the next chunk below `end_offset`, in pieces and maybe none; exhaust it before the next
        call. At the end `next_offset` has not moved, or equals `end_offset`.

        After an error the next call begins with the first record that was not yielded.

        Raises:
            CorruptLogError: damage.
            LogTruncatedError: the log was cut below what was read, or is another one.
            OffsetOutOfRangeError: what was to be read was deleted from the log's start on.
        """
        try:
            yield from self._next_columns()
        except CleanerError:
            # The cursor may be behind the chunk already, and the next call would pass over its records.
            self._cursor.go_back(self.next_offset)
            raise

    def _next_columns(self) -> Iterator[Columns]:
        first_offset = self.next_offset
        while True:
            chunk = self._cursor.next_chunk(self.end_offset)
            if self._is_lowered():
                self._cursor.go_back(first_offset)
                continue
            self._require_unexpired(first_offset, chunk)
            end_offset = self.end_offset
            if chunk is None:
                self.next_offset = max(first_offset, min(self._cursor.next_offset, end_offset))
                return
            hidden = self._hidden(chunk)
            if hidden is not None:
                break
            self._cursor.go_back(first_offset)
        self.bytes_read += chunk.length
        path, after = self._cursor.path, min(self._cursor.next_offset, end_offset)
        rows = chunk.batches
        # A wrapper of magic 0 or 1 is listed by its last offset alone.
        hidden[rows["last_offset"] < first_offset] = 1
        for block in self._unpacker.blocks(path, chunk, unwanted=hidden != 0):
            mine = hidden[block.first : block.first + len(block.batches)]
            layout = lay_out(path, block, mine, first_offset, end_offset)
            if len(layout):
                self.block, self.position = block, chunk.position
                self.next_offset = int(layout.offsets[-1]) + 1
                yield Columns.of(layout, self.next_offset)
        self.next_offset = max(first_offset, after)

    def _require_unexpired(self, first_offset: int, chunk: Chunk | None) -> None:
        """Make sure that what was passed over was cleaned away, and not deleted from the log's start on."""
        if not self._owes_all or (chunk is not None and int(chunk.batches[0]["base_offset"]) <= first_offset):
            return
        start_offset = self._view.log_start_offset
        if first_offset < start_offset:
            end_offset = self._view.log_end_offset
            raise OffsetOutOfRangeError(self._files.directory, first_offset, start_offset, end_offset)

    def _is_lowered(self) -> bool:
        """
        Tell whether the log was cut since its end was found, so that it may end below, with other records; and how far.

        What comes after a cut may be undecided, or not on disk, below an end from before it. A swap changes no end.
        """
        if self._generation is None or self._view.is_closed:
            return False
        generation = self._files.generation()
        if generation == self._generation:
            return False
        self._cursor.look()  # raises if it is another log
        before, self._generation = self.end_offset, generation
        self.end_offset = max(self.next_offset, min(before, reach(self._view, self._isolation, self._until)))
        return self.end_offset < before

    def _hidden(self, chunk: Chunk) -> Flags | None:
        """Return which batches are hidden; None if the files have changed and the chunk must be read again."""
        rows = chunk.batches
        hidden: Flags = control_batches(rows).astype(np.uint8)
        listing, segment = self._cursor.listing, self._cursor.segment
        if not self._is_committed or not chunk.kinds & TRANSACTIONAL_FLAG or listing is None or segment is None:
            return hidden
        if self._aborted is None or self._aborted[0] is not listing:
            self._aborted = (listing, AbortedTransactions(self._files.fs, listing.places, self._view.unlisted_aborts()))
        aborted = self._aborted[1].hidden(rows, listing.holder_of(segment.base_offset))
        # A swap drops from the transaction index what it drops from the log. With the new files' index, aborted records
        # of the old files would be shown.
        if not self._files.is_unchanged(listing):
            return None
        return hidden | aborted
