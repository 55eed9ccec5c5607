"""
How a round is split: one task digests a range of batches, one task recopies a group of segments.

The plan consists of plain values that are sent to tasks. A row that a task emits carries an *offset code*: the group's
number, the record's offset relative to the group's first one, whether a later record of its key has lost against it
(`OUTRANKING`), and whether the record counts for its key's last offset.
Codes ascend with offsets, so comparing codes compares offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.clock import SystemClock
from cleaner.base.io_throttle import IoThrottle
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.errors import UncleanableError
from cleaner.format.key_digests import SEED_BYTES, Words, secret_words
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment

_PLACE_BITS = 40
OUTRANKING = 2
PLACE_SHIFT = 2
GROUP_SHIFT = _PLACE_BITS + PLACE_SHIFT
_MAX_GROUPS = 1 << (63 - GROUP_SHIFT)
PLACE_MASK = (1 << _PLACE_BITS) - 1

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JobSettings:
    """
    Settings that all tasks of a job share.

    Attributes:
        directory: of the partition.
        work_dir: of the job; tasks write their results there.
        probe: content of the job's probe files.
        digest_key: what keys are digested under: 16 random bytes, as one number.
        first_dirty_offset, latest_offset: first and last offset whose keys count.
        batch_limit_bytes: most bytes a batch may unpack to.
        record_limit_bytes: most bytes of a record in a compressed batch whose keys count (R-511).
        task_entries: keys a task holds at a time.
        bytes_per_second: bytes that one task may read and write.
        rule: which of two records of a key is retained.
    """

    directory: Path
    work_dir: Path
    probe: str
    digest_key: int
    first_dirty_offset: int
    latest_offset: int
    batch_limit_bytes: int
    record_limit_bytes: int
    task_entries: int
    bytes_per_second: float
    rule: SurvivorRule = LATEST_OFFSET

    @property
    def key_words(self) -> Words:
        """The digest key in the form that kernels take."""
        return secret_words(self.digest_key.to_bytes(SEED_BYTES, "little"))

    def throttle(self) -> Callable[[int], None]:
        """Return a function that a task calls with each number of bytes; it sleeps to keep to the rate."""
        return IoThrottle(self.bytes_per_second, SystemClock()).for_worker(_go_on)


def _go_on() -> None:
    """Never stops: Spark kills a task instead."""


@dataclass(frozen=True)
class Range:
    """
    Some batches of a segment, for one task.

    Attributes:
        number: in the order of the log.
        group, group_offset: number and base offset of the group the segment belongs to.
        base_offset, size: of the segment.
        start, end: positions of the first batch and after the last.
        first_offset: the first batch ends at or above it, all earlier ones end below.
        is_dirty: its keys count, from the first dirty offset on; else its records only ask whether they are superseded.
        checks_index: compare the offset index entries that point into the range with its batches.
        checks_last_entry: also the segment's last entry.
    """

    number: int
    group: int
    group_offset: int
    base_offset: int
    size: int
    start: int
    end: int
    first_offset: int
    is_dirty: bool
    checks_index: bool
    checks_last_entry: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of the range's batches."""
        return self.end - self.start

    def codes(self, offsets: npt.NDArray[np.int64], *, puts: bool) -> Codes:
        """Return the codes of offsets in this range. Raises UncleanableError: offsets too far apart for one group."""
        places = offsets - self.group_offset
        if len(places) and int(places.max()) > PLACE_MASK:
            raise UncleanableError(str(self.base_offset), "offsets too far apart for one group")
        return (np.int64(self.group) << GROUP_SHIFT) | (places << PLACE_SHIFT) | np.int64(puts)


@dataclass(frozen=True)
class Source:
    """A segment to recopy, as it was when the job was planned; identifies its file."""

    base_offset: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(segment: Segment) -> Source:
        """Describe a segment."""
        return Source(segment.base_offset, segment.size, segment.mtime_ns)


@dataclass(frozen=True)
class GroupPlan:
    """
    Segments that are recopied into one.

    Attributes:
        number: in the order of the log.
        sources: at least one.
        end_offset: base offset of the segment after them.
    """

    number: int
    sources: tuple[Source, ...]
    end_offset: int = 2**63 - 1

    @property
    def base_offset(self) -> int:
        """Base offset of the segment they become."""
        return self.sources[0].base_offset

    @property
    def size(self) -> int:
        """Bytes of all sources."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True)
class CopyRules:
    """
    Rules of recopying that all groups of a job share.

    Attributes:
        rules: see their class.
        interval_bytes, max_index_bytes: `index.interval.bytes` and `segment.index.bytes`.
        log_start_offset: of the log.
        with_aborts: base offsets of the segments that have entries in a transaction index.
        first_dirty_base, first_dirty_position: segment and position in it at which the first pass began.
    """

    rules: RecopyRules
    interval_bytes: int
    max_index_bytes: int
    log_start_offset: int
    with_aborts: tuple[int, ...]
    first_dirty_base: int
    first_dirty_position: int


def plan_ranges(
    groups: Sequence[Sequence[Segment]],
    *,
    first_dirty_offset: int,
    range_bytes: int,
    unsplit: frozenset[int] = frozenset(),
    unread_indexes: Set[int] = frozenset(),
) -> list[Range]:
    """
    Cut the segments of a round into ranges.

    A segment is cut where its offset index says that a batch begins, and where the dirty section begins. The index of
    the segment that holds this second cut is not checked, as in the first pass of a round of one process.

    Args:
        groups: as they will be recopied.
        first_dirty_offset: start of the dirty section.
        range_bytes: approximate size of a range.
        unsplit: base offsets of segments whose index must not be used.
        unread_indexes: those of segments whose last index entry is neither used nor checked (R-538).
    Raises:
        CorruptIndexError: an offset index is damaged.
        UncleanableError: more groups than an offset code can number.
    """
    if len(groups) > _MAX_GROUPS:
        raise UncleanableError(groups[0][0].directory, f"more than {_MAX_GROUPS} groups of segments")
    segments = [segment for group in groups for segment in group]
    first_dirty = max(0, bisect_right([segment.base_offset for segment in segments], first_dirty_offset) - 1)
    ranges: list[Range] = []
    index = 0
    for number, group in enumerate(groups):
        for segment in group:
            is_dirty = index >= first_dirty
            dirty_from = segment.position_at(first_dirty_offset) if index == first_dirty else 0
            uses_last = segment.base_offset not in unread_indexes
            is_split = segment.base_offset not in unsplit
            cuts = _cuts(segment, range_bytes, dirty_from, is_split=is_split, uses_last=uses_last)
            index += 1
            if not segment.size:
                continue
            for (start, first_offset), end in zip(cuts, [cut[0] for cut in cuts[1:]] + [segment.size], strict=True):
                ranges.append(
                    Range(
                        number=len(ranges),
                        group=number,
                        group_offset=group[0].base_offset,
                        base_offset=segment.base_offset,
                        size=segment.size,
                        start=start,
                        end=end,
                        first_offset=first_offset,
                        is_dirty=is_dirty and start >= dirty_from,
                        checks_index=is_dirty and not dirty_from and segment.rebuilt is None,
                        checks_last_entry=uses_last,
                    )
                )
    return ranges


def _cuts(
    segment: Segment, range_bytes: int, dirty_from: int, *, is_split: bool, uses_last: bool
) -> list[tuple[int, int]]:
    """Return position and first offset of each range of a segment."""
    cuts = {0: segment.base_offset}
    if dirty_from or (is_split and segment.size > range_bytes):
        entries = segment.offset_index()
        if not uses_last and not dirty_from:
            entries = entries[:-1]
        positions = entries["position"].astype(np.int64)
        offsets = entries["relative_offset"].astype(np.int64) + segment.base_offset
        wanted = np.arange(range_bytes, segment.size - range_bytes // 2, range_bytes) if is_split else np.zeros(0)
        rows = set(np.searchsorted(positions, wanted).tolist())
        rows |= set(np.flatnonzero(positions == dirty_from).tolist()) if dirty_from else set()
        cuts.update({int(positions[row]): int(offsets[row]) for row in rows if row < len(positions)})
    return sorted(cuts.items())


def with_aborts(log: LoadedLog) -> tuple[int, ...]:
    """Return the base offsets of the segments that have entries in a transaction index."""
    return tuple(segment.base_offset for segment in log.segments if len(segment.aborted_txns()))
