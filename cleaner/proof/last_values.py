"""Who stays, found by sorting: of each key's records the last one, and nobody else that a round has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner.proof.key_rows import (
    COLUMNS,
    DIGEST,
    DIGEST_REST,
    FLAGS,
    KEPT,
    MAY_GO,
    MUST_GO,
    OFFSET,
    REMEMBERED,
    KeyRows,
    Rows,
)

Longs = npt.NDArray[np.int64]


@dataclass
class LastValues:
    """
    Offsets of the records whose fate is wrong.

    Attributes:
        keys: how many different ones there were.
        lost: the last of their key, not there any more.
        superseded: there, although a later record has their key.
        expired: tombstones that are there past their horizon.
    """

    keys: int
    lost: Longs
    superseded: Longs
    expired: Longs


def judge(rows: KeyRows, first_dirty_offset: int, aborted: Longs, *, is_one_round: bool) -> LastValues:
    """
    Sort the rows and judge each.

    Args:
        first_dirty_offset: a record below it did not supersede anything in these rounds.
        is_one_round: so that what nothing has superseded has to be there. Otherwise a round in between may have begun
            further down.
        aborted: first and last offset of the batches whose records count for nothing, shape (n, 2), ascending.
    """
    keys = 0
    found: list[tuple[Longs, Longs, Longs]] = []
    for part in rows.parts():
        known: Rows = np.empty((0, COLUMNS), np.uint64)
        for taken in part:
            known = _judge(np.concatenate([_without(taken, aborted), known]), first_dirty_offset, is_one_round, found)
        keys += len(known)
    lost, superseded, expired = (np.sort(np.concatenate([np.empty(0, np.int64), *some])) for some in _columns(found))
    return LastValues(keys, lost, superseded, expired)


def _columns(found: list[tuple[Longs, Longs, Longs]]) -> Iterator[list[Longs]]:
    for column in range(3):
        yield [one[column] for one in found]


def _without(rows: Rows, aborted: Longs) -> Rows:
    if not len(aborted) or not len(rows):
        return rows
    offsets = rows[:, OFFSET].astype(np.int64)
    at = np.searchsorted(aborted[:, 0], offsets, side="right") - 1
    is_aborted = (at >= 0) & (offsets <= aborted[np.maximum(at, 0), 1])
    left: Rows = rows[~is_aborted]
    return left


def _judge(rows: Rows, first_dirty_offset: int, is_one_round: bool, found: list[tuple[Longs, Longs, Longs]]) -> Rows:
    """Judge rows that no later ones share a key with, but those remembered; returns what is to be remembered of all."""
    if not len(rows):
        return rows
    rows = np.take(rows, _order(rows), axis=0)
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:, DIGEST] != rows[:-1, DIGEST]) | (rows[1:, DIGEST_REST] != rows[:-1, DIGEST_REST])
    starts = np.flatnonzero(is_first)
    offsets = rows[:, OFFSET].astype(np.int64)
    last_of_key = np.maximum.reduceat(offsets, starts)
    last = np.repeat(last_of_key, np.diff(np.append(starts, len(rows))))
    flags = rows[:, FLAGS].astype(np.int64)
    is_record = flags & REMEMBERED == 0
    is_kept = is_record & (flags & KEPT != 0)
    is_superseded = (offsets != last) & (last >= first_dirty_offset)
    has_to_stay = ~is_superseded if is_one_round else offsets == last
    lost = is_record & has_to_stay & ~is_kept & (flags & MAY_GO == 0)
    superseded = is_kept & is_superseded
    expired = is_kept & (flags & MUST_GO != 0) & ~superseded
    found.append((offsets[lost], offsets[superseded], offsets[expired]))
    remembered: Rows = np.empty((len(starts), COLUMNS), np.uint64)
    remembered[:, [DIGEST, DIGEST_REST]] = rows[starts][:, [DIGEST, DIGEST_REST]]
    remembered[:, OFFSET] = last_of_key
    remembered[:, FLAGS] = REMEMBERED
    return remembered


def _order(rows: Rows) -> Longs:
    """Return an order that puts the rows of a key side by side."""
    order: Longs = np.argsort(rows[:, DIGEST])
    first, rest = rows[order, DIGEST], rows[order, DIGEST_REST]
    # Two keys that agree in half of the digest may stand mixed; hardly ever.
    if ((first[1:] == first[:-1]) & (rest[1:] != rest[:-1])).any():
        order = np.lexsort((rows[:, DIGEST_REST], rows[:, DIGEST]))
    return order
