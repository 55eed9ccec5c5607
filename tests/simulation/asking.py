"""
Judges `plan --who`: its exact figures are those of the truth's book, record by record.

Of each record the book knows the key, whether it has a value, and how its transaction ended. Where it is, and what its
batch weighs, is read with the tests' own reader. Only how far a round may go is taken from the answer, if that can be.
"""

from __future__ import annotations

from pathlib import Path

from cleaner.app.who_log_dir import WhoReport
from tests.reference.batches import read_batches, read_records
from tests.reference.who import Part, shares_of, sums_by, sums_of
from tests.simulation.found import Wrong
from tests.simulation.oracle import Oracle
from tests.simulation.sent import Sent


def judge_who(report: WhoReport, directory: Path, truth: Oracle, high_watermark: int, *, is_compacted: bool) -> bool:
    """
    Judge the answer about a topic that has been read whole; returns whether the book knows enough to do so.

    Args:
        report: the answer.
        directory: the topic's only partition.
        truth: about the topic.
        high_watermark: the partition's line in the checkpoint, 0 without one.
        is_compacted: otherwise nothing is superseded.
    Raises:
        Wrong: it says something else than the book.
    """
    sizes = {int(path.stem): path.stat().st_size for path in sorted(directory.glob("*.log"))}
    total = report.rows[0]
    if total.bytes != sum(sizes.values()):
        raise Wrong(f"who: {total.bytes} bytes of {report.topic}, its files have {sum(sizes.values())}")
    if not total.bytes:
        return False
    end = _end(sizes, total.waiting_bytes) if is_compacted else 0
    batches = [batch for path in sorted(directory.glob("*.log")) for batch in read_batches(path.read_bytes())]
    book: dict[int, Sent] = {sent.offset: sent for sent in truth.sent.values() if sent.offset is not None}
    last: dict[str, int] = {}
    for record in (record for batch in batches if not batch.control for record in read_records(batch)):
        sent = book.get(record.offset)
        if sent is None or outcome_of(sent) is None:
            return False  # a client does not know what a close or a timeout has made of its transaction
        if record.offset < end and outcome_of(sent):
            last[sent.key] = max(last.get(sent.key, -1), record.offset)
    undecided = [offset for offset, sent in book.items() if outcome_of(sent) is None and not sent.is_lost]
    if is_compacted and not undecided and end < max(sizes) <= high_watermark:
        raise Wrong(f"who: a round may clean {report.topic} up to {max(sizes)}, and not only to {end}")
    parts = []
    for batch in batches:
        waits = is_compacted and batch.base_offset >= end
        records = [] if batch.control else read_records(batch)
        for record, size in zip(records, shares_of(batch) if records else [], strict=True):
            sent = book[record.offset]
            if waits:
                parts.append(_part("waiting", size, sent.key if outcome_of(sent) is not False else _ABORTED))
            elif not outcome_of(sent):
                parts.append(_part("aborted", size, _ABORTED))
            elif is_compacted and last[sent.key] != record.offset:
                parts.append(_part("superseded", size, sent.key))
            else:
                parts.append(_part("tombstone" if is_compacted and sent.value is None else "live", size, sent.key))
        if not records:
            parts.append(_part("waiting" if waits else "marker", len(batch.raw), "(markers and empty batches)", 0))
    found = {row.name: sums_of(vars(row)) for row in report.by("key")}
    wanted = sums_by(parts, "key")
    if found != wanted:
        wrong = {name: (found.get(name), wanted.get(name)) for name in found.keys() | wanted.keys()}
        wrong = {name: pair for name, pair in wrong.items() if pair[0] != pair[1]}
        raise Wrong(f"who: of {report.topic} it says, and the book: {wrong}")
    return True


_ABORTED = "(aborted transactions)"


def _part(kind: str, size: int, key: str, records: int = 1) -> Part:
    return Part(kind, size, records, key, "", 0)


def outcome_of(sent: Sent) -> bool | None:
    """Tell whether a record is committed; None: not yet, as far as its client knows."""
    return True if sent.transaction is None else sent.transaction.answered


def _end(sizes: dict[int, int], waiting: int) -> int:
    """Return from which segment on bytes wait; the active one always does."""
    for base in sorted(sizes):
        if sum(size for each, size in sizes.items() if each >= base) == waiting:
            return base
    raise Wrong(f"who: {waiting} bytes wait, which are not those of the last segments: {sizes}")
