"""The input for choosing a log: the logs, their log dirs, and everything that holds some of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cleaner.base.model import TopicPartition
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.retry import Retry
from cleaner.policy.states import PartitionState


@dataclass(frozen=True)
class LogFacts:
    """
    Facts of a log; valid until the log or its topic's settings change, so they may be kept from turn to turn.

    Attributes:
        partition: the log's partition.
        log_dir: its log dir.
        cleanable: range and bytes, as of the last inspection (with `min.compaction.lag.ms` they change with time).
        earliest_dirty_timestamp_ms: see `due.earliest_dirty_timestamp_ms`.
        min_cleanable_dirty_ratio, max_compaction_lag_ms: the topic's settings.
        is_compacted: `compact` is in the topic's policy.
        has_segments_to_delete: retention would delete something now.
        unfinished_swap: what a process that stopped in a swap has left for a load to settle, in words; empty: nothing.
        last_round_ms: when its last round ended, successful or not; None if before this process started, or never.
        has_clean_section: see `cleanable.has_clean_section`.
        lacks_high_watermark: `replication-offset-checkpoint` has no line for it (D-03).
        takes_whole_log, expires_after_ms: by the topic's settings; see `TopicConfig`.
        next_horizon_ms: when a round is due although nothing is dirty; None: never (`cleaner.quiet.cleaning`).
    """

    partition: TopicPartition
    log_dir: str
    cleanable: Cleanable
    earliest_dirty_timestamp_ms: int | None
    min_cleanable_dirty_ratio: float
    max_compaction_lag_ms: int
    is_compacted: bool = True
    has_segments_to_delete: bool = False
    unfinished_swap: str = ""
    last_round_ms: int | None = None
    next_horizon_ms: int | None = None
    has_clean_section: bool = False
    lacks_high_watermark: bool = False
    takes_whole_log: bool = False
    expires_after_ms: int | None = None


class Horizons(NamedTuple):
    """
    What a round has found of the delete horizons in a log's clean section.

    Attributes:
        first_dirty_offset: where that section ends.
        settled_ms: horizons up to it have had their effect.
        next_ms: the first one above.
        expires_after_ms: by which age of records; with another one all this is unknown.
    """

    first_dirty_offset: int
    settled_ms: int
    next_ms: int
    expires_after_ms: int | None = None


class DirCondition(enum.Enum):
    """Whether the logs of a log dir can be worked on; UNREAD: it has not answered yet, and no look has ended."""

    ONLINE = "online"
    UNREAD = "not read yet"
    OFFLINE = "offline"
    NEEDS_RECOVERY = "needs recovery"
    LOCKED = "in use by another process"


@dataclass(frozen=True)
class LogDirFacts:
    """
    Facts of a log dir.

    Attributes:
        condition: see `DirCondition`.
        detail: what failed, or who holds it, as text.
        not_before_ms: when a locked log dir is tried again; then its logs are candidates like others.
        workers: how many workers it has now.
        max_workers: how many it may have; None: any number.
    """

    condition: DirCondition = DirCondition.ONLINE
    detail: str = ""
    not_before_ms: int = 0
    workers: int = 0
    max_workers: int | None = None


@dataclass(frozen=True)
class SelectionContext:
    """
    Everything that matters for the choice besides the logs.

    Attributes:
        now_ms: the time of the choice.
        states: the partitions that are not idle (`PartitionStates.not_idle`).
        log_dirs: facts of log dirs; others are online and without limit.
        quarantined: quarantined partitions, with the reason (R-452).
        retries: partitions that failed last time.
        requested: partitions requested by an operator, with the number of the request. They come before all others,
            and neither ratio nor window nor retry delay holds them.
        is_enabled: `log.cleaner.enable`.
        is_paused: the operator has paused all cleaning.
        opens_at_ms: when the next window opens; None: one is open.
    """

    now_ms: int
    states: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    log_dirs: Mapping[str, LogDirFacts] = field(default_factory=dict)
    quarantined: Mapping[TopicPartition, str] = field(default_factory=dict)
    retries: Mapping[TopicPartition, Retry] = field(default_factory=dict)
    requested: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_enabled: bool = True
    is_paused: bool = False
    opens_at_ms: int | None = None
