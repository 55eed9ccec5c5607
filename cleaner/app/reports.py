"""What `clean` and `recover` give back: frozen values, printed as they are by `--format json`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.errors import CleanerError


@dataclass(frozen=True)
class Removed:
    """
    Records that a cleaning left out, by reason.

    Attributes:
        superseded: a later record has the same key.
        tombstones: null values past their delete horizon.
        aborted: data of aborted transactions.
        markers: transaction markers past their delete horizon.
        keyless: records without a key, which a compacted topic should not hold; Kafka counts them as invalid.
    """

    superseded: int = 0
    tombstones: int = 0
    aborted: int = 0
    markers: int = 0
    keyless: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.superseded + self.tombstones + self.aborted + self.markers + self.keyless


@dataclass(frozen=True)
class KeptDamage:
    """
    A damaged batch that a round has carried over as it is (`--damaged keep`).

    Attributes:
        path, position: where it was before the round: the `.log`, and where in it, in bytes.
        base_offset, last_offset: of the batch.
        reason: what is wrong with it.
    """

    path: str
    position: int
    base_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True)
class CleanReport:
    """
    What cleaning one partition did; sums over its rounds.

    Attributes:
        partition: as its directory is named.
        first_dirty_offset: where the dirty section began.
        first_uncleanable_offset: the exclusive end of what could be cleaned.
        end_offset: up to where the log is clean now, exclusive; the new line in `cleaner-offset-checkpoint`. Equal to
            `first_dirty_offset` when nothing was cleaned.
        rounds: how many were run.
        bytes_read, messages_read: of the segments recopied, clean section and dirty.
        bytes_written, messages_written: of what took their place.
        map_bytes_read, map_messages_read: of the dirty section, read for the offset map.
        map_utilization: entries of the offset map as a part of those it may take, the most of any round.
        invalid_messages: records without a key that were left out.
        removed: what was left out and why.
        rounds_remaining: an estimate of how many more rounds like the last one would reach
            `first_uncleanable_offset`; 0 when it was reached.
        map_seconds, copy_seconds, elapsed_seconds: building the map, recopying, and all with loading and closing.
        retention_deleted_segments: what `--retention` deleted.
        note: why nothing was cleaned, or why less than everything; empty when there is nothing to say.
        warnings: settings that look wrong and the like.
        kept_damage: damaged batches that the last round has carried over.
    """

    partition: str
    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    rounds: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    map_utilization: float = 0.0
    invalid_messages: int = 0
    removed: Removed = Removed()
    rounds_remaining: int = 0
    map_seconds: float = 0.0
    copy_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    retention_deleted_segments: int = 0
    note: str = ""
    warnings: tuple[str, ...] = ()
    kept_damage: tuple[KeptDamage, ...] = ()


@dataclass(frozen=True)
class RecoveredPartition:
    """
    One partition after recovery.

    Attributes:
        partition: as its directory is named.
        log_start_offset, log_end_offset: as recovered.
        bytes_before, bytes_after: of its `.log` files.
        elapsed_seconds: for this partition.
    """

    partition: str
    log_start_offset: int
    log_end_offset: int
    bytes_before: int
    bytes_after: int
    elapsed_seconds: float


@dataclass(frozen=True)
class Refusal:
    """A partition that was left as it is, and the error that says why."""

    partition: str
    error: CleanerError


@dataclass(frozen=True)
class Skipped:
    """
    A partition that nobody named and that was passed over.

    Attributes:
        partition: as its directory is named.
        reason: why.
        is_doubtful: it is said to be compacted, but only by a default; the operator should decide.
    """

    partition: str
    reason: str
    is_doubtful: bool = False


@dataclass(frozen=True)
class RecoverReport:
    """
    What `recover` did.

    Attributes:
        partitions: those recovered, in order of their names.
        refused: those that were not.
        has_marker: the log dir has a clean-shutdown marker now; a broker starts without recovery.
        note: why there is none; a broker will recover when it starts.
    """

    partitions: tuple[RecoveredPartition, ...]
    refused: tuple[Refusal, ...] = field(default=())
    has_marker: bool = False
    note: str = ""
