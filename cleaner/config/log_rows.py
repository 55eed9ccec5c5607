"""The settings of the process that only whoever writes logs reads, Kafka's all of them; see `config_table.py`."""

from __future__ import annotations

from cleaner.config.definition import Setting
from cleaner.config.topic_rows import LONG_MAX

LOG_ROWS = (
    Setting(
        "log.flush.scheduler.interval.ms",
        "long",
        str(LONG_MAX),
        "How often logs are looked through for records older than their `flush.ms`, which are forced to disk. It is "
        "also the default of `flush.ms`.",
        dynamic=False,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        "60000",
        "How often `recovery-point-offset-checkpoint` is written: what lies above is read again after a crash.",
        minimum=0,
        dynamic=False,
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        "60000",
        "How often `log-start-offset-checkpoint` is written.",
        minimum=0,
        dynamic=False,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        "5000",
        "How often `replication-offset-checkpoint` is written. Without replicas the high watermark is what was forced "
        "to disk; nothing above is cleaned.",
        dynamic=False,
    ),
    Setting(
        "num.recovery.threads.per.data.dir",
        "int",
        "2",
        "Logs of a log dir that are loaded and recovered, and closed, at the same time.",
        minimum=1,
        dynamic=False,
    ),
)
