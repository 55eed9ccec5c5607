"""What a choice between logs rests on: the logs, their log dirs, and all that holds some of them for now."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleaner.base.model import TopicPartition
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.retry import Retry
from cleaner.policy.states import PartitionState


@dataclass(frozen=True)
class LogFacts:
    """
    What is known of a log; true until the log or its topic's settings change, so it may be kept from turn to turn.

    Attributes:
        partition: whose log.
        log_dir: where it lies.
        cleanable: range and bytes, as of the last look (`min.compaction.lag.ms` makes it a matter of time).
        earliest_dirty_timestamp_ms: see `due.earliest_dirty_timestamp_ms`.
        min_cleanable_dirty_ratio, max_compaction_lag_ms: the topic's settings.
        is_compacted: `compact` is in the topic's policy.
        has_segments_to_delete: retention would remove something now.
        has_unfinished_swap: somebody stopped in the middle of a swap; a load settles it.
        last_round_ms: when its last round ended, well or not; None when that was before this process, or never.
    """

    partition: TopicPartition
    log_dir: str
    cleanable: Cleanable
    earliest_dirty_timestamp_ms: int | None
    min_cleanable_dirty_ratio: float
    max_compaction_lag_ms: int
    is_compacted: bool = True
    has_segments_to_delete: bool = False
    has_unfinished_swap: bool = False
    last_round_ms: int | None = None


class DirCondition(enum.Enum):
    """Whether the logs of a log dir can be worked on."""

    ONLINE = "online"
    OFFLINE = "offline"
    NEEDS_RECOVERY = "needs recovery"
    LOCKED = "in use by another process"


@dataclass(frozen=True)
class LogDirFacts:
    """
    What is known of a log dir.

    Attributes:
        condition: see `DirCondition`.
        detail: what failed, or who holds it, in words.
        not_before_ms: when a locked log dir is tried again; then its logs are candidates like others.
        workers: how many work in it now.
        max_workers: how many may; None: any number.
    """

    condition: DirCondition = DirCondition.ONLINE
    detail: str = ""
    not_before_ms: int = 0
    workers: int = 0
    max_workers: int | None = None


@dataclass(frozen=True)
class SelectionContext:
    """
    All that matters beside the logs themselves.

    Attributes:
        now_ms: the moment of the choice.
        states: the partitions that are not idle (`PartitionStates.not_idle`).
        log_dirs: what is known of log dirs; one not named is online and without limit.
        quarantined: partitions set aside, with the reason (R-452).
        retries: partitions that failed last time.
        requested: partitions somebody asked for, with the number of the request. They go before all others, and
            neither ratio nor window nor retry delay holds them.
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
