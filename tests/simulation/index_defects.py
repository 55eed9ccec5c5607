"""Planted defects of key indexes; see `planting.py`. Each breaks a condition under which a segment may stay unread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.cleaning.map.digests import DigestedChunk
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.segment_keys import BatchFacts, SegmentKeys
from cleaner.cleaning.round import unread
from cleaner.cleaning.round.unread import NewKeys, UnreadSegments
from cleaner.kernels.offset_map import KEEP, KEEP_TOMBSTONE
from cleaner.policy.unread import NO_HORIZON, FileIdentity, SegmentIdentity
from cleaner.state import key_index
from tests.simulation.planting import breaks, defect, replaced


@breaks(unread, "identity_of")
def any_segment_is_the_one_that_was_read(real: Any, fs: Any, segment: Any, last_position: int) -> Any:
    """The identity of a segment is not compared."""
    nothing = FileIdentity()
    found = real(fs, segment, last_position)
    return found and SegmentIdentity(nothing, nothing, nothing, bytes(61), bytes(61), last_position=0)


@breaks(unread, "why_read")
def horizons_in_unread_segments_are_forgotten(real: Any, facts: Any, terms: Any) -> Any:
    """A tombstone whose time has come stays with its segment."""
    return real(replace(facts, earliest_horizon_ms=NO_HORIZON), terms)


@breaks(unread, "why_read")
def index_of_another_digest_key_counts(real: Any, facts: Any, terms: Any) -> Any:
    """After the digest key was lost, indexes made with it are believed."""
    return real(replace(facts, key_id=terms.key_id), terms)


@breaks(OffsetMap, "has_any")
def only_the_first_key_of_a_bucket_is_compared(real: Any, self: Any, block: Any) -> Any:
    """A segment stays although another of its keys was written again."""
    starts = np.cumsum(block.counts, dtype=np.int64) - block.counts
    first = block.lows[starts[block.counts > 0]]
    return real(self, block._replace(counts=np.minimum(block.counts, 1).astype(np.uint16), lows=first))


@breaks(OffsetMap, "has_any")
def digests_are_compared_one_bit_off(real: Any, self: Any, block: Any) -> Any:
    """The lowest bit of what is stored is another one than that of the map."""
    return real(self, block._replace(lows=block.lows ^ np.uint32(1)))


@breaks(SegmentKeys, "add_digests")
def last_keys_of_the_dirty_section_are_not_noted(real: Any, self: Any, digests: Any) -> None:
    """An index that the first pass makes lacks the last key of a chunk."""
    real(self, digests[:-1])


@breaks(SegmentKeys, "add")
def keys_of_the_last_batch_are_not_noted(real: Any, self: Any, batches: Any, digests: Any) -> None:
    """An index lacks the keys of a chunk's end."""
    real(self, batches, [each[:-1] for each in digests])


@breaks(UnreadSegments, "_is_all_latest")
def records_superseded_later_are_not_noticed(_real: Any, self: Any, group: Any) -> bool:
    """A segment of the dirty section stays although a later one has one of its keys."""
    return len(group) == 1 and group[0].base_offset in self._all_latest


@defect
def tombstones_of_the_dirty_section_are_not_noticed() -> Iterator[None]:
    """A segment of the dirty section stays although its tombstones need a horizon."""
    with replaced(DigestedChunk, "tombstones", property(lambda _self: 0)):
        yield


@breaks(SegmentKeys, "digest")
def keys_that_go_are_noted_and_not_those_that_stay(
    real: Any, self: Any, path: Any, block: Any, unread: Any, verdicts: Any, *rest: Any
) -> None:
    """The index of a replaced segment has the keys that it has lost."""
    real(self, path, block, unread, verdicts ^ 1, *rest)


@breaks(NewKeys, "__init__")
def horizons_of_a_replaced_segment_are_forgotten(real: Any, self: Any, kept: Any, _removal_ms: int) -> None:
    """Its index knows none, so that its tombstones stay."""
    real(self, kept, 2**62)


@defect
def damaged_index_is_believed() -> Iterator[None]:
    """The checksum of an index's keys is not compared."""

    class Crc:
        crc32 = staticmethod(lambda _data, _start=0: 0)

    with replaced(key_index, "zlib", Crc):
        yield


@breaks(unread, "why_read")
def horizons_in_unread_segments_are_due_late(real: Any, facts: Any, terms: Any) -> Any:
    """A horizon counts only a minute after its time."""
    return real(facts, replace(terms, removal_ms=terms.removal_ms - 60_000))


def _is_dirty(self: Any, group: Any) -> bool:
    """Tell whether a group that is recopied reaches into the dirty section."""
    return self._indexes is not None and bool(self._log.end_of(group) > self._terms.unchanging_end)


class _KeysOfAllButTheLast(SegmentKeys):
    def add(self, batches: Any, digests: Any) -> None:
        super().add(batches, [each[:-1] for each in digests])


@breaks(UnreadSegments, "begin")
def last_keys_of_changed_dirty_segments_are_not_noted(real: Any, self: Any, group: Any) -> Any:
    """The index of a dirty segment that was recopied lacks the last key of a block."""
    keys = real(self, group)
    if keys is not None and _is_dirty(self, group):
        keys.__class__ = _KeysOfAllButTheLast
    return keys


class _KeysOfValues(SegmentKeys):
    def digest(self, path: Any, block: Any, unread: Any, verdicts: Any, *rest: Any) -> None:
        super().digest(path, block, unread, np.where(verdicts == KEEP_TOMBSTONE, 0, verdicts), *rest)


@breaks(UnreadSegments, "begin")
def tombstones_that_stay_in_dirty_segments_are_not_noted(real: Any, self: Any, group: Any) -> Any:
    """A tombstone stays although its key was written again."""
    keys = real(self, group)
    if keys is not None and _is_dirty(self, group):
        keys.__class__ = _KeysOfValues
    return keys


class _KeysThatGo(SegmentKeys):
    def digest(self, path: Any, block: Any, unread: Any, verdicts: Any, *rest: Any) -> None:
        super().digest(path, block, unread, verdicts ^ KEEP, *rest)


@breaks(UnreadSegments, "begin")
def keys_that_dirty_segments_lose_are_noted_and_no_others(real: Any, self: Any, group: Any) -> Any:
    """The index of a dirty segment that was recopied has the keys that it has lost."""
    keys = real(self, group)
    if keys is not None and _is_dirty(self, group):
        keys.__class__ = _KeysThatGo
    return keys


@breaks(UnreadSegments, "changes")
def horizons_set_in_dirty_segments_are_forgotten(real: Any, self: Any, group: Any) -> Any:
    """The tombstones of a dirty segment that was recopied stay with it."""
    new = real(self, group)
    if _is_dirty(self, group):
        new.written = BatchFacts(2**62)
    return new


@breaks(UnreadSegments, "begin")
def horizons_of_dirty_segments_in_place_are_forgotten(real: Any, self: Any, group: Any) -> Any:
    """After a lost checkpoint a segment is dirty again and nothing in it changes; its tombstones stay."""
    keys = real(self, group)
    if keys is not None and _is_dirty(self, group):
        keys.facts = BatchFacts(2**62)
    return keys


class _AnyFacts(BatchFacts):
    def add(self, batches: Any) -> None:
        super().add(batches)
        self.is_simple = True


@breaks(UnreadSegments, "changes")
def emptied_batches_in_changed_segments_are_not_noticed(real: Any, self: Any, group: Any) -> Any:
    """A segment stays although a batch that was kept for its place, without records, may go."""
    new = real(self, group)
    new.written = _AnyFacts(self._rules.settled_ms - 1)
    return new
