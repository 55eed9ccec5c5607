"""The results of `check --replicas`: frozen values, printed unchanged by `--format json`."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.app.safe_tombstones import SafePoint
from cleaner.verification.replicas.findings import Disagreement


@dataclass(frozen=True)
class ComparedReplica:
    """
    A replica.

    Attributes:
        path: its directory.
        log_start_offset, log_end_offset: of its log.
        high_watermark: its line in `replication-offset-checkpoint`; None without one.
        records, bytes: read.
        needs_tombstones, first_needed_offset: how many keys have a tombstone elsewhere that it has not come to, and the
            first of these; None without any.
    """

    path: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    records: int
    bytes: int
    needs_tombstones: int = 0
    first_needed_offset: int | None = None


@dataclass(frozen=True)
class ReplicaDifference:
    """
    What two replicas disagree about.

    Attributes:
        kind: what is different.
        meaning: the same in words.
        offset: of the last record of the key, of the marker, or of the first aborted record.
        has_it: the directory that has it.
        departs: the directory that does not.
        other_offset: of the older record of the key there, or of the transaction's first record; None without one.
        key: as text, escaped where it is none; None for transactions.
        key_base64: the key's bytes.
    """

    kind: Disagreement
    meaning: str
    offset: int
    has_it: str
    departs: str
    other_offset: int | None
    key: str | None
    key_base64: str | None


@dataclass(frozen=True)
class Parting:
    """
    Where replicas stop agreeing.

    Attributes:
        offset: the first that shows it; nothing from there on is compared.
        replicas: two directories that contradict each other.
        reason: in words.
        is_above_high_watermark: nothing that was committed is concerned.
    """

    offset: int
    replicas: tuple[str, str]
    reason: str
    is_above_high_watermark: bool


@dataclass(frozen=True)
class ReplicasReport:
    """
    The comparison of one partition.

    Attributes:
        partition: as its directory is named.
        agrees: nothing is different that compaction may not make different.
        end_offset: below it they were compared: the end of the shortest, or where they part.
        keys: different ones below it.
        replicas: in the order given.
        parting: where they stop agreeing; None if they do not.
        differences: those with the lowest offsets, at most a thousand.
        total_differences: how many there are, by kind.
        safe: below which offset tombstones may go.
        notes: what else the operator should know, in words.
    """

    partition: str
    agrees: bool
    end_offset: int
    keys: int
    replicas: tuple[ComparedReplica, ...]
    parting: Parting | None
    differences: tuple[ReplicaDifference, ...]
    total_differences: dict[str, int]
    safe: SafePoint
    notes: tuple[str, ...] = ()
