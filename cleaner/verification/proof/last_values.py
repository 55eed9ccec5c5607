"""Finds by sorting which records must stay: each key's last one, and no other that a round has seen."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cleaner.verification.proof.findings import MAX_FINDINGS
from cleaner.verification.proof.key_rows import (
    DIGEST,
    DIGEST_REST,
    DOUBTFUL,
    FLAGS,
    KEPT,
    MAY_GO,
    MUST_GO,
    NUMBER,
    OFFSET,
    PASSED_OVER,
    REMEMBERED,
    KeyRows,
    Rows,
)

Longs = npt.NDArray[np.int64]
_NONE = -1
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True)
class Uncounted:
    """
    Batches whose records do not count normally: first and last offset of each, shape (n, 2), ascending.

    Attributes:
        aborted: of aborted transactions; their records do not count at all.
        passed_over: committed, but taken as aborted by the first pass: they supersede nothing.
        doubtful: batches that some round's first pass may have taken as aborted.
    """

    aborted: Longs
    passed_over: Longs
    doubtful: Longs


@dataclass
class RefutedRecords:
    """
    Records that were wrongly removed or kept; of a log that is not the cleaned one, these may be all of its records.

    Attributes:
        total: how many.
        lowest: the offsets of the first `MAX_FINDINGS` of them, in no order.
    """

    total: int = 0
    lowest: Longs = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, offsets: Longs) -> None:
        """Add some records by their offsets, each once."""
        self.total += len(offsets)
        lowest = np.concatenate([self.lowest, offsets])
        self.lowest = np.partition(lowest, MAX_FINDINGS)[:MAX_FINDINGS] if len(lowest) > MAX_FINDINGS else lowest


@dataclass
class LastValues:
    """
    The result.

    Attributes:
        keys: number of different keys.
        lost: the last record of their key, and missing.
        superseded: kept, although a later record has their key.
        expired: tombstones kept past their horizon.
    """

    keys: int = 0
    lost: RefutedRecords = field(default_factory=RefutedRecords)
    superseded: RefutedRecords = field(default_factory=RefutedRecords)
    expired: RefutedRecords = field(default_factory=RefutedRecords)


def judge(rows: KeyRows, first_dirty_offset: int, uncounted: Uncounted, *, is_one_round: bool) -> LastValues:
    """
    Sort the rows and judge each.

    Args:
        first_dirty_offset: a record below it superseded nothing in these rounds.
        uncounted: batches whose records do not count normally.
        is_one_round: every record that nothing superseded must be there. Otherwise a round in between may have begun
            at a lower offset.
    """
    found = LastValues()
    for part in rows.parts():
        known: Rows = np.empty((0, rows.columns), np.uint64)
        for taken in part:
            marked = np.concatenate([_marked(taken, uncounted), known])
            if rows.columns > NUMBER:
                known = _judge_numbers(marked, first_dirty_offset, is_one_round, found)
            else:
                known = _judge(marked, first_dirty_offset, is_one_round, found)
        found.keys += int((known[:, FLAGS] & np.uint64(DOUBTFUL) == 0).sum())
    return found


def _marked(rows: Rows, uncounted: Uncounted) -> Rows:
    """Return the rows without aborted records, and with a flag on those that (perhaps) supersede nothing."""
    if len(uncounted.aborted):
        rows = rows[~_are_within(rows, uncounted.aborted)]
    for batches, flag in ((uncounted.passed_over, PASSED_OVER), (uncounted.doubtful, DOUBTFUL)):
        if len(batches):
            rows = rows.copy()
            rows[_are_within(rows, batches), FLAGS] |= np.uint64(flag)
    return rows


def _are_within(rows: Rows, batches: Longs) -> npt.NDArray[np.bool_]:
    offsets = rows[:, OFFSET].astype(np.int64)
    at = np.searchsorted(batches[:, 0], offsets, side="right") - 1
    found: npt.NDArray[np.bool_] = (at >= 0) & (offsets <= batches[np.maximum(at, 0), 1])
    return found


def _judge(rows: Rows, first_dirty_offset: int, is_one_round: bool, found: LastValues) -> Rows:
    """Judge rows whose keys have no later rows except the remembered ones; returns the rows to remember."""
    if not len(rows):
        return rows
    rows = np.take(rows, _order(rows), axis=0)
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:, DIGEST] != rows[:-1, DIGEST]) | (rows[1:, DIGEST_REST] != rows[:-1, DIGEST_REST])
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(rows)))
    offsets = rows[:, OFFSET].astype(np.int64)
    flags = rows[:, FLAGS].astype(np.int64)
    is_record = flags & REMEMBERED == 0
    is_kept = is_record & (flags & KEPT != 0)
    # The last record that certainly supersedes all before it, and the last that may.
    certain = np.maximum.reduceat(np.where(flags & (PASSED_OVER | DOUBTFUL) == 0, offsets, _NONE), starts)
    possible = np.maximum.reduceat(np.where(flags & PASSED_OVER == 0, offsets, _NONE), starts)
    last, last_possible = np.repeat(certain, sizes), np.repeat(possible, sizes)
    is_superseded = (offsets < last) & (last >= first_dirty_offset)
    if is_one_round:
        has_to_stay = ~is_superseded & ~((offsets < last_possible) & (last_possible >= first_dirty_offset))
    else:
        # A kept record before a doubtful one shows that the doubtful one superseded nothing.
        first_kept = np.repeat(np.minimum.reduceat(np.where(is_kept, offsets, _MAX_LONG), starts), sizes)
        has_to_stay = (offsets == last_possible) | ((offsets >= last) & (offsets > first_kept))
    lost = is_record & has_to_stay & ~is_kept & (flags & MAY_GO == 0)
    superseded = is_kept & is_superseded
    expired = is_kept & (flags & MUST_GO != 0) & ~superseded
    found.lost.add(offsets[lost])
    found.superseded.add(offsets[superseded])
    found.expired.add(offsets[expired])
    return np.concatenate(
        [
            _remembered(rows[starts], certain, REMEMBERED),
            _remembered(rows[starts], possible, REMEMBERED | DOUBTFUL)[possible > certain],
        ]
    )


def _judge_numbers(rows: Rows, first_dirty_offset: int, is_one_round: bool, found: LastValues) -> Rows:
    """
    As `_judge`, where the record with the greatest number stays; a round compares all from the log start on.

    Of a key the greatest of the later slices are remembered: of all records, and of those that no round can have
    removed as a tombstone. What such a tombstone outranks may have come when it was gone.
    """
    if not len(rows):
        return rows
    below = rows[:, OFFSET].astype(np.int64) < first_dirty_offset
    rows[below, NUMBER] = 0  # compared with nothing: any record that is supersedes it
    rows = np.take(rows, np.lexsort([rows[:, at] for at in (OFFSET, NUMBER, DIGEST_REST, DIGEST)]), axis=0)
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:, DIGEST] != rows[:-1, DIGEST]) | (rows[1:, DIGEST_REST] != rows[:-1, DIGEST_REST])
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(rows)))
    flags = rows[:, FLAGS].astype(np.int64)
    offsets, places = rows[:, OFFSET].astype(np.int64), np.arange(len(rows))
    is_record = flags & REMEMBERED == 0
    is_kept = is_record & (flags & KEPT != 0)
    last = starts + sizes - 1
    is_compared = offsets >= first_dirty_offset
    supersedes = is_compared & ((flags & MAY_GO == 0) | is_one_round)
    lasting = np.maximum.reduceat(np.where(supersedes, places, _NONE), starts)
    superseded = is_kept & (places < np.repeat(lasting, sizes))
    has_to_stay = (places == np.repeat(last, sizes)) | ~np.repeat(is_compared[last], sizes)
    found.lost.add(offsets[is_record & has_to_stay & ~is_kept & (flags & MAY_GO == 0)])
    found.superseded.add(offsets[superseded])
    found.expired.add(offsets[is_kept & (flags & MUST_GO != 0) & ~superseded])
    remembered = np.unique(np.concatenate([last, lasting[lasting >= 0]]))
    known: Rows = rows[remembered].copy()
    known[:, FLAGS] = REMEMBERED | (flags[remembered] & MAY_GO) | np.where(np.isin(remembered, last), 0, DOUBTFUL)
    return known


def _remembered(rows: Rows, offsets: Longs, flags: int) -> Rows:
    remembered = rows.copy()
    remembered[:, OFFSET] = offsets.astype(np.uint64)
    remembered[:, FLAGS] = flags
    return remembered


def _order(rows: Rows) -> Longs:
    """Return an order that makes the rows of a key adjacent."""
    order: Longs = np.argsort(rows[:, DIGEST])
    first, rest = rows[order, DIGEST], rows[order, DIGEST_REST]
    # Keys that agree in half of the digest could be mixed; this hardly ever happens.
    if ((first[1:] == first[:-1]) & (rest[1:] != rest[:-1])).any():
        order = np.lexsort((rows[:, DIGEST_REST], rows[:, DIGEST]))
    return order
