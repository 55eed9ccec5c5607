"""
Compares replicas of one partition.

Their logs are read side by side, in the order of offsets. The same offset with another content, or in another leader's
epoch, shows that logs have parted; what lies above is not compared. Below it the logs may differ in what compaction has
removed, and only in that: `keys.py` decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cleaner.format.chunks import Chunk
from cleaner.format.layout import cut_out, lay_out
from cleaner.format.records import Unpacker
from cleaner.storage.fs.file_system import File
from cleaner.verification.replicas import rows as table
from cleaner.verification.replicas.decided import AllMarkers, Decided, Replica, chunks_of
from cleaner.verification.replicas.findings import (
    MAX_FINDINGS,
    Disagreement,
    Divergence,
    NeededTombstones,
    ReplicaFinding,
)
from cleaner.verification.replicas.keys import TOMBSTONE, Bounds, KeyDifferences, RecordsOfKeys, undecided, visible
from cleaner.verification.replicas.rows import ReplicaRows, Rows

_END = 2**63 - 1


@dataclass(frozen=True)
class ReadReplica:
    """
    What was read of one replica.

    Attributes:
        start_offset, end_offset: of its log.
        records, bytes: read.
        is_torn: bytes behind its last whole batch did not count.
    """

    start_offset: int
    end_offset: int
    records: int
    bytes: int
    is_torn: bool


@dataclass(frozen=True)
class Comparison:
    """
    The result.

    Attributes:
        replicas: in the order given.
        end_offset: below it they were compared.
        divergence: where they stop agreeing; None if they do not.
        keys: different ones below `end_offset`.
        totals: how many disagreements of each kind.
        findings: those with the lowest offsets, at most `MAX_FINDINGS`.
        needed: tombstones that replicas still have to get.
        unseen_offset: the lowest tombstone or marker that a replica has passed without getting it; None without any.
    """

    replicas: tuple[ReadReplica, ...]
    end_offset: int
    divergence: Divergence | None
    keys: int
    totals: dict[Disagreement, int]
    findings: tuple[ReplicaFinding, ...]
    needed: tuple[NeededTombstones, ...]
    unseen_offset: int | None


def compare(
    replicas: Sequence[Replica],
    *,
    limit_bytes: int,
    memory_bytes: int,
    make_file: Callable[[], File],
    step: Callable[[int], None],
) -> Comparison:
    """
    Compare replicas.

    Args:
        replicas: two or more, at most `keys.MOST_REPLICAS`.
        limit_bytes: most bytes one batch may unpack to.
        memory_bytes: for sorting; the rest goes to a file.
        make_file: creates that file.
        step: called with the bytes read since the last call; raises to stop.
    Raises:
        CorruptBatchError, CorruptIndexError: damage.
    """
    readings = [Decided(each, step) for each in replicas]
    work = _SideBySide(replicas, readings, None, limit_bytes, step)
    records = RecordsOfKeys(memory_bytes, make_file, len(replicas))
    try:
        work.run(records)
        if work.divergence is not None and any(reading.markers for reading in readings):
            # The markers above it are not of one history: once more, without them.
            records.close()
            records = RecordsOfKeys(memory_bytes, make_file, len(replicas))
            work = _SideBySide(replicas, readings, work.divergence, limit_bytes, step)
            work.run(records)
        parted = _END if work.divergence is None else work.divergence.offset
        ends = tuple(min(reading.end_offset, parted) for reading in readings)
        end = min(ends)
        found = records.judge(Bounds(tuple(reading.start_offset for reading in readings), ends, end))
    finally:
        records.close()
    _add_transactions(found, work.findings, end)
    markers = [each.offset for each in work.findings if each.kind is Disagreement.MARKER_LOST and each.offset < end]
    unseen = [*markers, *([] if found.lowest_unseen is None else [found.lowest_unseen])]
    return Comparison(
        tuple(
            ReadReplica(reading.start_offset, reading.end_offset, count, reading.bytes, reading.is_torn)
            for reading, count in zip(readings, work.records, strict=True)
        ),
        end,
        work.divergence,
        found.keys,
        found.totals,
        tuple(_with_keys(replicas, found.findings, limit_bytes)),
        tuple(found.needed[number] for number in sorted(found.needed)),
        min(unseen, default=None),
    )


def _add_transactions(found: KeyDifferences, more: Sequence[ReplicaFinding], end_offset: int) -> None:
    for finding in more:
        if finding.offset < end_offset:
            found.totals[finding.kind] = found.totals.get(finding.kind, 0) + 1
            found.findings.append(finding)
    found.findings.sort(key=lambda each: (each.offset, each.departs))
    del found.findings[MAX_FINDINGS:]


class _SideBySide:
    """One reading of all replicas, in the order of offsets."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        readings: Sequence[Decided],
        known: Divergence | None,
        limit_bytes: int,
        step: Callable[[int], None],
    ) -> None:
        self.divergence = known
        self.findings: list[ReplicaFinding] = []
        self._is_known = known is not None
        self._replicas, self._readings, self._step = replicas, readings, step
        markers = AllMarkers(readings, _END if known is None else known.offset)
        secret: Rows = np.frombuffer(os.urandom(16), np.uint64).copy()
        self._sides = [
            ReplicaRows(number, replicas, readings, markers, secret, limit_bytes, self.findings.append)
            for number in range(len(replicas))
        ]

    @property
    def records(self) -> list[int]:
        """How many records were read of each."""
        return [side.records for side in self._sides]

    def run(self, records: RecordsOfKeys) -> None:
        """Read all, and add the records that have a key and count."""
        for window in _windows([side.read(self._step) for side in self._sides]):
            joined = np.concatenate(window)
            of = np.repeat(np.arange(len(window)), [len(each) for each in window])
            if not self._is_known:
                self._find_epochs(window)
                self._find_contents(joined, of)
            _add(records, joined, of)

    def _find_contents(self, rows: Rows, of: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Note the first offset at which two replicas have different records."""
        order = np.argsort(rows[:, table.OFFSET], kind="stable")
        mine = rows[order]
        is_same = mine[1:, table.OFFSET] == mine[:-1, table.OFFSET]
        for column, reason in (
            (table.EPOCH, "the records have different leader epochs"),
            (table.CONTENT, "the records are not the same"),
        ):
            at = np.flatnonzero(is_same & (mine[1:, column] != mine[:-1, column]))
            if len(at):
                first = int(at[0])
                pair = (int(of[order[first]]), int(of[order[first + 1]]))
                self._note(Divergence(int(mine[first, table.OFFSET]), pair, reason))

    def _find_epochs(self, window: Sequence[Rows]) -> None:
        """
        Note the first record that another replica had written in a later leader's epoch.

        An entry of `leader-epoch-checkpoint` never begins too early: a follower that got only what compaction had left
        knows an epoch from its first remaining batch on. So an epoch that it has at an offset is at most the true one.
        """
        for number, replica in enumerate(self._replicas):
            if not replica.epochs:
                continue
            starts = np.array([entry.start_offset for entry in replica.epochs])
            epochs = np.array([entry.epoch for entry in replica.epochs])
            reading = self._readings[number]
            for other, rows in enumerate(window):
                offsets, found = rows[:, table.OFFSET].astype(np.int64), rows[:, table.EPOCH].astype(np.int64)
                at = np.searchsorted(starts, offsets, side="right") - 1
                is_later = (at >= 0) & (epochs[at] > found) & (found >= 0)
                is_later &= (offsets >= reading.start_offset) & (offsets < reading.end_offset)
                if other != number and is_later.any():
                    first = int(is_later.argmax())
                    reason = f"epoch {epochs[at[first]]} by one's leader-epoch-checkpoint, {found[first]} in the other"
                    self._note(Divergence(int(offsets[first]), (number, other), reason))

    def _note(self, found: Divergence) -> None:
        if self.divergence is None or found.offset < self.divergence.offset:
            self.divergence = found


def _windows(streams: Sequence[Iterator[Rows]]) -> Iterator[list[Rows]]:
    """Yield rows of all streams up to the same offset, again and again."""
    nothing: Rows = np.zeros((0, table.COLUMNS), np.uint64)
    held, is_open = [nothing for _ in streams], [True for _ in streams]
    while True:
        for number, stream in enumerate(streams):
            while is_open[number] and not len(held[number]):
                rows = next(stream, None)
                held[number], is_open[number] = (nothing, False) if rows is None else (rows, True)
        ends = [int(rows[-1, table.OFFSET]) for rows, more in zip(held, is_open, strict=True) if more]
        if not ends and not any(len(rows) for rows in held):
            return
        end = min(ends, default=_END)
        cuts = [int(np.searchsorted(rows[:, table.OFFSET], np.uint64(end), side="right")) for rows in held]
        yield [rows[:cut] for rows, cut in zip(held, cuts, strict=True)]
        held = [rows[cut:] for rows, cut in zip(held, cuts, strict=True)]


def _add(records: RecordsOfKeys, rows: Rows, of: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Add the records with a key, those that are the same in several replicas once."""
    flags = rows[:, table.FLAGS]
    counts = flags & np.uint64(table.KEYED) != 0
    counts &= flags & np.uint64(table.VISIBLE | table.UNDECIDED) != 0
    rows, of, flags = rows[counts], of[counts], flags[counts]
    if not len(rows):
        return
    of_flag = np.array([[visible(i), undecided(i)] for i in range(int(of.max()) + 1)], np.uint64)
    mine = of_flag[of, (flags & np.uint64(table.UNDECIDED) != 0).astype(np.int64)]
    mine |= np.where(flags & np.uint64(table.TOMBSTONE) != 0, np.uint64(TOMBSTONE), np.uint64(0))
    order = np.lexsort((rows[:, table.CONTENT], rows[:, table.OFFSET]))
    rows, mine = rows[order], mine[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows[1:, table.OFFSET] != rows[:-1, table.OFFSET]) | (
        rows[1:, table.CONTENT] != rows[:-1, table.CONTENT]
    )
    starts = np.flatnonzero(is_first)
    joined = np.bitwise_or.reduceat(mine, starts)
    rows = rows[starts]
    records.add(rows[:, table.DIGEST : table.DIGEST_REST + 1], rows[:, table.OFFSET], joined)


def _with_keys(
    replicas: Sequence[Replica], findings: Sequence[ReplicaFinding], limit_bytes: int
) -> Iterator[ReplicaFinding]:
    """Yield the findings with the keys of their records, which are read again."""
    of_records = [
        each for each in findings if each.kind not in (Disagreement.MARKER_LOST, Disagreement.ABORTED_IS_BACK)
    ]
    keys: dict[tuple[int, int], bytes | None] = {}
    for number in sorted({each.has_it for each in of_records}):
        wanted = np.array(sorted({each.offset for each in of_records if each.has_it == number}))
        unpacker = Unpacker(limit_bytes)
        for path, chunk in chunks_of(replicas[number], lambda _bytes: None):
            rows = chunk.batches
            first = np.searchsorted(wanted, rows["base_offset"])
            has_one = (first < len(wanted)) & (wanted[np.minimum(first, len(wanted) - 1)] <= rows["last_offset"])
            # A header of magic 0 or 1 does not say where its records begin.
            has_one |= rows["magic"] < 2
            if not has_one.any():
                continue
            part = Chunk(chunk.data, chunk.length, chunk.position, rows[has_one], chunk.kinds)
            for block in unpacker.blocks(path, part):
                layout = lay_out(path, block, np.zeros(len(block.batches), np.uint8), 0, _END)
                at = np.flatnonzero(np.isin(layout.offsets, wanted))
                found = cut_out(layout.data, layout.key_starts[at], layout.key_sizes[at]) if len(at) else []
                keys |= {(number, offset): key for offset, key in zip(layout.offsets[at].tolist(), found, strict=True)}
    for each in findings:
        yield replace(each, key=keys.get((each.has_it, each.offset)))
