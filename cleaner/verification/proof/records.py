"""Reads the records of one step in both logs, compares them, and finds which of them are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner.format.chunks import ANY_KIND, DELETE_HORIZON_FLAG, TIMESTAMP_TYPE_FLAG, Chunk, Mask
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Unpacker
from cleaner.format.rewrite import canonical_headers
from cleaner.kernels import proof as kernel
from cleaner.verification.proof.findings import Findings, RefutationKind
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.steps import ProofStep

Longs = npt.NDArray[np.int64]

_FIRST, _END = -(2**63), 2**63 - 1
_WORDS = {
    kernel.KEY_DIFFERS: "the key",
    kernel.VALUE_DIFFERS: "the value",
    kernel.HEADERS_DIFFER: "the headers",
    kernel.TIMESTAMP_DIFFERS: "the timestamp",
}


@dataclass(frozen=True)
class RecordBlock:
    """
    The records of some adjacent batches of the log before.

    Attributes:
        layout: of the records.
        rows: int64, for each record its batch's row in the step.
        is_kept: for each record whether it is in the log after.
        is_nulled: for each record whether it has lost its value, as its age allows.
    """

    layout: Layout
    rows: Longs
    is_kept: Mask
    is_nulled: Mask

    def control_type(self, record: int) -> int:
        """Return the type in the key of a control record, -1 for none (R-230)."""
        start, size = int(self.layout.key_starts[record]), int(self.layout.key_sizes[record])
        if size < 4:
            return -1
        return int.from_bytes(self.layout.data[start + 2 : start + 4].tobytes(), "big", signed=True)


class RecordReader:
    """
    Reads and compares records.

    Args:
        limit_bytes: most bytes one batch may unpack to.
        findings: gets changed and invented records.
        rules: facts about the rounds.
    """

    def __init__(self, limit_bytes: int, findings: Findings, rules: ProofRules) -> None:
        self._rules = rules
        self._before, self._after = Unpacker(limit_bytes), Unpacker(limit_bytes)
        self._findings = findings
        self._matched: dict[int, int] = {}  # records of joined batches that were found before, by base offset

    def blocks(self, step: ProofStep, is_read: Mask, is_same: Mask) -> Iterator[RecordBlock]:
        """
        Yield the records before, of the batches that are read, in order.

        Args:
            is_read: the batches whose records are wanted.
            is_same: the batches with the same bytes after; the records of others that have a partner are compared.
        Raises:
            CorruptBatchError: damaged records, in either log.
        """
        if not is_read.any():
            return
        for block in self._before.blocks(step.before_path, step.before, unwanted=~is_read):
            mine = slice(block.first, block.first + len(block.batches))
            skipped = (~is_read[mine]).astype(np.uint8)
            layout = lay_out(step.before_path, block, skipped, _FIRST, _END)
            wanted = np.flatnonzero(is_read[mine])
            rows = np.repeat(wanted + block.first, block.batches["count"][wanted])
            found = RecordBlock(layout, rows, is_same[rows], np.zeros(len(rows), np.bool_))
            self._compare(step, found, np.flatnonzero(is_read[mine] & ~is_same[mine]) + block.first)
            yield found

    def _compare(self, step: ProofStep, records: RecordBlock, changed: Longs) -> None:
        """Note which records are kept in rebuilt batches, and which without values; report errors in them."""
        layout, is_kept = records.layout, records.is_kept
        rows = step.partners[changed]
        self._check_emptied(step, layout, changed)
        is_joined = step.joined.any()
        batches = step.after.batches[np.unique(rows[rows >= 0])]
        if not len(batches):
            return
        chunk = Chunk(step.after.data, step.after.length, step.after.position, batches, ANY_KIND)
        for block in self._after.blocks(step.after_path, chunk):
            found = lay_out(step.after_path, block, np.zeros(len(block.batches), np.uint8), _FIRST, _END)
            if not len(found):
                continue
            of = np.repeat(np.arange(len(block.batches)), block.batches["count"])
            positions = block.batches["position"][of]
            at = np.minimum(np.searchsorted(layout.offsets, found.offsets), max(len(layout) - 1, 0))
            partners = np.where(layout.offsets[at] == found.offsets, at, -1) if len(layout) else np.full(len(of), -1)
            elsewhere = np.zeros(len(of), np.bool_)
            if is_joined:
                elsewhere = self._elsewhere(step, changed, found, block.batches, of)
                partners[elsewhere] = -1
            is_kept[partners[partners >= 0]] = True
            self._report_differences(step, records, found, partners, positions, elsewhere)
            self._check_timestamps(step, found, of, block.batches)

    def _elsewhere(
        self, step: ProofStep, changed: Longs, found: Layout, batches: npt.NDArray[np.void], of: Longs
    ) -> Mask:
        """Tell which records of joined batches are not of the batches before that are being read; count the others."""
        joined = changed[step.joined[changed]]
        rows = step.before.batches[joined]
        is_joined = np.isin(batches["base_offset"], step.after.batches["base_offset"][step.partners[joined]])
        at = np.minimum(np.searchsorted(rows["last_offset"], found.offsets), max(len(rows) - 1, 0))
        is_here = found.offsets >= rows["base_offset"][at] if len(rows) else np.zeros(len(of), np.bool_)
        if len(rows):
            is_here &= found.offsets <= rows["last_offset"][at]
        for number in np.flatnonzero(is_joined).tolist():
            base = int(batches["base_offset"][number])
            self._matched[base] = self._matched.get(base, 0) + int((is_here & (of == number)).sum())
        elsewhere: Mask = is_joined[of] & ~is_here
        return elsewhere

    def end_joined(self, step: ProofStep) -> None:
        """Report the joined batches of a step with records that were in no batch before."""
        others = step.after.batches[np.unique(step.partners[step.joined])]
        if step.goes_on:
            others = others[others["base_offset"] != step.after.batches["base_offset"][-1]]
        for other in others:
            if self._matched.pop(int(other["base_offset"]), 0) != other["count"]:
                reason = "it has records that are not of the batches it was made from"
                self._findings.add(
                    RefutationKind.INVENTED, step.after_path, other["position"], other["base_offset"], reason
                )

    def _report_differences(
        self, step: ProofStep, records: RecordBlock, found: Layout, partners: Longs, positions: Longs, elsewhere: Mask
    ) -> None:
        path, layout = step.after_path, records.layout
        for record in np.flatnonzero((partners < 0) & ~elsewhere).tolist():
            reason = "no record has this offset in the log before"
            self._findings.add(RefutationKind.INVENTED, path, positions[record], found.offsets[record], reason)
        verdicts = np.zeros(len(partners), np.uint8)
        kernel.compare_records(*_columns(layout), *_columns(found), partners, verdicts)
        nulled = (verdicts == kernel.VALUE_DIFFERS) & (found.value_sizes < 0)
        nulled &= self._rules.may_be_nulled(layout)[partners]
        records.is_nulled[partners[nulled]] = True
        for record in np.flatnonzero(verdicts).tolist():
            verdict = int(verdicts[record])
            if nulled[record]:
                verdict = _other_difference(layout, partners[record], found, record)
                if verdict == kernel.SAME:
                    continue
            if verdict == kernel.HEADERS_DIFFER and _headers(layout, partners[record]) == _headers(found, record):
                continue
            reason = f"{_WORDS[verdict]} of the record has changed"
            self._findings.add(RefutationKind.CHANGED, path, positions[record], found.offsets[record], reason)

    def _check_timestamps(self, step: ProofStep, found: Layout, of: Longs, batches: npt.NDArray[np.void]) -> None:
        """A rebuilt batch's largest timestamp is the largest of its records, its base the first's (R-573, R-574)."""
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        largest = np.maximum.reduceat(found.timestamps_ms, starts)
        rows = batches[of[starts]]
        wrong = (np.maximum(largest, -1) != rows["max_timestamp"]) & (rows["attributes"] & TIMESTAMP_TYPE_FLAG == 0)
        if self._rules.recompressed:
            # A batch that was only packed, or joined, keeps what headers said; other steps may have had them.
            is_here = (rows["base_offset"] >= step.before.batches["base_offset"][0]) & (not step.goes_on)
            wrong &= is_here & ~np.isin(rows["max_timestamp"], step.before.batches["max_timestamp"])
        for row in rows[wrong]:
            self._report_header(step, row, "maxTimestamp is not the largest of its records")
        wrong = (found.timestamps_ms[starts] != rows["base_timestamp"]) & (
            rows["attributes"] & DELETE_HORIZON_FLAG == 0
        )
        if self._rules.recompressed:
            wrong &= is_here & ~np.isin(rows["base_timestamp"], step.before.batches["base_timestamp"])
        for row in rows[wrong]:
            self._report_header(step, row, "baseTimestamp is not that of its first record")

    def _check_emptied(self, step: ProofStep, layout: Layout, changed: Longs) -> None:
        """A batch that lost its records keeps the largest timestamp it had when it lost the last of them (R-575)."""
        first_read = step.before.batches["base_offset"][changed[:1]].min(initial=_END)
        changed = changed[step.partners[changed] >= 0]
        rows = step.before.batches[changed]
        others = step.after.batches[step.partners[changed]]
        is_other = (others["count"] == 0) & (others["max_timestamp"] != rows["max_timestamp"])
        for row, other in zip(rows[is_other], others[is_other], strict=True):
            # Of several batches that became one; the first of them may have been read in the block before.
            first_offset = min(row["base_offset"], other["base_offset"])
            mine = (layout.offsets >= first_offset) & (layout.offsets <= row["last_offset"])
            if first_offset >= first_read and other["max_timestamp"] not in layout.timestamps_ms[mine]:
                self._report_header(step, other, "maxTimestamp is not that of any record it had")

    def _report_header(self, step: ProofStep, row: np.void, reason: str) -> None:
        self._findings.add(RefutationKind.CHANGED, step.after_path, row["position"], row["base_offset"], reason)


def _columns(layout: Layout) -> tuple[npt.NDArray[np.generic], ...]:
    return (
        layout.data,
        layout.timestamps_ms,
        layout.key_starts,
        layout.key_sizes,
        layout.value_starts,
        layout.value_sizes,
        layout.header_starts,
    )


def _headers(layout: Layout, record: int) -> bytes:
    return canonical_headers(layout.data.data[int(layout.header_starts[record]) :])


def _other_difference(layout: Layout, partner: int, found: Layout, record: int) -> int:
    """Return how a record that has lost its value differs besides; SAME if it does not."""
    if layout.timestamps_ms[partner] != found.timestamps_ms[record]:
        return int(kernel.TIMESTAMP_DIFFERS)
    is_same = _headers(layout, partner) == _headers(found, record)
    return int(kernel.SAME if is_same else kernel.HEADERS_DIFFER)
