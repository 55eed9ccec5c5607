"""Which offsets have no record and why, one offset after the other, on files held as bytes: no ranges, no arrays."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tests.reference.batches import Batch, read_batches, read_records


class Span(NamedTuple):
    """An aborted transaction: its producer, its first offset and that of its marker."""

    producer_id: int
    first: int
    last: int


@dataclass(frozen=True)
class Known:
    """What the checkpoints and the settings say; None for a line that is not there."""

    log_start: int | None
    cleaned: int | None
    reached: int
    never_compacted: bool
    in_order: bool = True


@dataclass(frozen=True)
class Account:
    """
    The start of the log, the reason of each offset from there on, and how many below it have which reason.

    An offset with a record has the reason `record`.
    """

    start: int
    reasons: dict[int, str]
    below: dict[str, int]


def _spans(files: Mapping[str, bytes]) -> list[Span]:
    found = []
    for name, data in files.items():
        if name.endswith(".txnindex"):
            for at in range(0, len(data) - 33, 34):
                _, producer, first, last, _ = struct.unpack_from(">hqqqq", data, at)
                found.append(Span(producer, first, last))
    return found


def _is_trace(batch: Batch) -> bool:
    """Only cleaning takes single records out of a batch, and gives it a delete horizon."""
    offsets = [record.offset for record in read_records(batch)]
    first = offsets[0] if batch.magic < 2 else batch.base_offset
    return len(offsets) < batch.last_offset - first + 1 or batch.delete_horizon is not None


def _recorded_start(files: Mapping[str, bytes], known: Known) -> int | None:
    starts = [] if known.log_start is None else [known.log_start]
    lines = files.get("leader-epoch-checkpoint", b"").split(b"\n")
    if len(lines) > 2 and lines[2]:
        starts.append(int(lines[2].split()[1]))
    return max(starts, default=None)


def account(files: Mapping[str, bytes], known: Known) -> Account:
    """Account for a partition whose batches are all sound."""
    bases = sorted(int(name[:20]) for name in files if name.endswith(".log"))
    start = max(bases[0], known.log_start or 0)
    batches = {base: read_batches(files[f"{base:020d}.log"]) for base in bases}
    end = max([bases[-1], start, *(batch.last_offset + 1 for every in batches.values() for batch in every)])
    spans, cleaned = _spans(files), known.cleaned or 0
    recopied = min((base for base in bases if base >= cleaned), default=cleaned)
    traces = [
        (base, batch.last_offset)
        for base in bases
        if base == bases[-1] or bases[bases.index(base) + 1] > start
        for batch in batches[base]
        if batch.last_offset >= max(cleaned, start) and _is_trace(batch)
    ]

    def why_gone(offset: int, base: int) -> str:
        """Say why there is no batch with an offset, in the segment with this base offset."""
        in_span = any(span.first <= offset <= span.last for span in spans)
        by_cleaning = "aborted" if in_span else "compacted"
        if offset < cleaned or any(offset < last for _, last in traces):
            return by_cleaning
        if base != bases[-1] and any(traced == base for traced, _ in traces):
            return by_cleaning
        if offset < recopied and in_span:
            return "aborted"
        return "lost" if known.never_compacted and not traces else "unexplained"

    reasons = {}
    for offset in range(start, end):
        base = max(each for each in bases if each <= offset)
        holder = next((each for each in batches[base] if _first(each) <= offset <= each.last_offset), None)
        reasons[offset] = why_gone(offset, base) if holder is None else _in_batch(holder, offset, spans)
    for offset in range(end, known.reached):
        reasons[offset] = "lost"
    begins = _recorded_start(files, known)
    if begins is None or begins >= bases[0]:
        below = {"retention": start}
    else:
        below = {"retention": begins, "lost" if known.in_order else "unexplained": start - begins}
    return Account(start, reasons, {reason: count for reason, count in below.items() if count})


def _first(batch: Batch) -> int:
    return read_records(batch)[0].offset if batch.magic < 2 else batch.base_offset


def _in_batch(batch: Batch, offset: int, spans: list[Span]) -> str:
    is_hidden = (
        batch.transactional
        and not batch.control
        and any(
            span.producer_id == batch.producer_id and span.first <= batch.base_offset <= span.last for span in spans
        )
    )
    if all(record.offset != offset for record in read_records(batch)):
        return "aborted" if is_hidden else "compacted"
    if batch.control:
        return "markers"
    return "hidden" if is_hidden else "record"
