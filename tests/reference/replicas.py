"""
The comparison of replicas in plain form: one record and one key at a time, with dicts, on lists instead of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """A record, or a marker, whose `value` says how the transaction ended."""

    offset: int
    key: str | None
    value: str | None
    producer: int | None = None
    is_marker: bool = False
    epoch: int = 0

    @property
    def is_abort(self) -> bool:
        """Tell whether a marker is of an aborted transaction."""
        return self.value == "abort"


class Copy(NamedTuple):
    """A replica: the end of its log, what is left in it, and where its log starts."""

    end: int
    entries: tuple[Entry, ...]
    start: int = 0


class Verdict(NamedTuple):
    """
    What is to be found.

    Attributes:
        end: up to where they are compared.
        parted: where they stop agreeing; None if they do not.
        findings: kind, offset, who departs, and the offset there.
        needed: of each replica the tombstones that it has not come to.
        unseen: the lowest tombstone or marker that somebody has passed without having it.
    """

    end: int
    parted: int | None
    findings: frozenset[tuple[str, int, int, int | None]]
    needed: dict[int, tuple[int, int]]
    unseen: int | None


def compare(copies: Sequence[Copy]) -> Verdict:
    """Compare replicas."""
    parted = _parted(copies)
    limit = 10**9 if parted is None else parted
    end = min([*(copy.end for copy in copies), limit])
    markers = sorted({entry for copy in copies for entry in copy.entries if entry.is_marker and entry.offset < limit})
    findings = set[tuple[str, int, int, int | None]]()
    shown: list[dict[str, list[Entry]]] = []
    pending: list[set[int]] = []
    for number, copy in enumerate(copies):
        shown.append({})
        pending.append(set())
        lost, back = set[int](), set[int]()
        for entry in copy.entries:
            if entry.is_marker:
                continue
            state = "visible"
            if entry.producer is not None:
                state = _state(copy, entry, markers, number, findings, lost, back)
            if entry.key is None:
                continue
            if state == "visible":
                shown[number].setdefault(entry.key, []).append(entry)
            elif state == "pending":
                pending[number].add(entry.offset)
    findings = {found for found in findings if found[1] < end}
    needed: dict[int, list[int]] = {}
    for key in {key for each in shown for key in each}:
        last = [_last(each.get(key, []), end) for each in shown]
        later = [[entry for entry in each.get(key, []) if entry.offset >= end] for each in shown]
        best = max((entry for entry in last if entry is not None), key=lambda entry: entry.offset, default=None)
        for number, mine in enumerate(last):
            if best is None or mine == best or later[number] or best.offset in pending[number]:
                continue
            if best.offset < copies[number].start:
                continue
            is_alive = mine is not None and mine.value is not None
            there = None if mine is None else mine.offset
            if best.value is None and is_alive:
                findings.add(("DELETED_STILL_ALIVE", best.offset, number, there))
            elif best.value is not None:
                findings.add(("VALUE_STALE" if is_alive else "VALUE_MISSING", best.offset, number, there))
        for number, copy in enumerate(copies):
            ahead = []
            for other, mine in enumerate(last):
                final = later[other][-1] if later[other] else mine
                if final is not None and final.value is None and final.offset >= min(copy.end, limit):
                    ahead.append(final.offset)
            if ahead:
                needed.setdefault(number, []).append(max(ahead))
    passed = [each[1] for each in findings if each[0] in ("DELETED_STILL_ALIVE", "MARKER_LOST")]
    return Verdict(
        end,
        parted,
        frozenset(findings),
        {number: (len(offsets), min(offsets)) for number, offsets in needed.items()},
        min(passed, default=None),
    )


def _parted(copies: Sequence[Copy]) -> int | None:
    """Return the first offset with two contents, or that somebody had in a later leader's epoch."""
    known: dict[int, Entry] = {}
    for entry in sorted((entry for copy in copies for entry in copy.entries), key=lambda entry: entry.offset):
        if known.setdefault(entry.offset, entry) != entry:
            return entry.offset
        for copy in copies:
            before = [other.epoch for other in copy.entries if other.offset <= entry.offset]
            if copy.start <= entry.offset < copy.end and max(before, default=0) > entry.epoch:
                return entry.offset
    return None


def _state(
    copy: Copy,
    entry: Entry,
    markers: Sequence[Entry],
    number: int,
    findings: set[tuple[str, int, int, int | None]],
    lost: set[int],
    back: set[int],
) -> str:
    """Say whether readers of committed records see a record of a transaction."""
    own = _after(copy.entries, entry)
    true = _after(markers, entry)
    if true is not None and true.offset >= copy.end:
        true = None
    if true is not None and own != true and true.offset not in lost:
        lost.add(true.offset)
        findings.add(("MARKER_LOST", true.offset, number, entry.offset))
    hidden = own is not None and own.is_abort
    aborted = hidden if true is None else true.is_abort
    if aborted and not hidden and own is not None and own.offset not in back:
        back.add(own.offset)
        findings.add(("ABORTED_IS_BACK", entry.offset, number, None))
    if aborted or hidden:
        return "hidden"
    return "visible" if own is not None else "pending"


def _after(entries: Sequence[Entry], entry: Entry) -> Entry | None:
    """Return the next marker of the record's producer."""
    return next(
        (each for each in entries if each.is_marker and each.producer == entry.producer and each.offset > entry.offset),
        None,
    )


def _last(entries: Sequence[Entry], end: int) -> Entry | None:
    below = [entry for entry in entries if entry.offset < end]
    return below[-1] if below else None
