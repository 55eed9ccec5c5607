"""
Finds segments of the dirty section in which nothing changes, while their keys go into the map: each record is the last
one of its key. The second pass leaves them as they are, and unread.

Only a segment that is a group of one can stay, and only a simple one (`recopy/segment_keys.py`) without tombstones,
which get a horizon. Its indexes must be what a recopy would write. Records may still come that supersede some of it: in
the end the map's bits tell (`OffsetMap.are_all_latest`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cleaner.cleaning.map.digests import DigestedChunk, DirtyChunk
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.cleaned_segment import has_indexes
from cleaner.cleaning.recopy.segment_keys import SegmentKeys, are_simple
from cleaner.config.values import TopicConfig
from cleaner.errors import UncleanableError
from cleaner.format.key_digests import FIRST, Words
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.index_builder import IndexBuilder
from cleaner.storage.segment.segment import Segment


class AllLatest:
    """
    Follows the first pass, in its order.

    Args:
        fs: access to the disk.
        topic: its index settings.
        alone: base offsets of the segments that are groups of one, wholly in the dirty section.
        keys_of: returns the place for the keys of a segment; None: it gets no key index.
        end_keys: called with each segment that has such a place, its keys, and whether it is one of those found.
    Attributes:
        records: how many each segment found has, by base offset.
    """

    def __init__(
        self,
        fs: FileSystem,
        topic: TopicConfig,
        alone: Collection[int],
        keys_of: Callable[[Segment], SegmentKeys | None],
        end_keys: Callable[[Segment, SegmentKeys, bool], None],
    ) -> None:
        self.records: dict[int, int] = {}
        self._fs, self._topic, self._alone = fs, topic, alone
        self._keys_of, self._end_keys = keys_of, end_keys
        self._segment: Segment | None = None
        self._follows = False
        self._records = 0
        self._keys: SegmentKeys | None = None

    def begin_chunk(self, segment: Segment) -> None:
        """Begin the next chunk."""
        if segment is self._segment:
            return
        self.close()
        self._segment = segment
        self._follows = segment.base_offset in self._alone and segment.rebuilt is None
        if self._follows:
            self._keys = self._keys_of(segment)
            self._indexes = IndexBuilder(
                segment.log_path,
                segment.base_offset,
                interval_bytes=self._topic.index_interval_bytes,
                max_index_bytes=self._topic.segment_index_bytes,
            )

    def add_keys(self, rows: Words) -> None:
        """Add some of the chunk's keys, which have been put into the map: rows of `KeyDigests`."""
        if self._keys is not None:
            self._keys.add_digests(rows[:, FIRST])

    def end_chunk(self, task: DirtyChunk, digested: DigestedChunk, offset_map: OffsetMap) -> None:
        """End the chunk: all its keys are in the map."""
        batches = task.batches
        if not self._follows or not len(batches):
            return
        first, last = int(batches[0]["base_offset"]), int(batches[-1]["last_offset"])
        is_odd = digested.keyless or digested.tombstones or not are_simple(batches)
        if is_odd or not offset_map.are_all_latest(first, last, digested.messages):
            self._stop_following()
            return
        self._records += digested.messages
        if self._keys is not None:
            self._keys.add(batches, [])
        try:
            self._indexes.append(batches)
            if task.arranged is not None and task.arranged.ends_segment:
                self._indexes.close()
                self._end_segment(task.segment, last, offset_map)
        except UncleanableError:
            self._stop_following()  # the second pass says so, if it comes that far

    def _end_segment(self, segment: Segment, last_offset: int, offset_map: OffsetMap) -> None:
        if (
            self._indexes.position == segment.size
            and offset_map.are_all_latest(segment.base_offset, last_offset, self._records)
            and has_indexes(self._fs, segment, self._indexes, None)
        ):
            self.records[segment.base_offset] = self._records
        self._stop_following()

    def _stop_following(self) -> None:
        self._follows = False
        self._records = 0
        keys, self._keys = self._keys, None
        if keys is not None and self._segment is not None:
            self._end_keys(self._segment, keys, self._segment.base_offset in self.records)

    def close(self) -> None:
        """Give up what is not complete."""
        self._stop_following()
        self._segment = None
