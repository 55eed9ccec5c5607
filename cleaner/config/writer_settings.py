"""The settings that only a writer of logs reads, all of them Kafka's: a field of `CleanerConfig` each."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.config.definition import LONG_MAX, setting


@dataclass(frozen=True)
class WriterSettings:
    """The settings that only a writer of logs reads."""

    flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        "long",
        str(LONG_MAX),
        "How often logs are checked for records older than their `flush.ms`, which are forced to disk. It is also the "
        "default of `flush.ms`.",
        dynamic=False,
    )
    flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        "60000",
        "How often `recovery-point-offset-checkpoint` is written: records above it are read again after a crash.",
        minimum=0,
        dynamic=False,
    )
    flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        "60000",
        "How often `log-start-offset-checkpoint` is written.",
        minimum=0,
        dynamic=False,
    )
    high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        "5000",
        "How often `replication-offset-checkpoint` is written. Without replicas, the high watermark is the end of what "
        "was forced to disk; nothing above is cleaned.",
        dynamic=False,
    )
    recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        "int",
        "2",
        "Logs of a log dir that are loaded, recovered or closed at the same time.",
        minimum=1,
        dynamic=False,
    )
