"""
The settings as values: `TopicConfig` for one topic, `CleanerConfig` for the whole process.

Both are made from a mapping of Kafka's names to texts, checked against `config_table.py`. Where the texts come from,
and which of several wins, is `settings/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cleaner.config_read import SettingReader, check_broker_keys, check_topic_keys
from cleaner.config_table import BROKER_SETTINGS, LONG_MAX, TOPIC_SETTINGS, UNLIMITED_RATE
from cleaner.errors import ConfigError

MIB = 1 << 20
# Bytes of an offset map entry: a 16-byte digest and an 8-byte offset.
MAP_ENTRY_BYTES = 24
# Kafka's map is one Java array.
KAFKA_MAP_CAP_BYTES = 2**31 - 1
# Lanes beyond this many wait for the disk and for their turns.
MOST_DEFAULT_PIPELINE_THREADS = 4
# A batch may unpack to this many times the largest batch a broker takes; no codec on real data comes near.
MAX_EXPANSION = 64


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
            ConfigError: a bad value, a name that looks misspelt, or `min.compaction.lag.ms` above the maximum.
        """
        warnings = check_topic_keys(values)
        read = SettingReader(TOPIC_SETTINGS, values, warnings)
        policy = read.words("cleanup.policy")
        if len(set(policy)) < len(policy):
            warnings.append(f"cleanup.policy={','.join(policy)}: duplicates are dropped")
        segment_bytes = read.integer("segment.bytes")
        if read.is_given("internal.segment.bytes"):
            segment_bytes = read.integer("internal.segment.bytes")
        config = TopicConfig(
            cleanup_policy=frozenset(policy),
            min_cleanable_dirty_ratio=read.real("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=read.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=read.integer("max.compaction.lag.ms"),
            delete_retention_ms=read.integer("delete.retention.ms"),
            segment_bytes=segment_bytes,
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
            preallocate=read.flag("preallocate"),
            compression_type=read.text("compression.type"),
            remote_storage_enable=read.flag("remote.storage.enable"),
            warnings=tuple(warnings),
        )
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            bound = f"must not be above max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            raise ConfigError("min.compaction.lag.ms", config.min_compaction_lag_ms, bound)
        return config


@dataclass(frozen=True)
class CleanerConfig:
    """
    The settings of the process: those of Kafka's cleaner under the names after `log.cleaner.`, and a few of the broker.

    `log_dirs` is empty when the configuration names none. `warnings` are for the operator and no part of the value.
    """

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 * MIB
    io_buffer_size: int = MIB // 2
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = UNLIMITED_RATE
    backoff_ms: int = 15_000
    message_max_bytes: int = 1_048_588
    retention_check_interval_ms: int = 300_000
    initial_task_delay_ms: int = 30_000
    producer_id_expiration_ms: int = 86_400_000
    log_dirs: tuple[str, ...] = ()
    metadata_log_dir: str | None = None
    map_kafka_cap: bool = False
    trust_default_policy: bool = False
    max_decompressed_batch_bytes: int | None = None
    configured_pipeline_threads: int | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def map_bytes(self) -> int:
        """Return the bytes of one thread's offset map (R-523; Kafka's cap only when asked for)."""
        share = self.dedupe_buffer_size // self.threads
        return min(share, KAFKA_MAP_CAP_BYTES) if self.map_kafka_cap else share

    @property
    def slots(self) -> int:
        """Return the entries one thread's offset map has room for (R-520)."""
        return self.map_bytes // MAP_ENTRY_BYTES

    @property
    def key_limit(self) -> int:
        """Return the distinct keys one round takes: floor(slots x load factor) (R-512)."""
        return min(int(self.slots * self.io_buffer_load_factor), self.slots)

    @property
    def pipeline_threads(self) -> int:
        """Return how many threads work on one log side by side."""
        if self.configured_pipeline_threads is not None:
            return self.configured_pipeline_threads
        return min(len(os.sched_getaffinity(0)), MOST_DEFAULT_PIPELINE_THREADS)

    def batch_limit_bytes(self, topic: TopicConfig) -> int:
        """Return the bytes a batch of the topic may unpack to."""
        if self.max_decompressed_batch_bytes is not None:
            return self.max_decompressed_batch_bytes
        return MAX_EXPANSION * max(MIB, self.message_max_bytes, topic.max_message_bytes)

    @staticmethod
    def from_mapping(values: Mapping[str, str]) -> CleanerConfig:
        """
        Make it of a `server.properties` or a smaller file; those not named have Kafka's defaults.

        Topic settings may stand in the same file and are passed over.

        Raises:
            ConfigError: a bad value, a name that looks misspelt, or an offset map without room for a single key.
        """
        warnings = check_broker_keys(values)
        read = SettingReader(BROKER_SETTINGS, values, warnings)
        given_limit = "cleaner.max.decompressed.batch.bytes"
        given_threads = "cleaner.pipeline.threads"
        log_dirs = next((read.words(key) for key in ("log.dirs", "log.dir") if read.is_given(key)), ())
        config = CleanerConfig(
            enable=read.flag("log.cleaner.enable"),
            threads=read.integer("log.cleaner.threads"),
            dedupe_buffer_size=read.integer("log.cleaner.dedupe.buffer.size"),
            io_buffer_size=read.integer("log.cleaner.io.buffer.size"),
            io_buffer_load_factor=read.real("log.cleaner.io.buffer.load.factor"),
            io_max_bytes_per_second=read.real("log.cleaner.io.max.bytes.per.second"),
            backoff_ms=read.integer("log.cleaner.backoff.ms"),
            message_max_bytes=read.integer("message.max.bytes"),
            retention_check_interval_ms=read.integer("log.retention.check.interval.ms"),
            initial_task_delay_ms=read.integer("log.initial.task.delay.ms"),
            producer_id_expiration_ms=read.integer("producer.id.expiration.ms"),
            log_dirs=log_dirs,
            metadata_log_dir=read.text("metadata.log.dir") if read.is_given("metadata.log.dir") else None,
            map_kafka_cap=read.flag("cleaner.map.kafka.cap"),
            trust_default_policy=read.flag("cleaner.trust.default.policy"),
            max_decompressed_batch_bytes=read.integer(given_limit) if read.is_given(given_limit) else None,
            configured_pipeline_threads=read.integer(given_threads) if read.is_given(given_threads) else None,
        )
        config._check_map(warnings)
        return replace(config, warnings=tuple(warnings))

    def _check_map(self, warnings: list[str]) -> None:
        """Refuse what cannot work; only warn of what Kafka would refuse for reasons of its own."""
        if self.io_max_bytes_per_second <= 0:
            raise ConfigError("log.cleaner.io.max.bytes.per.second", self.io_max_bytes_per_second, "must be above 0")
        if self.io_buffer_load_factor <= 0:
            raise ConfigError("log.cleaner.io.buffer.load.factor", self.io_buffer_load_factor, "must be above 0")
        if self.key_limit < 1:
            bound = (
                f"{self.slots} slots of {MAP_ENTRY_BYTES} bytes for each of {self.threads} threads, times the load "
                f"factor {self.io_buffer_load_factor}, must be at least 1"
            )
            raise ConfigError("log.cleaner.dedupe.buffer.size", self.dedupe_buffer_size, bound)
        if self.dedupe_buffer_size // self.threads <= MIB:
            size = self.dedupe_buffer_size
            warnings.append(f"log.cleaner.dedupe.buffer.size={size}: a broker wants more than {MIB} bytes a thread")
        if self.io_buffer_load_factor > 1:
            warnings.append(f"log.cleaner.io.buffer.load.factor={self.io_buffer_load_factor}: taken as 1")
