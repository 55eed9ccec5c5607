"""
The chunks of some segments, read by several lanes; both passes of a round use it.

The steps are those of `pipeline.py`. A segment's file is open from the claim of its first window until the release of
its last; its offset index is compared with the batches once their checksums are verified. Pages that were not in the
page cache before are dropped: a round over an archive does not push everything else out of memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.base import concurrency
from cleaner.cleaning.passes.damage import NO_DAMAGE, KnownDamage, Longs
from cleaner.cleaning.passes.index_follower import IndexFollower
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import Chunk
from cleaner.format.parallel_reader import ParallelSegmentReader, Window, WindowBuffer, verify_checksums
from cleaner.storage.fs.file_system import File
from cleaner.storage.segment.segment import Segment


class _Source:
    """One segment while its chunks are being processed."""

    def __init__(
        self,
        number: int,
        segment: Segment,
        start: int,
        window_bytes: int,
        known_damage: Longs,
        *,
        checks_last_entry: bool,
    ) -> None:
        self.number = number
        self.known_damage = known_damage
        self.segment = segment
        self.path = segment.log_path
        # A read that starts in mid-segment cannot follow the index from its first entry.
        self.index_check = None if start else _follower(segment, checks_last_entry=checks_last_entry)
        self.file: File = segment.open_log()
        self.is_cold = not self.file.is_cached(start)
        if self.is_cold:
            self.file.expect_sequential_reads()
        self.reader = ParallelSegmentReader(
            self.file,
            size=segment.size,
            start=start,
            window_bytes=window_bytes,
            check_order_from=segment.base_offset,
        )
        self.has_ended = False
        self._lock = concurrency.Lock()
        # Guarded by _lock: windows claimed and not released, plus one for future claims.
        self._holders = 1

    def hold(self) -> None:
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self.file.close()


def _follower(segment: Segment, *, checks_last_entry: bool) -> IndexFollower:
    entries = segment.offset_index()
    return IndexFollower(entries if checks_last_entry else entries[:-1], segment.index_path, segment.base_offset)


@dataclass(frozen=True)
class Claim:
    """A window of a segment."""

    source: _Source
    window: Window

    @property
    def number(self) -> int:
        """Number of the segment, as given."""
        return self.source.number

    @property
    def segment(self) -> Segment:
        """The segment."""
        return self.source.segment

    @property
    def path(self) -> Path:
        """Path of its `.log`."""
        return self.source.path


@dataclass(frozen=True)
class ArrangedChunk:
    """
    A chunk whose batches are listed; its checksums are not verified yet.

    Attributes:
        ends_segment: it is the last chunk of the segment.
    """

    claim: Claim
    chunk: Chunk
    ends_segment: bool


def any_size() -> int:
    """Set no limit to the size of a window."""
    return sys.maxsize


class SegmentChunks:
    """
    Gives out the chunks of some segments.

    Args:
        segments: number, segment and start position, in order; iterated lazily.
        window_bytes: the largest size of a window.
        most_bytes: asked at each segment for the size that its windows may have; a low speed limit needs small ones.
        drops_behind: drop released windows from the page cache, for segments that were not there before.
        damage: batches that may be damaged.
        unread_indexes: base offsets of the segments whose last index entry is not checked (R-538).

    Attributes:
        found_cold: whether a segment so far was not in the page cache.
    """

    def __init__(
        self,
        segments: Iterable[tuple[int, Segment, int]],
        window_bytes: int,
        *,
        most_bytes: Callable[[], int] = any_size,
        drops_behind: bool = False,
        damage: KnownDamage = NO_DAMAGE,
        unread_indexes: Set[int] = frozenset(),
    ) -> None:
        self.found_cold = False
        self._unread_indexes = unread_indexes
        self._drops_behind = drops_behind
        self._damage = damage
        self._segments = iter(segments)
        self._window_bytes = window_bytes
        self._most_bytes = most_bytes
        self._source: _Source | None = None
        self._opened: list[_Source] = []

    def claim(self) -> Claim | None:
        """
        Claim the next window; None if there is none. Must not be called by two lanes at once.

        Raises:
            CorruptIndexError: an offset index is damaged.
        """
        while True:
            if self._source is not None:
                window = self._source.reader.claim()
                if window is not None:
                    self._source.hold()
                    return Claim(self._source, window)
                self._source.release()
                self._source = None
            following = next(self._segments, None)
            if following is None:
                return None
            number, segment, start = following
            if segment.size:
                known_damage = self._damage.positions(segment.base_offset)
                window_bytes = min(self._window_bytes, self._most_bytes())
                self._source = _Source(
                    number,
                    segment,
                    start,
                    window_bytes,
                    known_damage,
                    checks_last_entry=segment.base_offset not in self._unread_indexes,
                )
                self.found_cold |= self._source.is_cold
                self._opened = [source for source in self._opened if not source.file.is_closed]
                self._opened.append(self._source)

    @staticmethod
    def fill(claim: Claim, buffer: WindowBuffer) -> None:
        """Read a claimed window."""
        claim.source.reader.fill(claim.window, buffer)

    @staticmethod
    def arrange(claim: Claim, buffer: WindowBuffer) -> ArrangedChunk:
        """List the batches of a filled window; call in the order of the claims."""
        source = claim.source
        chunk = source.reader.arrange(claim.window, buffer)
        ends_segment = source.reader.is_arranged and not source.has_ended
        source.has_ended |= ends_segment
        return ArrangedChunk(claim, chunk, ends_segment)

    @staticmethod
    def abandon(claim: Claim) -> None:
        """Give up a segment whose window could not be filled; call instead of `arrange`."""
        claim.source.reader.abandon()

    @staticmethod
    def verify(arranged: ArrangedChunk) -> Chunk:
        """Verify a chunk's checksums; returns the chunk, or its good part with a `failure`."""
        known_damage = arranged.claim.source.known_damage
        if not len(known_damage):
            return verify_checksums(arranged.claim.path, arranged.chunk)
        return verify_checksums(arranged.claim.path, arranged.chunk, lambda row: bool(row["position"] in known_damage))

    @staticmethod
    def first_damage(arranged: ArrangedChunk, error: CorruptBatchError) -> CorruptBatchError:
        """Return the error of `arrange` or this checksum error, whichever is first in the file."""
        failure = SegmentChunks.verify(arranged).failure
        return error if failure is None or failure.position > error.position else failure

    @staticmethod
    def overlap(arranged: ArrangedChunk, end_offset: int) -> CorruptBatchError | None:
        """
        Return the error of a chunk with a batch that reaches into the next segment, or None.

        Args:
            arranged: the chunk.
            end_offset: base offset of the next segment.
        """
        rows = arranged.chunk.batches
        if not len(rows) or rows[-1]["last_offset"] < end_offset:
            return None
        position = int(rows["position"][np.argmax(rows["last_offset"] >= end_offset)])
        reason = f"its offset lies beyond the segment's end, {end_offset}"
        return SegmentChunks.first_damage(arranged, CorruptBatchError(arranged.claim.path, position, reason))

    @staticmethod
    def check_index(arranged: ArrangedChunk, chunk: Chunk) -> None:
        """
        Compare the segment's offset index with a verified chunk; call in order.

        Raises:
            CorruptIndexError: the index is wrong.
        """
        check = arranged.claim.source.index_check
        if check is None:
            return
        check.add_batches(chunk.batches)
        if arranged.ends_segment and chunk.failure is None:
            check.finish()

    def release(self, claim: Claim) -> None:
        """Release a window; call once for each claim, when its file is no longer needed for it."""
        if self._drops_behind and claim.source.is_cold:
            claim.source.file.drop_cache(claim.window.position, claim.window.size)
        claim.source.release()

    def close(self) -> None:
        """Close all files; no lane may be running. Also drops the segments' iterator, which may form a cycle."""
        for source in self._opened:
            source.file.close()
        self._opened.clear()
        self._source, self._segments = None, iter(())
