"""
Which copies of which offsets count, where several leaders have moved segments of one partition.

After a change of leader a segment may be moved twice, in other bounds, and a leader that was deposed may have moved
records that the log has lost since. As in Kafka, a segment counts for an offset only if the log has the segment's
leader epoch there. Of those that do, one is taken; their records are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from cleaner.base.model import EpochEntry

_MAX_LONG = 2**63 - 1


class Moved(Protocol):
    """A moved segment: its first and last offset, and (epoch, its first offset in the segment), ascending."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]: ...


_Segment = TypeVar("_Segment", bound=Moved)


class Piece(NamedTuple, Generic[_Segment]):
    """Offsets of a segment that count, both inclusive."""

    segment: _Segment
    start: int
    end: int


class Gap(NamedTuple):
    """Offsets that no segment has, both inclusive."""

    start: int
    end: int


def needs_lineage(segments: Sequence[Moved]) -> bool:
    """Tell whether segments overlap, so that leader epochs have to decide."""
    ordered = sorted(segments, key=lambda each: each.start_offset)
    return any(after.start_offset <= before.end_offset for before, after in pairwise(ordered))


def pieces_of(segment: _Segment, lineage: Sequence[EpochEntry] | None) -> list[Piece[_Segment]]:
    """
    Return the offsets of a segment that count.

    Args:
        lineage: the leader epochs of the log, ascending; None: all offsets count.
    """
    start, end = segment.start_offset, segment.end_offset
    if lineage is None:
        return [Piece(segment, start, end)]
    first_of = {entry.epoch: entry.start_offset for entry in lineage}
    last_of = {one.epoch: after.start_offset - 1 for one, after in pairwise(lineage)}
    # The first entry moves up with the log's start; what is below that start was removed, and does no harm.
    first_of[lineage[0].epoch] = 0
    found: list[Piece[_Segment]] = []
    for (epoch, first), (_, behind) in pairwise((*segment.leader_epochs, (0, end + 1))):
        if epoch in first_of:
            begin = max(start, first, first_of[epoch])
            last = min(end, behind - 1, last_of.get(epoch, _MAX_LONG))
            if found and found[-1].end + 1 == begin and begin <= last:
                found[-1] = found[-1]._replace(end=last)
            elif begin <= last:
                found.append(Piece(segment, begin, last))
    return found


def cover(pieces: Sequence[Piece[_Segment]], start: int | None, end: int | None) -> list[Piece[_Segment]] | Gap:
    """
    Choose pieces so that each offset is in one of them, and cut them where they overlap.

    A whole segment goes before a part of one; then what reaches farthest.

    Args:
        start: the first offset that is wanted, which may be inside of a batch; None: the first there is.
        end: the first that is not; None: up to the last there is.
    Returns:
        Adjoining pieces, ascending, of which the first may begin earlier; or the first gap between them.
    """
    last = max((each.end for each in pieces), default=-1) if end is None else end - 1
    offset = min((each.start for each in pieces), default=last + 1) if start is None else start
    waiting = sorted(pieces, key=lambda each: each.start, reverse=True)
    open_pieces: list[Piece[_Segment]] = []
    chosen: list[Piece[_Segment]] = []
    while offset <= last:
        while waiting and waiting[-1].start <= offset:
            open_pieces.append(waiting.pop())
        open_pieces = [each for each in open_pieces if each.end >= offset]
        if not open_pieces:
            return Gap(offset, min(last, waiting[-1].start - 1) if waiting else last)
        best = max(open_pieces, key=lambda each: (each.segment.start_offset == offset, each.end))
        chosen.append(Piece(best.segment, offset if chosen else best.start, min(best.end, last)))
        offset = chosen[-1].end + 1
    return chosen
