"""
The settings as values: `TopicConfig` for one topic, `CleanerConfig` for the whole process.

Both are made from a mapping of Kafka's names to texts, checked against `config_table.py`. Where the texts come from,
and which of several wins, is `settings/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cleaner.base.mistakes import Mistakes
from cleaner.base.sizes import human_bytes, slow_rate
from cleaner.config.bulk_rows import SPARK_PREFIX
from cleaner.config.forms import LOG_DIR_RATES_KEY, parse_address, parse_log_dir_rates
from cleaner.config.read import SettingReader, check_broker_keys
from cleaner.config.table import BROKER_SETTINGS, LONG_MAX, UNLIMITED_RATE
from cleaner.config.topic import MIB, TopicConfig
from cleaner.errors import ConfigError

__all__ = ["MIB", "CleanerConfig", "TopicConfig"]

# Bytes of an offset map entry: a 16-byte digest and an 8-byte offset.
MAP_ENTRY_BYTES = 24
# Kafka's map is one Java array.
KAFKA_MAP_CAP_BYTES = 2**31 - 1
# Lanes beyond this many wait for the disk and for their turns.
MOST_DEFAULT_PIPELINE_THREADS = 4
_LOAD_FACTOR_KEY = "log.cleaner.io.buffer.load.factor"
# `sun_path` of a UNIX socket's address holds 108 bytes, the last of them zero.
MOST_SOCKET_PATH_BYTES = 107
# A batch may unpack to this many times the largest batch a broker takes; no codec on real data comes near.
MAX_EXPANSION = 64


@dataclass(frozen=True)
class CleanerConfig:
    """
    The settings of the process: those of Kafka's cleaner under the names after `log.cleaner.`, and a few of the broker.

    Those of whoever writes logs are named likewise, ours after what follows `cleaner.`. `log_dirs` is empty when the
    configuration names none; `windows` and `windows_time_zone` are as written, see `settings.windows_of`. `spark` holds
    the settings that are passed on to Spark as they are. `warnings` are for the operator and no part of the value.
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
    flush_scheduler_interval_ms: int = LONG_MAX
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    recovery_threads_per_data_dir: int = 2
    log_dirs: tuple[str, ...] = ()
    metadata_log_dir: str | None = None
    map_kafka_cap: bool = False
    trust_default_policy: bool = False
    max_decompressed_batch_bytes: int | None = None
    configured_pipeline_threads: int | None = None
    topics_dir: str | None = None
    selection: str = "deadline"
    windows: str = ""
    windows_time_zone: str = "UTC"
    windows_hard: bool = False
    configured_retry_max_ms: int = 3_600_000
    log_dir_max_workers: int | None = None
    log_dir_io_max_bytes_per_second: tuple[tuple[str, float], ...] = ()
    state_dir: str = "/var/lib/cleaner"
    log_dirs_wait: bool = False
    retention_enable: bool = False
    recover: bool = False
    lock_mode: str = "round"
    config_watch: bool = False
    http_listen: str = "127.0.0.1:9404"
    http_web_config_file: str | None = None
    http_partition_metrics: int = 20
    http_kafka_metrics: bool = False
    configured_control_socket: str | None = None
    history_max_bytes: int = 8 * MIB
    history_files: int = 5
    log_format: str = "console"
    log_level: str = "info"
    stuck_ms: int = 300_000
    job_history: int = 64
    bulk_enable: bool = True
    bulk_min_bytes: int = 100 << 30
    bulk_groups_in_flight: int = 4
    configured_bulk_work_dir: str | None = None
    bulk_task_memory: int = 64 * MIB
    spark: tuple[tuple[str, str], ...] = ()
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
        """Return where bulk jobs keep what they must remember."""
        return self.configured_bulk_work_dir or str(Path(self.state_dir) / "bulk")

    @property
    def retry_max_ms(self) -> int:
        """Return the longest delay after failures: never below the backoff, which is the first."""
        return max(self.configured_retry_max_ms, self.backoff_ms)

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
            ConfigError: bad values, names that look misspelt, or settings that do not go together, such as an offset
                map without room for a single key; all of them in one error.
        """
        warnings: list[str] = []
        mistakes = Mistakes()
        with mistakes.collected():
            warnings += check_broker_keys(values)
        read = SettingReader(BROKER_SETTINGS, values, warnings, mistakes)
        log_dirs = next((read.words(key) for key in ("log.dirs", "log.dir") if read.is_given(key)), ())
        rates: tuple[tuple[str, float], ...] = ()
        with mistakes.collected():
            rates = parse_log_dir_rates(read.words(LOG_DIR_RATES_KEY))
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
            flush_scheduler_interval_ms=read.integer("log.flush.scheduler.interval.ms"),
            flush_offset_checkpoint_interval_ms=read.integer("log.flush.offset.checkpoint.interval.ms"),
            flush_start_offset_checkpoint_interval_ms=read.integer("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_checkpoint_interval_ms=read.integer("replica.high.watermark.checkpoint.interval.ms"),
            recovery_threads_per_data_dir=read.integer("num.recovery.threads.per.data.dir"),
            log_dirs=log_dirs,
            metadata_log_dir=read.optional_text("metadata.log.dir"),
            map_kafka_cap=read.flag("cleaner.map.kafka.cap"),
            trust_default_policy=read.flag("cleaner.trust.default.policy"),
            max_decompressed_batch_bytes=read.optional_integer("cleaner.max.decompressed.batch.bytes"),
            configured_pipeline_threads=read.optional_integer("cleaner.pipeline.threads"),
            topics_dir=read.optional_text("cleaner.topics.dir"),
            selection=read.text("cleaner.selection"),
            windows=read.text("cleaner.windows"),
            windows_time_zone=read.text("cleaner.windows.time.zone"),
            windows_hard=read.flag("cleaner.windows.hard"),
            configured_retry_max_ms=read.integer("cleaner.retry.max.ms"),
            log_dir_max_workers=read.optional_integer("cleaner.log.dir.max.workers"),
            log_dir_io_max_bytes_per_second=rates,
            state_dir=read.text("cleaner.state.dir"),
            log_dirs_wait=read.flag("cleaner.log.dirs.wait"),
            retention_enable=read.flag("cleaner.retention.enable"),
            recover=read.flag("cleaner.recover"),
            lock_mode=read.text("cleaner.lock"),
            config_watch=read.flag("cleaner.config.watch"),
            http_listen=read.text("cleaner.http.listen"),
            http_web_config_file=read.optional_text("cleaner.http.web.config.file"),
            http_partition_metrics=read.integer("cleaner.http.partition.metrics"),
            http_kafka_metrics=read.flag("cleaner.http.kafka.metrics"),
            configured_control_socket=read.optional_text("cleaner.control.socket"),
            history_max_bytes=read.integer("cleaner.history.max.bytes"),
            history_files=read.integer("cleaner.history.files"),
            log_format=read.text("cleaner.log.format"),
            log_level=read.text("cleaner.log.level"),
            stuck_ms=read.integer("cleaner.stuck.ms"),
            job_history=read.integer("cleaner.job.history"),
            bulk_enable=read.flag("cleaner.bulk.enable"),
            bulk_min_bytes=read.integer("cleaner.bulk.min.bytes"),
            bulk_groups_in_flight=read.integer("cleaner.bulk.groups.in.flight"),
            configured_bulk_work_dir=read.optional_text("cleaner.bulk.work.dir"),
            bulk_task_memory=read.integer("cleaner.bulk.task.memory"),
            spark=tuple(sorted((key, text) for key, text in values.items() if key.startswith(SPARK_PREFIX))),
        )
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
        """Refuse what cannot work; only warn of what Kafka would refuse for reasons of its own."""
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
        if len(os.fsencode(self.control_socket)) > MOST_SOCKET_PATH_BYTES:
            bound = f"must be a path of at most {MOST_SOCKET_PATH_BYTES} bytes"
            mistakes.add(ConfigError(socket_key, self.control_socket, bound))
