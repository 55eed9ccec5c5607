"""
Recovering a log after a stop that left no clean-shutdown marker.

The segment that holds the recovery point and later ones may be torn: the file system may have lost any part of them.
Each is read completely and checked; its indexes, transaction index, leader epochs and producer snapshots are rebuilt.
The first damaged batch ends the log: its segment is cut there and later ones are deleted, since their records were
written after the lost part and would follow a gap. Segments below the recovery point were flushed and are trusted.

Kafka cuts without asking. Here, cutting more than a torn tail needs `allow_truncate`: the owner of an archive must
decide about a flipped bit in a cold segment.

Source: rules R-640, R-641; `LogLoader.java` (recoverLog, recoverSegment).
"""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.base.segments import segments_between
from cleaner.errors import TruncationRefusedError
from cleaner.format.next_batch import find_whole_batch
from cleaner.storage.load.loading import Loading
from cleaner.storage.load.rebuild import RebuiltSegment
from cleaner.storage.segment.segment import Segment

_NO_END = 2**63 - 1


def recover_segments(loading: Loading) -> None:
    """
    Recover the segments from the recovery point on, in memory; `LoadChanges.apply` writes the result.

    Raises:
        TruncationRefusedError: more than a torn tail would have to be cut, and may not.
        SegmentOverflowError: a segment must be split first; then call this again.
        UncleanableError, CorruptBatchError: Kafka could not load the log either (`rebuild_segment`).
    """
    unflushed = segments_between(loading.segments, loading.recovery_point, _NO_END)
    for number, segment in enumerate(unflushed, start=1):
        rebuilt = loading.rebuild(segment)
        later = unflushed[number:] if rebuilt.valid_bytes < segment.size else []
        is_cut = cut_damage(loading, segment, rebuilt, later)
        segment.rebuilt = rebuilt.indexes
        loading.changes.write_indexes(segment)
        loading.keep_small()
        if is_cut:
            return


def cut_damage(loading: Loading, segment: Segment, rebuilt: RebuiltSegment, later: Sequence[Segment]) -> bool:
    """
    Note that a segment is cut after its last sound batch and `later` segments deleted; False if nothing is to be cut.

    Raises:
        TruncationRefusedError: see `recover_segments`.
    """
    cut_bytes = segment.size - rebuilt.valid_bytes
    if cut_bytes == 0:
        return False
    if not loading.allow_truncate:
        is_last = segment.base_offset == loading.last_base_offset
        _refuse_unless_torn(segment, rebuilt, later, is_last=is_last)
    loading.changes.note_cut(segment, rebuilt.valid_bytes)
    for other in reversed(later):
        loading.changes.note_cut(other, 0)
        loading.changes.remove_segment(other)
    gone = {other.base_offset for other in later}
    loading.segments[:] = [kept for kept in loading.segments if kept.base_offset not in gone]
    loading.changes.truncate(segment, rebuilt.valid_bytes)
    segment.size = rebuilt.valid_bytes
    loading.truncated_bytes += cut_bytes + sum(other.size for other in later)
    return True


def _refuse_unless_torn(segment: Segment, rebuilt: RebuiltSegment, later: Sequence[Segment], *, is_last: bool) -> None:
    """
    Raise, except for a torn tail of the last segment: no whole batch is lost there.

    A killed writer leaves the beginning of a batch, or zeros, or only some pages of a batch. Cutting that loses nothing
    that was ever acknowledged as flushed. But if whole batches follow the damage, something else happened to the file,
    and cutting would lose them.
    """
    if is_last:
        with segment.open_log() as file:
            if find_whole_batch(file, rebuilt.valid_bytes, segment.size) is None:
                return
    cut_bytes = segment.size - rebuilt.valid_bytes
    later_bytes = sum(other.size for other in later)
    also = "".join(f"; {other.log_path.name} ({other.size} bytes)" for other in later)
    raise TruncationRefusedError(
        f"{rebuilt.damage}. Recovery would cut {cut_bytes + later_bytes} bytes, everything from offset "
        f"{rebuilt.next_offset} on: {segment.log_path.name} from byte {rebuilt.valid_bytes} ({cut_bytes} bytes){also}. "
        f"Only --allow-truncate does that"
    )
