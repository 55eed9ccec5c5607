"""
Leaves segments unread in the second pass: those of the clean section by their key indexes (`state/key_index.py`,
`policy/unread.py`), those of the dirty section by what the first pass has found (`map/all_latest.py`).

    first_pass      finds the segments of the dirty section, and writes their indexes
    may_stay        the group's segment cannot change: it is left as it is
    begin           otherwise it is recopied, in either section, and its keys are collected for an index
    left_in_place   nothing in it has changed: the index is written
    changes         it is about to be replaced: its indexes go
    replaced        it was: the new segment's index is written

An index that is missing, damaged, or of something else costs the time to read its segment. So does a disk that refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.all_latest import AllLatest
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.cleaning.recopy.segment_keys import BatchFacts, SegmentKeys
from cleaner.cleaning.round.steps import groups_of
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError
from cleaner.format.chunks import HEADER_BYTES
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.unread import (
    FileIdentity,
    ReadSettings,
    RoundTerms,
    SegmentFacts,
    SegmentIdentity,
    WhyRead,
    why_read,
)
from cleaner.state.key_index import DamagedIndexError, KeyIndexFile
from cleaner.state.key_index_dir import LogKeyIndexes
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment


class NewKeys:
    """
    The keys of a group's new segment.

    Args:
        kept: those that stay; None: the segment gets no index.
        removal_ms: horizons up to it were due.
    Attributes:
        kept: as given.
        written: the new segment's batches, added when it is read back.
    """

    def __init__(self, kept: SegmentKeys | None, removal_ms: int) -> None:
        self.kept = kept
        # A horizon that was set in this round may be due in the next one, even at the same time.
        self.written = BatchFacts(removal_ms - 1)


class UnreadSegments:
    """
    The key indexes of one round; use it in a `with` block.

    Args:
        log, cleanable, topic, rules, context: of the round.
        offset_map: complete when the second pass begins.
        batch_limit_bytes: most bytes that a batch may unpack to.
    Attributes:
        segments, bytes: of the clean section, left unread.
        read_once: counts of the dirty section's segments that the second pass left unread, as if it had copied them.
        index_bytes_read, index_bytes_written: of indexes.
    """

    def __init__(
        self,
        log: LoadedLog,
        cleanable: Cleanable,
        topic: TopicConfig,
        rules: RecopyRules,
        context: RoundContext,
        offset_map: OffsetMap,
        batch_limit_bytes: int,
    ) -> None:
        self.read_once = CopyCounts()
        self.segments = self.bytes = self.index_bytes_read = self.index_bytes_written = 0
        # A round that keeps damage reads everything to find it; indexes have digests of keys as they are, without view,
        # and know neither times nor other numbers of records.
        self._is_by_keys = not topic.own_survivor and rules.expire_before_ms is None
        needs_all = context.keep_damaged or topic.takes_whole_log or not self._is_by_keys
        self._indexes: LogKeyIndexes | None = None if needs_all else context.key_indexes
        self._log, self._context, self._topic, self._rules = log, context, topic, rules
        self._cleanable, self._map = cleanable, offset_map
        self._vain_bytes = 0
        self._keys: SegmentKeys | None = None  # of the group that is being recopied
        self._places: list[SegmentKeys] = []
        self._all_latest: Mapping[int, int] = {}  # records of the segments that the first pass has found
        if self._indexes is None:
            return
        self._worth = self._indexes.load_worth()
        # A tombstone that gets no horizon now stays as it is, and may get one in a later round.
        self._sets_horizons = rules.new_horizon_ms >= 0
        self._terms = RoundTerms(
            key_id=self._indexes.key_id,
            now_ms=context.now_ms,
            removal_ms=rules.removal_ms,
            full_read_days=context.full_read_days,
            settings=ReadSettings(
                record_limit_bytes=topic.max_decompressed_message_bytes,
                batch_limit_bytes=batch_limit_bytes,
                interval_bytes=topic.index_interval_bytes,
                max_index_bytes=topic.segment_index_bytes,
            ),
            # The batch that ends right below the kept end has a rule of its own.
            unchanging_end=min(cleanable.first_dirty_offset, rules.kept_end_offset - 1),
        )

    def first_pass(self) -> AllLatest | None:
        """Return what finds the segments of the dirty section that will stay."""
        if self._context.keep_damaged or not self._is_by_keys:
            return None
        first, end = self._cleanable.first_dirty_offset, self._cleanable.first_uncleanable_offset
        groups = groups_of(self._log, self._cleanable, self._topic, end)
        alone = {group[0].base_offset for group in groups if len(group) == 1 and group[0].base_offset >= first}
        found = AllLatest(self._context.fs, self._topic, alone, self._place, self._end_first_keys)
        self._all_latest = found.records  # not `found`, which refers to this object
        return found

    def _end_first_keys(self, segment: Segment, keys: SegmentKeys, is_all_latest: bool) -> None:
        if is_all_latest:
            self._write(segment, keys, keys.facts)
        self._drop(keys)

    def __enter__(self) -> UnreadSegments:
        return self

    def __exit__(self, *_: object) -> None:
        for keys in tuple(self._places):
            self._drop(keys)

    def _drop(self, keys: SegmentKeys | None) -> None:
        if keys is not None and self._indexes is not None:
            self._places.remove(keys)
            try:
                keys.runs.close()
            except CleanerError as error:
                self._indexes.warn_of(error)

    def may_stay(self, group: Sequence[Segment]) -> bool:
        """Tell whether a group need not be read: it would stay as it is."""
        if self._context.recompress is not None or not self._is_by_keys:
            return False  # what its batches could be packed to, only their records tell
        return self._is_all_latest(group) or self._has_nothing_in_common(group)

    def _is_all_latest(self, group: Sequence[Segment]) -> bool:
        """Tell whether a group is one segment of the dirty section in which each record is the last one of its key."""
        segment = group[0]
        records = self._all_latest.get(segment.base_offset, 0) if len(group) == 1 else 0
        last_offset = self._log.end_of(group) - 1
        if not self._map.are_all_latest(segment.base_offset, last_offset, records) or not segment.is_unchanged():
            return False
        self.read_once.bytes_read += segment.size
        self.read_once.bytes_written += segment.size
        self.read_once.messages_read += records
        self.read_once.messages_written += records
        return True

    def _has_nothing_in_common(self, group: Sequence[Segment]) -> bool:
        """Tell whether a group is one segment of the clean section that has no key of the dirty one, by its index."""
        indexes = self._indexes
        if indexes is None or not self._is_one_below(group, self._terms.unchanging_end):
            return False
        segment = group[0]
        try:
            with indexes.open(segment.base_offset) as index:
                why = self._why_read(segment, index)
        except (FileNotFoundError, DamagedIndexError):
            return False
        except CleanerError as error:
            indexes.warn_of(error)
            return False
        if why is WhyRead.KEY_IN_COMMON:
            self._vain_bytes += segment.size
        if why is None:
            self.segments += 1
            self.bytes += segment.size
        return why is None

    def _is_one_below(self, group: Sequence[Segment], end_offset: int) -> bool:
        """Tell whether a group is one segment with batches, and ends at or below an offset."""
        return len(group) == 1 and group[0].size > 0 and self._log.end_of(group) <= end_offset

    def _why_read(self, segment: Segment, index: KeyIndexFile) -> WhyRead | None:
        why = why_read(index.facts, self._terms)
        if why is not None:
            return why
        position = index.facts.identity.last_position
        if identity_of(self._context.fs, segment, position) != index.facts.identity:
            return WhyRead.NOT_THE_SEGMENT
        for block in index.blocks():
            size = block.counts.nbytes + block.lows.nbytes
            self._context.throttle(size)
            self.index_bytes_read += size
            if self._map.has_any(block):
                return WhyRead.KEY_IN_COMMON
        return None

    def begin(self, group: Sequence[Segment]) -> SegmentKeys | None:
        """Return the place for the keys of a group that is about to be recopied; None: it gets no index."""
        # Records above the map's end are not judged: the next round reads their segment in any case.
        is_judged = self._is_one_below(group, self._map.latest_offset + 1)
        self._keys = self._place(group[0]) if is_judged else None
        return self._keys

    def _place(self, segment: Segment) -> SegmentKeys | None:
        """Return a place for the keys of a segment; None: it gets no index."""
        indexes = self._indexes
        if indexes is None or self._worth.pause or not self._sets_horizons or not indexes.make_room():
            return None
        runs = indexes.runs(segment.base_offset)
        keys = SegmentKeys(runs, indexes.keys, segment_bytes=segment.size, removal_ms=self._rules.settled_ms)
        self._places.append(keys)
        return keys

    def left_in_place(self, group: Sequence[Segment]) -> None:
        """Write the index of the group that was recopied last, and has not changed."""
        keys = self._keys
        if keys is not None:
            self._write(group[0], keys, keys.facts)
        self._drop(keys)

    def changes(self, group: Sequence[Segment]) -> NewKeys:
        """Remove the indexes of the group that was recopied last, and is about to be replaced; returns its keys."""
        if self._indexes is not None:
            for segment in group:
                self._indexes.remove(segment.base_offset)
        return NewKeys(self._keys, self._rules.settled_ms)

    def replaced(self, new: Segment, keys: NewKeys) -> None:
        """Write the index of a group's new segment."""
        if keys.kept is not None:
            self._write(new, keys.kept, keys.written)
        self._drop(keys.kept)

    def _write(self, segment: Segment, keys: SegmentKeys, facts: BatchFacts) -> None:
        indexes = self._indexes
        if indexes is None:
            return
        if keys.refusal is not None:
            indexes.warn_of(keys.refusal)
        if not keys.is_simple or not facts.is_simple or facts.last_offset < 0 or not len(keys.runs):
            return
        try:
            identity = identity_of(self._context.fs, segment, facts.last_position)
        except FileNotFoundError:
            return  # a writer has just deleted it
        except CleanerError as error:
            indexes.warn_of(error)
            return
        if identity is None or not segment.is_unchanged():
            return
        about = SegmentFacts(
            identity=identity,
            key_id=self._terms.key_id,
            read_ms=self._terms.now_ms,
            earliest_horizon_ms=facts.earliest_horizon_ms,
            last_offset=facts.last_offset,
            keys=len(keys.runs),
            settings=self._terms.settings,
        )
        written = indexes.write(segment.base_offset, about, keys.runs)
        self._context.throttle(written)
        self.index_bytes_written += written

    def finish(self) -> None:
        """Note what indexes were worth, and remove those of segments that are gone."""
        if self._indexes is None:
            return
        self._indexes.save_worth(self._worth.after(saved_bytes=self.bytes, vain_bytes=self._vain_bytes))
        self._indexes.keep_only({segment.base_offset for segment in self._log.segments})


def identity_of(fs: FileSystem, segment: Segment, last_position: int) -> SegmentIdentity | None:
    """
    Return what shows that a segment is the same as before; None if it cannot have an index.

    Args:
        last_position: of the last batch.
    """
    if fs.exists(segment.txn_index_path):
        return None
    with segment.open_log() as file:
        first, last = file.read(HEADER_BYTES, 0), file.read(HEADER_BYTES, last_position)
    if len(first) != HEADER_BYTES or len(last) != HEADER_BYTES:
        return None
    return SegmentIdentity(
        log=_file_identity(fs, segment.log_path),
        offset_index=_file_identity(fs, segment.index_path),
        time_index=_file_identity(fs, segment.time_index_path),
        first_header=first,
        last_header=last,
        last_position=last_position,
    )


def _file_identity(fs: FileSystem, path: Path) -> FileIdentity:
    try:
        about = fs.stat(path)
    except FileNotFoundError:
        return FileIdentity()
    return FileIdentity(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
