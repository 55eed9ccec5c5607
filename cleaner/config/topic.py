"""The settings of one topic as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cleaner.base.mistakes import Mistakes
from cleaner.config.read import SettingReader, check_topic_keys
from cleaner.config.table import LONG_MAX, TOPIC_SETTINGS
from cleaner.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True)
class TopicConfig:
    """
    The settings of one topic, under Kafka's names in snake case; the defaults are Kafka's.

    `segment_bytes` is what counts for rolling and grouping: `internal.segment.bytes` where that is set (R-807).
    `warnings` are for the operator and no part of the value.
    """

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    preallocate: bool = False
    compression_type: str = "producer"
    remote_storage_enable: bool = False
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def compact(self) -> bool:
        """Tell whether the log is compacted (R-803)."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Tell whether old segments are deleted (R-803)."""
        return "delete" in self.cleanup_policy

    @property
    def is_tiered(self) -> bool:
        """Tell whether part of the log may be in remote storage: never where it is compacted (R-808)."""
        return self.remote_storage_enable and not self.compact

    @property
    def max_segment_ms(self) -> int:
        """Return the age at which a segment is rolled, milliseconds (R-804)."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms

    @staticmethod
    def from_mapping(values: Mapping[str, str]) -> TopicConfig:
        """
        Make it of a topic's settings; those not named have Kafka's defaults.

        Broker names (`log.segment.bytes`) are taken for the topic setting they stand for, with a warning; the
        topic's own name wins where both are given.

        Raises:
            ConfigError: bad values, names that look misspelt, or `min.compaction.lag.ms` above the maximum; all of
                them in one error.
        """
        warnings: list[str] = []
        mistakes = Mistakes()
        with mistakes.collected():
            warnings += check_topic_keys(values)
        read = SettingReader(TOPIC_SETTINGS, values, warnings, mistakes)
        policy = read.words("cleanup.policy")
        if len(set(policy)) < len(policy):
            warnings.append(f"cleanup.policy={','.join(policy)}: duplicates are dropped")
        segment_bytes = read.integer("segment.bytes")
        internal_segment_bytes = read.optional_integer("internal.segment.bytes")
        config = TopicConfig(
            cleanup_policy=frozenset(policy),
            min_cleanable_dirty_ratio=read.real("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=read.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=read.integer("max.compaction.lag.ms"),
            delete_retention_ms=read.integer("delete.retention.ms"),
            segment_bytes=segment_bytes if internal_segment_bytes is None else internal_segment_bytes,
            segment_ms=read.integer("segment.ms"),
            segment_jitter_ms=read.integer("segment.jitter.ms"),
            segment_index_bytes=read.integer("segment.index.bytes"),
            index_interval_bytes=read.integer("index.interval.bytes"),
            max_message_bytes=read.integer("max.message.bytes"),
            retention_ms=read.integer("retention.ms"),
            retention_bytes=read.integer("retention.bytes"),
            file_delete_delay_ms=read.integer("file.delete.delay.ms"),
            flush_messages=read.integer("flush.messages"),
            flush_ms=read.integer("flush.ms"),
            message_timestamp_type=read.text("message.timestamp.type"),
            message_timestamp_before_max_ms=read.integer("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=read.integer("message.timestamp.after.max.ms"),
            preallocate=read.flag("preallocate"),
            compression_type=read.text("compression.type"),
            remote_storage_enable=read.flag("remote.storage.enable"),
            warnings=tuple(warnings),
        )
        lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
        if read.is_sound(*lags) and config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            bound = f"must not be above max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            mistakes.add(ConfigError("min.compaction.lag.ms", config.min_compaction_lag_ms, bound))
        mistakes.raise_any()
        return config
