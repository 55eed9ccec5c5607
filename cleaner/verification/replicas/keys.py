"""
Finds by sorting what the replicas say of each key.

A replica's word on a key is the last visible record that it has of it below the offset up to which all can be compared.
Whoever has the latest such record is right. A replica without it is right as well if it has a later record, from
behind that offset; if the record lies below the replica's start; and, if the record is a tombstone, unless an older
value is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import Mask
from cleaner.storage.fs.file_system import File
from cleaner.verification.proof.key_rows import COLUMNS, DIGEST, DIGEST_REST, FLAGS, OFFSET, KeyRows, Rows
from cleaner.verification.replicas.findings import MAX_FINDINGS, Disagreement, NeededTombstones, ReplicaFinding

MOST_REPLICAS = 16
"""How many can be compared at once: two bits of a word for each."""

TOMBSTONE = 1 << 62
"""Bit of FLAGS: the value is null. Bit i: visible in replica i; bit 32 + i: there, without its end marker yet."""

_UNDECIDED = 32
_NONE = -1
_KINDS = (Disagreement.DELETED_STILL_ALIVE, Disagreement.VALUE_MISSING, Disagreement.VALUE_STALE)

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """
    What can be compared.

    Attributes:
        starts, ends: of the replicas: the log's start, and the end of what it has; nothing counts from where replicas
            stop agreeing.
        end_offset: up to which all of them can be compared.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    end_offset: int


@dataclass
class KeyDifferences:
    """
    The result.

    Attributes:
        keys: different ones below the common end.
        totals: how many disagreements of each kind.
        findings: those with the lowest offsets.
        needed: by replica, the tombstones that it still has to get: how many, and the first.
        lowest_unseen: the lowest tombstone that a replica with an older value has passed without getting it; None
            without any.
    """

    keys: int = 0
    totals: dict[Disagreement, int] = field(default_factory=dict)
    findings: list[ReplicaFinding] = field(default_factory=list)
    needed: dict[int, NeededTombstones] = field(default_factory=dict)
    lowest_unseen: int | None = None


def visible(replica: int) -> np.uint64:
    """Return the flag of a record that a replica shows."""
    return np.uint64(1 << replica)


def undecided(replica: int) -> np.uint64:
    """Return the flag of a record that a replica has, of a transaction without an end."""
    return np.uint64(1 << (_UNDECIDED + replica))


class RecordsOfKeys:
    """
    Collects the records of all replicas, one row a record, and judges them.

    Args:
        memory_bytes, make_file: as for `KeyRows`.
        replicas: how many there are.
    """

    def __init__(self, memory_bytes: int, make_file: Callable[[], File], replicas: int) -> None:
        self._rows = KeyRows(memory_bytes, make_file)
        self._replicas = range(replicas)

    def close(self) -> None:
        """Remove what did not fit into memory."""
        self._rows.close()

    def add(self, digests: Rows, offsets: Rows, flags: Rows) -> None:
        """Add records; digests have the shape (n, 2)."""
        rows: Rows = np.empty((len(offsets), COLUMNS), np.uint64)
        rows[:, DIGEST : DIGEST_REST + 1] = digests
        rows[:, OFFSET], rows[:, FLAGS] = offsets, flags
        self._rows.add(rows)

    def judge(self, bounds: Bounds) -> KeyDifferences:
        """Compare what the replicas say of each key."""
        found = KeyDifferences()
        for part in self._rows.parts():
            known: Rows = np.empty((0, COLUMNS), np.uint64)
            for taken in part:
                known = self._last_ones(np.concatenate([taken, known]), bounds.end_offset)
            _Judged(known, self._replicas, bounds, found)
        found.findings.sort(key=lambda each: (each.offset, each.departs))
        del found.findings[MAX_FINDINGS:]
        return found

    def _last_ones(self, rows: Rows, end_offset: int) -> Rows:
        """Return only the rows that are for some replica a key's last one below the common end, or its last at all."""
        rows, starts, sizes = _grouped(rows)
        offsets, flags = rows[:, OFFSET].astype(np.int64), rows[:, FLAGS]
        wanted = np.zeros(len(rows), np.bool_)
        if not len(rows):
            return rows
        for replica in self._replicas:
            is_mine = flags & visible(replica) != 0
            for some in (is_mine & (offsets < end_offset), is_mine & (offsets >= end_offset)):
                last = np.maximum.reduceat(np.where(some, offsets, _NONE), starts)
                wanted |= some & (offsets == np.repeat(last, sizes))
        return rows[wanted]


class _Judged:
    """The keys of a part."""

    def __init__(self, rows: Rows, replicas: range, bounds: Bounds, found: KeyDifferences) -> None:
        if not len(rows):
            return
        rows, starts, _ = _grouped(rows)
        self._found, self._bounds = found, bounds
        offsets, flags = rows[:, OFFSET].astype(np.int64), rows[:, FLAGS]
        is_tombstone = flags & np.uint64(TOMBSTONE) != 0
        is_early = offsets < bounds.end_offset
        keys = len(starts)
        shape = (len(replicas), keys)
        last, later = np.full(shape, _NONE), np.full(shape, _NONE)
        has_deleted, is_deleted_later, is_pending = (np.zeros(shape, np.bool_) for _ in range(3))
        best = np.maximum.reduceat(np.where(is_early, offsets, _NONE), starts)
        is_best = is_early & (offsets == np.repeat(best, np.diff(np.append(starts, len(rows)))))
        for replica in replicas:
            is_mine = flags & visible(replica) != 0
            last[replica] = np.maximum.reduceat(np.where(is_mine & is_early, offsets, _NONE), starts)
            later[replica] = np.maximum.reduceat(np.where(is_mine & ~is_early, offsets, _NONE), starts)
            has_deleted[replica] = _any_at(is_mine & is_tombstone & is_early, offsets, last[replica], starts)
            is_deleted_later[replica] = _any_at(is_mine & is_tombstone & ~is_early, offsets, later[replica], starts)
            is_pending[replica] = np.logical_or.reduceat(is_best & (flags & undecided(replica) != 0), starts)
        best_deletes = np.logical_or.reduceat(is_best & is_tombstone, starts)
        found.keys += int((best != _NONE).sum())
        self._compare(best, best_deletes, last, later, has_deleted, is_pending)
        self._note_needed(last, later, has_deleted, is_deleted_later)

    def _compare(
        self, best: Longs, best_deletes: Mask, last: Longs, later: Longs, has_deleted: Mask, is_pending: Mask
    ) -> None:
        starts = np.array(self._bounds.starts).reshape(-1, 1)
        departs = (best != _NONE) & (last != best) & (later == _NONE) & (best >= starts) & ~is_pending
        is_alive = (last != _NONE) & ~has_deleted
        kinds = (
            departs & best_deletes & is_alive,
            departs & ~best_deletes & ~is_alive,
            departs & ~best_deletes & is_alive,
        )
        for kind, matrix in zip(_KINDS, kinds, strict=True):
            replicas, keys = np.nonzero(matrix)
            if not len(keys):
                continue
            self._found.totals[kind] = self._found.totals.get(kind, 0) + len(keys)
            if kind is Disagreement.DELETED_STILL_ALIVE:
                lowest = int(best[keys].min())
                known = self._found.lowest_unseen
                self._found.lowest_unseen = lowest if known is None else min(known, lowest)
            for at in np.argsort(best[keys], kind="stable")[:MAX_FINDINGS].tolist():
                key, replica = int(keys[at]), int(replicas[at])
                other = int(last[replica, key])
                self._found.findings.append(
                    ReplicaFinding(
                        kind,
                        int(best[key]),
                        int(np.flatnonzero(last[:, key] == best[key])[0]),
                        replica,
                        None if other == _NONE else other,
                    )
                )

    def _note_needed(self, last: Longs, later: Longs, has_deleted: Mask, is_deleted_later: Mask) -> None:
        """Note the tombstones, each its key's last record in some replica, that others have not come to."""
        ends_with = np.where(later != _NONE, later, last)
        deletes = np.where(later != _NONE, is_deleted_later, has_deleted)
        for replica, end in enumerate(self._bounds.ends):
            ahead = np.where(deletes & (ends_with >= end), ends_with, _NONE).max(axis=0)
            wanted = ahead[ahead != _NONE]
            if len(wanted):
                known = self._found.needed.get(replica, NeededTombstones(replica, 0, 2**63 - 1))
                first = min(known.first_offset, int(wanted.min()))
                self._found.needed[replica] = NeededTombstones(replica, known.count + len(wanted), first)


def _any_at(rows: Mask, offsets: Longs, at: Longs, starts: Longs) -> Mask:
    sizes = np.diff(np.append(starts, len(offsets)))
    found: Mask = np.logical_or.reduceat(rows & (offsets == np.repeat(at, sizes)), starts)
    return found


def _grouped(rows: Rows) -> tuple[Rows, Longs, Longs]:
    """Return the rows with those of a key adjacent, where each key begins, and how many rows it has."""
    order = np.lexsort((rows[:, DIGEST_REST], rows[:, DIGEST]))
    rows = np.take(rows, order, axis=0)
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:, DIGEST] != rows[:-1, DIGEST]) | (rows[1:, DIGEST_REST] != rows[:-1, DIGEST_REST])
    starts = np.flatnonzero(is_first)
    return rows, starts, np.diff(np.append(starts, len(rows)))
