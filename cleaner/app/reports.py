"""The results of `clean` and `recover`: frozen values, printed unchanged by `--format json`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.base.model import Removed
from cleaner.errors import CleanerError

SUMS = (
    *("bytes_read", "bytes_written", "bytes_in_place", "messages_read", "messages_written"),
    *("map_bytes_read", "map_messages_read"),
)
"""Fields of `CleanReport` that add up, over rounds and over logs."""

HELD_SUMS = ("held_tombstones", "held_markers")
"""The same for what a safe offset has held."""

OWN_RULE_SUMS = ("outranked_records", "expired_records")
"""The same for what the topic's own rules have left out."""

UNREAD_SUMS = ("bytes_read_once", "segments_unread", "bytes_unread", "index_bytes_read", "index_bytes_written")
"""The same for what was not read, and for key indexes."""

PACKED_SUMS = ("batches_packed", "batches_joined", "packed_bytes_before", "packed_bytes_after")
"""The same for batches that were packed in another way (`--recompress`)."""


@dataclass(frozen=True)
class KeptDamage:
    """
    A damaged batch that a round has copied unchanged (`--damaged keep`).

    Attributes:
        path, position: the `.log` that held it before the round, and the byte position in it.
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
        first_uncleanable_offset: the exclusive end of the cleanable range.
        end_offset: the exclusive end of the clean part now; the new line in `cleaner-offset-checkpoint`. Equal to
            `first_dirty_offset` if nothing was cleaned.
        rounds: how many were run.
        bytes_read, messages_read: of the recopied segments, clean and dirty section.
        bytes_written, messages_written: of the segments that replaced them.
        bytes_in_place: of `bytes_written`, those of segments in which nothing changed: nothing was written for them.
        map_bytes_read, map_messages_read: of the dirty section, read for the offset map.
        bytes_read_once: of `bytes_read`, those of segments that were read for the offset map alone: nothing in them
            changes, which it showed.
        segments_unread, bytes_unread: left as they were without being read, by their key indexes.
        index_bytes_read, index_bytes_written: of key indexes.
        map_utilization: entries of the offset map as a part of its capacity, the highest of all rounds.
        invalid_messages: records without a key that were left out.
        removed: records left out, by reason.
        rounds_remaining: an estimate of how many more rounds like the last one would reach
            `first_uncleanable_offset`; 0 when it was reached.
        map_seconds, copy_seconds, elapsed_seconds: for building the map, recopying, and in total with loading and
            closing.
        retention_deleted_segments: what `--retention` deleted.
        safe_offset: with `--safe-tombstones`, the offset from which on tombstones and markers stayed; None without.
        held_tombstones, held_markers: those whose time had come and that stayed only for that; sums over the rounds.
        note: why nothing, or not everything, was cleaned; may be empty.
        warnings: such as settings that look wrong.
        kept_damage: damaged batches that the last round has copied.
        kafka, kafka_origin: the Kafka version whose rules applied, and why that one.
        high_watermark: the one used, limited to the log; the rules of 4.4 depend on it (R-548).
        recompress: how batches that stay were packed: `zstd`, `zstd:LEVEL`, `lz4`, `none`; empty: they were not, as in
            Kafka.
        batches_packed: batches that were packed in another way; they are no longer those that Kafka would have left.
        batches_joined: so many of them became part of another.
        packed_bytes_before, packed_bytes_after: of all these batches.
        next_horizon_ms: with `cleaner.quiet.cleaning` and nothing dirty, the first delete horizon that has not passed;
            None: not looked for.
        key_view: the topic's `cleaner.key.view`; empty without one: keys were compared as Kafka does.
        survivor: the topic's `cleaner.survivor`; empty if it is `offset`, as with Kafka.
        outranked_records: last records of their keys that went, because an earlier one stays; Kafka keeps them.
        record_ttl_ms: the topic's `cleaner.record.ttl.ms`; None without one.
        expired_records: became tombstones, because they were older than that; Kafka keeps them.
        merged_keys: keys that were only another writing of a key with a later record, whose records Kafka's cleaner
            would have kept; None if they could not be counted, because of damage.
    """

    partition: str
    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    rounds: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_in_place: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read_once: int = 0
    segments_unread: int = 0
    bytes_unread: int = 0
    index_bytes_read: int = 0
    index_bytes_written: int = 0
    map_utilization: float = 0.0
    invalid_messages: int = 0
    removed: Removed = field(default_factory=Removed)
    rounds_remaining: int = 0
    map_seconds: float = 0.0
    copy_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    retention_deleted_segments: int = 0
    note: str = ""
    warnings: tuple[str, ...] = ()
    kept_damage: tuple[KeptDamage, ...] = ()
    kafka: str = ""
    kafka_origin: str = ""
    high_watermark: int = 0
    recompress: str = ""
    batches_packed: int = 0
    batches_joined: int = 0
    packed_bytes_before: int = 0
    packed_bytes_after: int = 0
    next_horizon_ms: int | None = None
    safe_offset: int | None = None
    held_tombstones: int = 0
    held_markers: int = 0
    key_view: str = ""
    merged_keys: int | None = 0
    survivor: str = ""
    outranked_records: int = 0
    record_ttl_ms: int | None = None
    expired_records: int = 0


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
    """A partition that was not cleaned, or only in part, and the error that says why: groups swapped before it stay."""

    partition: str
    error: CleanerError


@dataclass(frozen=True)
class Skipped:
    """
    A partition that was not named and was skipped.

    Attributes:
        partition: as its directory is named.
        reason: why.
        is_doubtful: only a default says that it is compacted; the operator should decide.
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
        has_marker: the log dir now has a clean-shutdown marker; a broker starts without recovery.
        note: why it has none; a broker will recover when it starts.
    """

    partitions: tuple[RecoveredPartition, ...]
    refused: tuple[Refusal, ...] = field(default=())
    has_marker: bool = False
    note: str = ""
