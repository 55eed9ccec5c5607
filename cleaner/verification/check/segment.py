"""Checks one segment: compares its `.log` and its three indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptIndexError
from cleaner.format.chunks import CONTROL_FLAG, control_batches
from cleaner.format.key_digests import NO_OFFSET
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.leftovers import SwapState, swap_state
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import (
    CUTS_ZEROS,
    FIRST_OFFSET,
    LAST_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    ZERO_TAIL,
    ZEROS,
    Aborts,
    Entries,
    OffsetIndexCheck,
    abort_rows,
    check_offset_entries,
    check_time_entries,
    read_entries,
    read_txn_index,
    without_zero_tail,
)
from cleaner.storage.segment.segment import Segment
from cleaner.verification.check.batches import CheckedChunk, runs
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.log_file import CheckLaneMemory, LogFileReader
from cleaner.verification.check.order import OffsetOrder
from cleaner.verification.check.time_index import TimeIndexCheck
from cleaner.verification.check.transactions import TransactionFollower

_INDEX_KINDS = {
    names.INDEX: FindingKind.OFFSET_INDEX,
    names.TIME_INDEX: FindingKind.TIME_INDEX,
    names.TXN_INDEX: FindingKind.TRANSACTION_INDEX,
}


class KeyWatch(Protocol):
    """Gets the digests of keys; see `twice.py`."""

    first_offset: int

    def add(self, segment: Segment, checked: CheckedChunk) -> None:
        """Add a checked chunk."""


@dataclass(frozen=True)
class SegmentContext:
    """
    Facts about a segment from outside its files.

    Attributes:
        end_offset: the next segment's base offset; NO_OFFSET for the last one.
        is_active: it is the last one.
        is_in_use: another process may be writing to the log now.
        is_remade: the next start rebuilds its indexes: the log was not closed cleanly, and the segment not flushed.
    """

    end_offset: int = NO_OFFSET
    is_active: bool = False
    is_in_use: bool = False
    is_remade: bool = False

    @property
    def is_padded(self) -> bool:
        """Its indexes may still end with the zeros that a broker preallocates."""
        return self.is_remade or (self.is_active and self.is_in_use)


class SegmentCheck:
    """
    Checks one segment.

    Args:
        fs: access to the file system.
        segment: as listed.
        context: its context.
        lanes: memory.
        transactions: of the partition so far; None if they cannot be followed.
        keys: gets the keys; may be None.

    Attributes:
        findings: complete once `run` has returned.
        next_offset: after the last good batch.
    """

    def __init__(
        self,
        fs: FileSystem,
        segment: Segment,
        context: SegmentContext,
        lanes: Sequence[CheckLaneMemory],
        *,
        transactions: TransactionFollower | None,
        keys: KeyWatch | None,
        check_done: Callable[[], None],
    ) -> None:
        self.findings: list[Finding] = []
        self.next_offset = segment.base_offset
        self._fs = fs
        self._segment = segment
        self._context = context
        self._lanes = lanes
        self._transactions = transactions
        self._keys = keys
        self._check_done = check_done
        self._faulty: dict[str, set[int]] = {suffix: set() for suffix in _INDEX_KINDS}
        self._missing: set[str] = set()
        self._markers: set[tuple[int, int]] = set()
        self._aborted: list[AbortedTxn] = []
        self._good_end = 0

    def run(self) -> None:
        """
        Check the segment.

        Raises:
            FileNotFoundError: the `.log` is gone.
            LogChangedError: it became shorter in the meantime.
            LogDirOfflineError: the disk refuses.
        """
        # Indexes first: while a writer is active, a log is never behind its indexes.
        offsets = self._entries(names.INDEX, OFFSET_ENTRY)
        times = self._entries(names.TIME_INDEX, TIME_ENTRY)
        aborts = self._aborts()
        with self._segment.open_log() as file:
            size = file.size()
            check_offset_entries(offsets, self._segment.index_path, size, self._index_reporter(names.INDEX))
            check_time_entries(times, self._segment.time_index_path, self._index_reporter(names.TIME_INDEX))
            self._follow(offsets, times)
            digest_from = NO_OFFSET if self._keys is None else self._keys.first_offset
            reader = LogFileReader(
                file,
                size,
                self._lanes,
                base_offset=self._segment.base_offset,
                digest_from=digest_from,
                on_chunk=self._take,
                on_gap=self._pass_over,
                check_done=self._check_done,
            )
            reader.run()
        damage = [*reader.findings, *self.findings_of_batches]
        damage.sort(key=lambda finding: finding.position or 0)
        self._finish_indexes(damage, size, aborts)
        del self._offset_check, self._time_check  # breaks a reference cycle
        self.findings = [*self._as_torn_end(damage), *self.findings]

    def _follow(self, offsets: Entries, times: Entries) -> None:
        segment = self._segment
        slots = self._ascending(names.INDEX, offsets, "position")
        self.findings_of_batches: list[Finding] = []
        self._order = OffsetOrder(
            segment.log_path, segment.base_offset, self._context.end_offset, self.findings_of_batches.append
        )
        self._offset_check = OffsetIndexCheck(
            offsets[slots], segment.index_path, segment.base_offset, self._index_reporter(names.INDEX), slots
        )
        indexed = offsets["relative_offset"][slots].astype(np.int64) + segment.base_offset
        slots = self._ascending(names.TIME_INDEX, times, "timestamp")
        self._time_check = TimeIndexCheck(
            times[slots],
            segment.time_index_path,
            segment.base_offset,
            self._index_reporter(names.TIME_INDEX),
            slots,
            indexed,
        )

    # ---- indexes ---------------------------------------------------------------------------------------------------

    def _index_reporter(self, suffix: str) -> Callable[[CorruptIndexError], None]:
        """Return a function that turns faults into findings: the first of each entry, one for all entries in a row."""
        faulty = self._faulty[suffix]

        def report(error: CorruptIndexError) -> None:
            new = [position for position in (error.position, *error.others) if position not in faulty]
            if new:
                faulty.update(new)
                reason = error.reason if len(new) == 1 else f"{error.reason}; the same in {len(new) - 1} more entries"
                self._note_index(suffix, reason, new[0])

        return report

    def _note_index(self, suffix: str, reason: str, position: int | None, offset: int | None = None) -> None:
        path = self._segment.path(suffix)
        kind = FindingKind.INDEX_MISSING if position is None and offset is None else _INDEX_KINDS[suffix]
        is_damage = not self._context.is_remade
        if not is_damage:
            reason += "; the next start makes it anew"
        elif kind is FindingKind.INDEX_MISSING and self._comes_with_swap(path):
            is_damage = False
            reason += f": {SwapState.COMPLETED.value}"
        self.findings.append(Finding(kind, path, reason, position, offset, is_damage=is_damage))

    def _comes_with_swap(self, path: Path) -> bool:
        files = self._fs.list_files(path.parent)
        return path.name + names.SWAP in files and swap_state(files) is SwapState.COMPLETED

    def _entries(self, suffix: str, entry: np.dtype[np.void]) -> Entries:
        path, log_bytes = self._segment.path(suffix), self._fs.stat(self._segment.log_path).st_size
        report = self._index_reporter(suffix)

        def on_zeros(position: int) -> None:
            if self._context.is_padded:
                return
            if position == 0 and suffix == names.INDEX:
                reason = "zeros alone: it leads nowhere, and every look-up begins at the first batch"
            else:
                reason = f"{ZERO_TAIL}; {CUTS_ZEROS}"
            report(CorruptIndexError(path, position, reason))

        try:
            return without_zero_tail(read_entries(self._fs, path, entry, report, log_bytes), on_zeros)
        except FileNotFoundError:
            self._missing.add(suffix)
            self._note_index(suffix, "the file is missing", None)
            return np.empty(0, entry)

    def _aborts(self) -> Aborts:
        try:
            report, size = self._index_reporter(names.TXN_INDEX), self._segment.size
            return read_txn_index(self._fs, self._segment.txn_index_path, report, log_bytes=size)
        except FileNotFoundError:
            return abort_rows(())

    def _ascending(self, suffix: str, entries: Entries, also: str) -> npt.NDArray[np.intp]:
        """Return the slots of entries that are good so far and that ascend."""
        slots = np.arange(len(entries))
        size = entries.dtype.itemsize
        faulty = np.array(sorted(self._faulty[suffix]), np.int64) // size
        slots = np.setdiff1d(slots, faulty)
        for name in ("relative_offset", also):
            values = entries[name][slots].astype(np.int64)
            slots = slots[values >= np.maximum.accumulate(values)] if len(values) else slots
        return slots

    def _finish_indexes(self, damage: Sequence[Finding], size: int, aborts: Aborts) -> None:
        is_whole = not damage
        if self._good_end == size or is_whole:
            self._offset_check.finish()
        is_sound = not (self._faulty[names.INDEX] or self._faulty[names.TIME_INDEX] or self._missing)
        self._time_check.finish(is_whole=is_whole, is_complete=is_sound and not self._context.is_padded)
        report = self._index_reporter(names.TXN_INDEX)
        base = self._segment.base_offset
        last, first = aborts[:, LAST_OFFSET], aborts[:, FIRST_OFFSET]
        outside = (last < base) | (first > last)
        if is_whole:
            outside |= last >= self.next_offset
        for row in np.flatnonzero(outside).tolist():
            reason = f"an aborted transaction from offset {first[row]} to {last[row]}, outside of the segment"
            report(CorruptIndexError(self._segment.txn_index_path, row * TXN_ENTRY.itemsize, reason))
        began = {
            (entry[0], entry[LAST_OFFSET]): (row, entry[FIRST_OFFSET]) for row, entry in enumerate(aborts.tolist())
        }
        if is_whole:
            # An entry and its marker are kept or removed together; the data may be removed long before.
            for (producer_id, marker), (row, _) in began.items():
                if (producer_id, marker) not in self._markers:
                    reason = f"an aborted transaction that no marker of producer {producer_id} ends at {marker}"
                    report(CorruptIndexError(self._segment.txn_index_path, row * TXN_ENTRY.itemsize, reason))
        if self._context.is_active and self._context.is_in_use:
            return
        for txn in self._aborted:
            entry = began.get((txn.producer_id, txn.last_offset))
            if entry is None:
                reason = f"no entry for the transaction that producer {txn.producer_id} aborted"
                self._note_index(names.TXN_INDEX, reason, None, txn.last_offset)
            elif entry[1] > txn.first_offset:
                reason = f"an aborted transaction that began at {txn.first_offset}, before what its entry says"
                report(CorruptIndexError(self._segment.txn_index_path, entry[0] * TXN_ENTRY.itemsize, reason))

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _take(self, checked: CheckedChunk) -> None:
        rows, path = checked.chunk.batches, self._segment.log_path
        self._order.add(checked)
        self.next_offset = self._order.next_offset
        end_of_bad = 0
        for first, end in runs(checked.good):
            if first:
                self._offset_check.pass_over(int(rows[first]["position"]))
            part = rows[first:end]
            self._offset_check.add(part["position"], part["base_offset"], part["last_offset"])
            self._time_check.add(part)
            end_of_bad = end
            self._good_end = int(part[-1]["position"] + part[-1]["size"])
        if end_of_bad < len(rows):
            self._offset_check.pass_over(int(rows[-1]["position"] + rows[-1]["size"]))
        if checked.chunk.kinds & CONTROL_FLAG:
            control = rows[checked.good & control_batches(rows)]
            self._markers.update(zip(control["producer_id"].tolist(), control["base_offset"].tolist(), strict=True))
        if self._transactions is not None:
            self._aborted += self._transactions.take(path, checked.chunk, checked.good, self.findings_of_batches.append)
        if self._keys is not None:
            self._keys.add(self._segment, checked)

    def _pass_over(self, _start: int, end: int) -> None:
        self._offset_check.pass_over(end)

    def _as_torn_end(self, damage: list[Finding]) -> list[Finding]:
        """Separate the incomplete batch that an active or killed writer leaves at a log's end from damage."""
        context = self._context
        if not context.is_active:
            return damage
        if not (context.is_in_use or context.is_remade):
            mended = f"{ZERO_TAIL}; {CUTS_ZEROS}"
            return [replace(each, reason=mended) if each.reason == ZEROS else each for each in damage]
        tail = [finding for finding in damage if (finding.position or 0) >= self._good_end]
        if not tail:
            return damage
        kept = damage[: len(damage) - len(tail)]
        if context.is_in_use:
            return kept
        reason = f"torn: {tail[0].reason}; the next start cuts it off"
        return [*kept, replace(tail[0], kind=FindingKind.TORN_END, reason=reason, is_damage=False)]
