"""
Reads a cleaned segment back before it replaces its sources (rule C-6).

This detects a bad disk, a bad codec or a wrong kernel while the old data still exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from cleaner.cleaning.passes.damage import NO_DAMAGE, KnownDamage
from cleaner.cleaning.passes.pipeline import OrderedPipeline
from cleaner.cleaning.recopy.cleaned_segment import add_offsets
from cleaner.cleaning.recopy.segment_keys import BatchFacts
from cleaner.errors import CorruptBatchError, CorruptIndexError
from cleaner.format.chunks import Chunk
from cleaner.format.parallel_reader import ParallelSegmentReader, Window, WindowBuffer, verify_checksums
from cleaner.kernels.scan_status import KIND_LEGACY
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.index_builder import IndexBuilder


class Written(Protocol):
    """A written segment's figures; see `CleanedSegment`."""

    @property
    def path(self) -> Path:
        """The `.log.cleaned` file."""

    @property
    def base_offset(self) -> int:
        """Base offset of the segment."""

    @property
    def size(self) -> int:
        """Bytes written."""

    @property
    def batch_count(self) -> int:
        """Batches written."""

    @property
    def offset_sum(self) -> int:
        """The sum of their last offsets."""


class _Readback:
    """The figures read back so far."""

    def __init__(
        self, segment: Written, reader: ParallelSegmentReader, indexes: IndexBuilder, facts: BatchFacts | None
    ) -> None:
        self.segment = segment
        self.facts = facts
        self.reader = reader
        self.indexes = indexes
        self.bytes = self.batches = self.messages = self.offset_sum = 0
        self.has_legacy = False  # of batches of magic 0 and 1 the header does not say how many records they have

    def add(self, chunk: Chunk) -> None:
        """Count a chunk with good checksums. Raises the error after it."""
        self.indexes.append(chunk.batches)
        if self.facts is not None:
            self.facts.add(chunk.batches)
        self.bytes += chunk.length
        self.batches += len(chunk.batches)
        self.messages += int(chunk.batches["count"].sum())
        self.has_legacy |= bool(chunk.kinds & KIND_LEGACY)
        self.offset_sum = add_offsets(self.offset_sum, chunk.batches)
        if chunk.failure is not None:
            raise chunk.failure


class _Lane:
    """The steps of reading one chunk back."""

    _window: Window
    _chunk: Chunk

    def __init__(self, readback: _Readback, buffer: WindowBuffer, damage: KnownDamage) -> None:
        self._readback = readback
        self._damage = damage
        self._buffer = buffer

    def take(self) -> bool:
        window = self._readback.reader.claim()
        if window is None:
            return False
        self._window = window
        return True

    def fill(self) -> None:
        self._readback.reader.fill(self._window, self._buffer)

    def arrange(self) -> None:
        self._chunk = self._readback.reader.arrange(self._window, self._buffer)

    def work(self) -> int:
        self._chunk = verify_checksums(self._readback.segment.path, self._chunk, self._was_damaged_in_source)
        return 0

    def _was_damaged_in_source(self, row: np.void) -> bool:
        """Tell whether the source had exactly these bytes, including the wrong checksum."""
        start = int(row["start"])
        return self._damage.has(int(row["base_offset"]), self._chunk.data.data[start : start + int(row["size"])])

    def commit(self) -> None:
        self._readback.add(self._chunk)

    def finish(self) -> None:
        """Do nothing: `commit` has counted everything."""


def verify_cleaned(
    fs: FileSystem,
    segment: Written,
    messages: int,
    *,
    interval_bytes: int,
    max_index_bytes: int,
    buffers: Sequence[WindowBuffer],
    leaves_cache: bool = True,
    damage: KnownDamage = NO_DAMAGE,
    facts: BatchFacts | None = None,
) -> None:
    """
    Check checksums, order, counts and indexes of a group's output files.

    Args:
        segment: finished.
        messages: records that were kept.
        interval_bytes, max_index_bytes: as in writing it; recovery rebuilds the same entries (R-323).
        buffers: as many as `lanes_for` returns.
        damage: batches that may be damaged, if their bytes are unchanged.
        leaves_cache: False drops the segment from the page cache: its sources were not there either.
        facts: gets the batches; None: they are not needed.
    Raises:
        CorruptBatchError, CorruptIndexError: the files on disk differ from what was written.
    """
    indexes = IndexBuilder(
        segment.path, segment.base_offset, interval_bytes=interval_bytes, max_index_bytes=max_index_bytes
    )
    with fs.open(segment.path) as file:
        reader = ParallelSegmentReader(
            file,
            size=file.size(),
            start=0,
            window_bytes=buffers[0].window_bytes,
            check_order_from=segment.base_offset,
        )
        found = _Readback(segment, reader, indexes, facts)
        OrderedPipeline([_Lane(found, buffer, damage) for buffer in buffers], "cleaner-verify").run()
        if not leaves_cache:
            file.drop_cache(0, 0)
    indexes.close()
    if found.has_legacy:
        found.messages = messages
    if (found.bytes, found.batches, found.messages) != (segment.size, segment.batch_count, messages):
        written = f"{segment.size} bytes, {segment.batch_count} batches and {messages} records were written"
        reason = f"{written}, {found.bytes}, {found.batches} and {found.messages} read back"
        raise CorruptBatchError(segment.path, found.bytes, reason)
    if found.offset_sum != segment.offset_sum:
        raise CorruptBatchError(segment.path, found.bytes, "the offsets read back differ from those written")
    for extension, content in (("index", indexes.offset_index), ("timeindex", indexes.time_index)):
        path = segment.path.with_name(segment.path.name.replace(".log.", f".{extension}."))
        if fs.read_bytes(path) != content:
            raise CorruptIndexError(path, 0, "what was read back does not fit the log it was written for")
