"""
Judges `gaps`: its account is that of the truth's book, and a batch that somebody has cut out is missed.

Of each offset the book knows whether a record was sent there, how its transaction ended and whether it was erased.
Where the log begins, and which records and markers are still there, is read with the tests' own reader. What has
neither must have been removed by a round, and is not lost; only above the checkpoint, where rounds may have ended
early, the account may be in doubt.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from cleaner.app.gaps_log_dir import GapReport
from cleaner.storage.segment import names
from cleaner.verification.gaps.reasons import BAD_REASONS, GapReason
from tests.reference.batches import read_batches
from tests.simulation.asking import outcome_of
from tests.simulation.found import Found, Wrong
from tests.simulation.oracle import Oracle


def judge_gaps(
    report: GapReport, directory: Path, truth: Oracle, checkpoints: Mapping[str, int], *, is_compacted: bool
) -> bool:
    """
    Judge the account of a log that was closed in order; returns whether the book knows enough to do so.

    Args:
        report: the account.
        directory: the partition's.
        truth: about it.
        checkpoints: its lines in the checkpoints of the log dir.
        is_compacted: otherwise no round removes anything.
    Raises:
        Wrong: it says something else than the book.
    """
    if truth.rots.names:
        return False
    found, checkpoint = Found.of(directory), checkpoints.get(names.CLEANER_CHECKPOINT, 0)
    lowest = min(int(path.stem) for path in directory.glob("*.log"))
    start = max(lowest, checkpoints.get(names.LOG_START_CHECKPOINT, 0))
    book = {sent.offset: sent for sent in truth.sent.values() if sent.offset is not None and not sent.is_lost}
    shown = hidden = 0
    for offset in found.records:
        outcome = outcome_of(book[offset]) if offset in book else None
        if outcome is None:
            return False  # a client does not know what a close or a timeout has made of its transaction
        if offset >= start:
            shown, hidden = shown + outcome, hidden + (not outcome)
    markers = {at for at, _, _ in found.markers}
    missing = set(range(start, found.end)) - found.records.keys() - markers
    erased = {offset for offset in missing if offset in book and book[offset].erasure}
    doubtful = erased | {offset for offset in missing if offset >= checkpoint or not is_compacted}
    bad = sum(report.offsets_of(reason) for reason in BAD_REASONS)
    explained = report.offsets_of(GapReason.COMPACTED) + report.offsets_of(GapReason.ABORTED)
    has_aborted = any(outcome_of(sent) is not True for sent in truth.sent.values())
    told = {
        "records": (report.records, shown),
        "hidden": (report.offsets_of(GapReason.HIDDEN), hidden),
        "markers": (report.offsets_of(GapReason.MARKERS), sum(at >= start for at in markers)),
        "below the start": (report.offsets_of(GapReason.RETENTION), start),
        "missing": (explained + bad, len(missing)),
        "end": (report.end_offset, found.end),
    }
    wrong = {name: pair for name, pair in told.items() if pair[0] != pair[1]}
    if wrong:
        raise Wrong(f"gaps: of {report.partition} it says, and the book: {wrong}")
    if bad > len(doubtful):
        raise Wrong(f"gaps: {bad} offsets of {report.partition} are called lost, {len(doubtful)} may be: {report.gaps}")
    if report.offsets_of(GapReason.ABORTED) and not has_aborted:
        raise Wrong(f"gaps: of {report.partition} nothing was aborted")
    return True


def cut_out(log_dir: Path, copy: Path, name: str) -> int:
    """
    Copy a log dir, and cut a batch with records out of a log's active segment, but not its last one.

    Returns:
        how many offsets it had; 0 if there is no such batch.
    """
    shutil.copytree(log_dir, copy)
    path = max((copy / name).glob("*.log"))
    batches = read_batches(path.read_bytes())
    at = next((number for number, batch in enumerate(batches[:-1]) if batch.count and not batch.control), None)
    if at is None:
        return 0
    path.write_bytes(b"".join(batch.raw for number, batch in enumerate(batches) if number != at))
    return batches[at].last_offset - batches[at].base_offset + 1


def judge_cut(before: GapReport, after: GapReport, offsets: int) -> None:
    """
    Judge the account of the copy: the offsets are missing now, and no rule explains it.

    Raises:
        Wrong: they are not, or are explained.
    """
    bad = [sum(each.offsets_of(reason) for reason in BAD_REASONS) for each in (before, after)]
    if bad[1] != bad[0] + offsets:
        raise Wrong(f"gaps: {offsets} offsets of {after.partition} were cut out, {bad[0]} were missed, now {bad[1]}")
    if after.is_complete:
        raise Wrong(f"gaps: {after.partition} is complete, without {offsets} offsets")
