"""
The settings as values: `TopicConfig` for one topic, `CleanerConfig` for the whole process.

Both are made from a mapping of Kafka's names to texts, checked against the table (`table.py`). `settings/` decides
where the texts come from, and which of several wins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cleaner.base.key_views import NO_VIEW, key_view_of
from cleaner.base.mistakes import Mistakes
from cleaner.base.sizes import human_bytes, slow_rate
from cleaner.config.bulk_settings import SPARK_PREFIX, BulkSettings
from cleaner.config.daemon_settings import DaemonSettings
from cleaner.config.forms import LOG_DIR_RATES_KEY, OFFSET_SURVIVES, parse_address
from cleaner.config.process_settings import ProcessSettings
from cleaner.config.read import SettingReader, check_broker_keys, check_topic_keys
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.config.topic_settings import KEY_VIEW_KEY, TopicSettings
from cleaner.config.writer_settings import WriterSettings
from cleaner.errors import ConfigError

__all__ = ["MIB", "CleanerConfig", "TopicConfig"]

MIB = 1 << 20
# Bytes of an offset map entry: a 16-byte digest and an 8-byte offset.
MAP_ENTRY_BYTES = 24
NUMBERED_ENTRY_BYTES = 32
"""With a survivor rule that compares numbers, which are kept beside each entry."""

# Kafka's map is one Java array.
KAFKA_MAP_CAP_BYTES = 2**31 - 1
# More lanes would only wait for the disk and for their turns.
MAX_DEFAULT_PIPELINE_THREADS = 4
_LOAD_FACTOR_KEY = "log.cleaner.io.buffer.load.factor"
# `sun_path` of a UNIX socket's address holds 108 bytes, the last of them zero.
MAX_SOCKET_PATH_BYTES = 107
# A batch may unpack to this many times the largest batch a broker accepts; real data never comes near.
MAX_EXPANSION = 64


@dataclass(frozen=True)
class TopicConfig(TopicSettings):
    """
    The settings of one topic, under Kafka's names in snake case; the defaults are Kafka's.

    `segment_bytes` is the effective value for rolling and grouping: `internal.segment.bytes` if that is set (R-807).
    `warnings` are for the operator and not part of the value.
    """

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
    def takes_whole_log(self) -> bool:
        """
        Tell whether all of the log counts as dirty in each round, whatever the checkpoint.

        With a key view: rounds without it may have left two writings of a key in the clean section. With a survivor
        rule that compares numbers: a record of the clean section may stay where a later one comes.
        """
        return self.key_view != NO_VIEW or self.survivor != OFFSET_SURVIVES

    @property
    def expires_after_ms(self) -> int | None:
        """Return the age at which records become tombstones; None: they do not."""
        return None if self.record_ttl_ms < 0 else self.record_ttl_ms

    def expire_before_ms(self, now_ms: int) -> int | None:
        """Return the last timestamp of records that become tombstones at a moment; None: they do not."""
        return None if self.expires_after_ms is None else now_ms - self.expires_after_ms

    @property
    def map_entry_bytes(self) -> int:
        """Return the bytes of an entry in the offset map."""
        return NUMBERED_ENTRY_BYTES if self.own_survivor else MAP_ENTRY_BYTES

    @property
    def own_survivor(self) -> str:
        """Return the survivor rule if it is not Kafka's; otherwise an empty text."""
        return "" if self.survivor == OFFSET_SURVIVES else self.survivor

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
        Create it from a topic's settings; others have Kafka's defaults.

        Broker names (`log.segment.bytes`) count as the topic setting they mean, with a warning; the topic's own name
        wins if both are given.

        Raises:
            ConfigError: bad values, names that look misspelt, or `min.compaction.lag.ms` above the maximum; all of
                them in one error.
        """
        warnings: list[str] = []
        mistakes = Mistakes()
        with mistakes.collected():
            warnings += check_topic_keys(values)
        read = SettingReader(TOPIC_SETTINGS, values, warnings, mistakes)
        config = TopicConfig(**read.fields(TopicSettings))
        if read.is_sound(KEY_VIEW_KEY):
            try:
                key_view_of(config.key_view)
            except LookupError as error:
                mistakes.add(ConfigError(KEY_VIEW_KEY, config.key_view, str(error)))
        policy = read.words("cleanup.policy")
        if len(set(policy)) < len(policy):
            warnings.append(f"cleanup.policy={','.join(policy)}: duplicates are dropped")
        lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
        if read.is_sound(*lags) and config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            bound = f"must not be above max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            mistakes.add(ConfigError("min.compaction.lag.ms", config.min_compaction_lag_ms, bound))
        mistakes.raise_any()
        segment_bytes = config.segment_bytes if config.internal_segment_bytes is None else config.internal_segment_bytes
        return replace(config, segment_bytes=segment_bytes, warnings=tuple(warnings))


@dataclass(frozen=True)
class CleanerConfig(DaemonSettings, BulkSettings, WriterSettings, ProcessSettings):
    """
    The settings of the process: those of Kafka's cleaner under the names after `log.cleaner.`, and a few of the broker.

    Settings of log writers are named likewise, our own without `cleaner.`. `log_dirs` is empty if the configuration
    names none; `windows` and `windows_time_zone` are as written, see `settings.windows_of`. `spark` has the settings
    that are passed on to Spark unchanged. `warnings` are for the operator and not part of the value.
    """

    spark: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def map_bytes(self) -> int:
        """Return the bytes of one thread's offset map (R-523; with Kafka's cap only if the setting asks for it)."""
        share = self.dedupe_buffer_size // self.threads
        return min(share, KAFKA_MAP_CAP_BYTES) if self.map_kafka_cap else share

    @property
    def slots(self) -> int:
        """Return how many entries fit into one thread's offset map (R-520)."""
        return self.map_bytes // MAP_ENTRY_BYTES

    @property
    def key_limit(self) -> int:
        """Return the distinct keys one round takes: floor(slots x load factor) (R-512)."""
        return min(int(self.slots * self.io_buffer_load_factor), self.slots)

    def slots_of(self, topic: TopicConfig) -> int:
        """Return how many entries of a topic fit into one thread's offset map."""
        return self.map_bytes // topic.map_entry_bytes

    def key_limit_of(self, topic: TopicConfig) -> int:
        """Return the distinct keys of a topic that one round takes, at least one."""
        return max(1, self.key_limit * MAP_ENTRY_BYTES // topic.map_entry_bytes)

    @property
    def pipeline_threads(self) -> int:
        """Return how many threads work on one log in parallel."""
        if self.configured_pipeline_threads is not None:
            return self.configured_pipeline_threads
        return min(len(os.sched_getaffinity(0)), MAX_DEFAULT_PIPELINE_THREADS)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Return host and port to listen on; None: no HTTP."""
        return parse_address(self.http_listen)

    @property
    def control_socket(self) -> str:
        """Return the path of the control socket."""
        return self.configured_control_socket or str(Path(self.state_dir) / "control.sock")

    @property
    def bulk_work_dir(self) -> str:
        """Return where bulk jobs keep their state."""
        return self.configured_bulk_work_dir or str(Path(self.state_dir) / "bulk")

    @property
    def retry_max_ms(self) -> int:
        """Return the longest delay after failures: never below the backoff, which is the first delay."""
        return max(self.configured_retry_max_ms, self.backoff_ms)

    def batch_limit_bytes(self, topic: TopicConfig) -> int:
        """Return the bytes a batch of the topic may unpack to."""
        if self.max_decompressed_batch_bytes is not None:
            return self.max_decompressed_batch_bytes
        return MAX_EXPANSION * max(MIB, self.message_max_bytes, topic.max_message_bytes)

    @staticmethod
    def from_mapping(values: Mapping[str, str]) -> CleanerConfig:
        """
        Create it from a `server.properties` or a smaller file; others have Kafka's defaults.

        Topic settings may be in the same file and are ignored.

        Raises:
            ConfigError: bad values, names that look misspelt, or settings that contradict each other, such as an offset
                map without room for a single key; all of them in one error.
        """
        warnings: list[str] = []
        mistakes = Mistakes()
        with mistakes.collected():
            warnings += check_broker_keys(values)
        read = SettingReader(BROKER_SETTINGS, values, warnings, mistakes)
        config = CleanerConfig(
            **read.fields(CleanerConfig),
            spark=tuple(sorted((key, text) for key, text in values.items() if key.startswith(SPARK_PREFIX))),
        )
        if not read.is_given("log.dirs"):
            config = replace(config, log_dirs=config.log_dir if read.is_given("log.dir") else ())
        for check in (config._check_rates, config._check_map, config._check_daemon):
            check(read, mistakes, warnings)
        mistakes.raise_any()
        return replace(config, warnings=tuple(warnings))

    def _check_rates(self, _read: SettingReader, mistakes: Mistakes, warnings: list[str]) -> None:
        if self.io_max_bytes_per_second <= 0:
            key = "log.cleaner.io.max.bytes.per.second"
            mistakes.add(ConfigError(key, self.io_max_bytes_per_second, "must be above 0"))
        if self.io_buffer_load_factor <= 0:
            mistakes.add(ConfigError(_LOAD_FACTOR_KEY, self.io_buffer_load_factor, "must be above 0"))
        rates = [("log.cleaner.io.max.bytes.per.second", self.io_max_bytes_per_second)]
        rates += [(f"{LOG_DIR_RATES_KEY}={path}", rate) for path, rate in self.log_dir_io_max_bytes_per_second]
        warnings += [f"{key}={rate:g}: {slow_rate(rate)}" for key, rate in rates if slow_rate(rate)]

    def _check_map(self, read: SettingReader, mistakes: Mistakes, warnings: list[str]) -> None:
        """Refuse values that cannot work; warn of values that only Kafka refuses."""
        size, factor = self.dedupe_buffer_size, self.io_buffer_load_factor
        is_sound = read.is_sound("log.cleaner.threads", "log.cleaner.dedupe.buffer.size", _LOAD_FACTOR_KEY)
        if self.key_limit < 1 and factor > 0 and is_sound:
            bound = (
                f"{self.slots} slots of {MAP_ENTRY_BYTES} bytes for each of {self.threads} threads, times the load "
                f"factor {factor}, must be at least 1"
            )
            mistakes.add(ConfigError("log.cleaner.dedupe.buffer.size", size, bound))
        if size // self.threads <= MIB:
            least = human_bytes(MIB)
            warnings.append(f"log.cleaner.dedupe.buffer.size={size}: a broker wants more than {least} a thread")
        if factor > 1:
            warnings.append(f"{_LOAD_FACTOR_KEY}={factor}: taken as 1")

    def _check_daemon(self, read: SettingReader, mistakes: Mistakes, _warnings: list[str]) -> None:
        retry_key, backoff_key, socket_key = "cleaner.retry.max.ms", "log.cleaner.backoff.ms", "cleaner.control.socket"
        is_sound = read.is_given(retry_key) and read.is_sound(retry_key, backoff_key)
        if is_sound and self.configured_retry_max_ms < self.backoff_ms:
            bound = f"must not be below {backoff_key} ({self.backoff_ms})"
            mistakes.add(ConfigError(retry_key, self.configured_retry_max_ms, bound))
        with mistakes.collected():
            parse_address(self.http_listen)
        if not self.state_dir:
            mistakes.add(ConfigError("cleaner.state.dir", "", "must name a directory outside the log dirs"))
        if len(os.fsencode(self.control_socket)) > MAX_SOCKET_PATH_BYTES:
            bound = f"must be a path of at most {MAX_SOCKET_PATH_BYTES} bytes"
            mistakes.add(ConfigError(socket_key, self.control_socket, bound))
