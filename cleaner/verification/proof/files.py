"""
Compares a log's small files, which rounds do not change: leader epochs, topic id, producer snapshots.

A broker that loads the log may rewrite them: it truncates epochs to the log, forgets producers that were idle for too
long, removes snapshots and takes new ones (R-123, R-126, R-650, R-652). Entries that are in both logs must be equal.
"""

from __future__ import annotations

import numpy as np

from cleaner.base.model import EpochEntry
from cleaner.errors import CleanerError, CorruptCheckpointError
from cleaner.storage.files.leader_epochs import read_leader_epochs, truncate_from_end, truncate_from_start
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.files.producer_snapshot import SnapshotRows, read_snapshot
from cleaner.storage.segment import names
from cleaner.verification.proof.findings import Findings, RefutationKind
from cleaner.verification.proof.rules import ProofRules
from cleaner.verification.proof.side import LogSide


def check_files(before: LogSide, after: LogSide, rules: ProofRules, log_end_offset: int, findings: Findings) -> None:
    """
    Compare the small files of two logs.

    Args:
        log_end_offset: of both.
    Raises:
        CorruptCheckpointError: a file of the log before cannot be read.
    """
    try:
        _compare_epochs(before, after, log_end_offset, findings)
        _compare_topic_ids(before, after, findings)
    except CorruptCheckpointError as error:
        if error.path.parent != after.directory or before.directory == after.directory:
            raise
        findings.add(RefutationKind.DAMAGED, error.path, error.position, 0, error.reason)
    _compare_snapshots(before, after, rules, log_end_offset, findings)


def _compare_epochs(before: LogSide, after: LogSide, log_end_offset: int, findings: Findings) -> None:
    def entries(side: LogSide) -> list[EpochEntry]:
        found = read_leader_epochs(side.fs, side.directory / names.LEADER_EPOCHS)
        return truncate_from_end(truncate_from_start(found, after.log_start_offset), log_end_offset)

    expected, found = entries(before), entries(after)
    # A log that no current broker has loaded may have none.
    if expected and expected != found:
        wrong = sorted(set(expected) ^ set(found))
        offset = min(entry.start_offset for entry in wrong)
        path = after.directory / names.LEADER_EPOCHS
        findings.add(RefutationKind.LEADER_EPOCHS, path, 0, offset, "the leader epochs have changed")


def _compare_topic_ids(before: LogSide, after: LogSide, findings: Findings) -> None:
    path = after.directory / names.PARTITION_METADATA
    expected = read_topic_id(before.fs, before.directory / names.PARTITION_METADATA)
    if expected is not None and read_topic_id(after.fs, path) != expected:
        findings.add(
            RefutationKind.PARTITION_METADATA, path, 0, 0, "the topic id has changed: brokers set the log aside"
        )


def _compare_snapshots(
    before: LogSide, after: LogSide, rules: ProofRules, log_end_offset: int, findings: Findings
) -> None:
    theirs, ours = _snapshots(before, log_end_offset), _snapshots(after, log_end_offset)
    if theirs and max(theirs) > max(ours, default=-1):
        reason = "the newest producer snapshot is missing: a broker would forget all producers"
        findings.add(
            RefutationKind.SNAPSHOT, after.directory / names.snapshot_file_name(max(theirs)), 0, max(theirs), reason
        )
    for offset, found in ours.items():
        path = after.directory / names.snapshot_file_name(offset)
        expected = theirs.get(offset)
        if found is None:
            findings.add(RefutationKind.SNAPSHOT, path, 0, offset, "a producer snapshot that cannot be read")
        elif expected is not None:
            for producer_id in _differing(expected, found, rules):
                reason = f"its state of producer {producer_id} has changed"
                findings.add(RefutationKind.SNAPSHOT, path, 0, offset, reason)


def _snapshots(side: LogSide, log_end_offset: int) -> dict[int, SnapshotRows | None]:
    """Return the snapshots that a load would read, by offset; None for one that cannot be read."""
    found: dict[int, SnapshotRows | None] = {}
    for offset in names.offsets_of(side.fs.list_files(side.directory), names.SNAPSHOT):
        # If retention has left no record, the log starts and ends at its only snapshot.
        if side.log_start_offset < offset <= log_end_offset or offset == log_end_offset:
            try:
                found[offset] = read_snapshot(side.fs, side.directory / names.snapshot_file_name(offset))
            except CleanerError:
                found[offset] = None
    return found


def _differing(expected: SnapshotRows, found: SnapshotRows, rules: ProofRules) -> list[int]:
    """Return the producers whose state differs in two snapshots; an expired one may be missing (R-652)."""
    theirs, ours = ({int(row["producer_id"]): row for row in rows} for rows in (expected, found))
    missing = {each for each in theirs.keys() - ours.keys() if not _may_be_forgotten(theirs[each], rules)}
    changed = {each for each in theirs.keys() & ours.keys() if theirs[each] != ours[each]}
    return sorted(missing | changed | (ours.keys() - theirs.keys()))


def _may_be_forgotten(row: np.void, rules: ProofRules) -> bool:
    has_expired = rules.now_ms - int(row["timestamp_ms"]) >= rules.producer_expiration_ms
    return has_expired and int(row["current_txn_first_offset"]) < 0
