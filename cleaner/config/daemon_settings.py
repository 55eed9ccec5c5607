"""The settings that only the daemon (`cleaner run`) reads: a field of `CleanerConfig` each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cleaner.config.definition import setting
from cleaner.config.forms import parse_log_dir_rates

_daemon = partial(setting, daemon=True)


@dataclass(frozen=True)
class DaemonSettings:
    """The settings that only the daemon reads."""

    enable: bool = _daemon(
        "log.cleaner.enable",
        "boolean",
        "true",
        "Whether the daemon cleans at all; other commands ignore it.",
    )
    backoff_ms: int = _daemon(
        "log.cleaner.backoff.ms",
        "long",
        "15000",
        "How long the daemon waits when it found nothing to clean, and the first delay after a failure.",
        minimum=0,
    )
    retention_check_interval_ms: int = _daemon(
        "log.retention.check.interval.ms",
        "long",
        "300000",
        "How often logs are checked for expired segments.",
        minimum=1,
    )
    initial_task_delay_ms: int = _daemon(
        "log.initial.task.delay.ms",
        "long",
        "30000",
        "Delay of the first such check.",
        minimum=0,
        dynamic=False,
    )
    selection: str = _daemon(
        "cleaner.selection",
        "string",
        "deadline",
        "Which due log is next. `deadline`: logs over `max.compaction.lag.ms`, the longest overdue first, then the "
        "dirtiest. `kafka`: the dirtiest, overdue or not (R-422).",
        choices=("deadline", "kafka"),
    )
    windows: str = _daemon(
        "cleaner.windows",
        "string",
        "",
        "Hours in which rounds may start, such as `22:00-06:00,12:00-13:00`; empty: always.",
    )
    windows_time_zone: str = _daemon(
        "cleaner.windows.time.zone",
        "string",
        "UTC",
        "Time zone of `cleaner.windows`: a name of the time zone database, such as `Europe/Berlin`.",
    )
    windows_hard: bool = _daemon(
        "cleaner.windows.hard",
        "boolean",
        "false",
        "Whether the end of a window also stops running rounds; otherwise they run to their end.",
    )
    configured_retry_max_ms: int = _daemon(
        "cleaner.retry.max.ms",
        "long",
        "3600000",
        "The delay after a failure doubles with each further one, up to this. Not below `log.cleaner.backoff.ms`.",
        minimum=1,
    )
    log_dir_max_workers: int | None = _daemon(
        "cleaner.log.dir.max.workers",
        "int",
        None,
        "How many threads may clean in one log dir at the same time. Default: all of them.",
        minimum=1,
    )
    log_dir_io_max_bytes_per_second: tuple[tuple[str, float], ...] = _daemon(
        "cleaner.log.dir.io.max.bytes.per.second",
        "list",
        "",
        "Bytes read and written a second in single log dirs: `path=rate`, separated by commas. "
        "`log.cleaner.io.max.bytes.per.second` also limits all of them together.",
        in_bytes=True,
        convert=parse_log_dir_rates,
    )
    state_dir: str = _daemon(
        "cleaner.state.dir",
        "string",
        "/var/lib/cleaner",
        "Where quarantine and journal are kept; never in a log dir.",
        dynamic=False,
    )
    log_dirs_wait: bool = _daemon(
        "cleaner.log.dirs.wait",
        "boolean",
        "false",
        "Whether the daemon starts although a directory of `log.dirs` is missing, and waits for it: a disk that may be "
        "mounted later. The daemon always waits for a directory that vanishes while it runs.",
        dynamic=False,
    )
    retention_enable: bool = _daemon(
        "cleaner.retention.enable",
        "boolean",
        "false",
        "Whether expired segments of topics with `delete` are deleted.",
    )
    recover: bool = _daemon(
        "cleaner.recover",
        "boolean",
        "false",
        "Whether a log dir without a clean-shutdown marker is recovered; otherwise it waits for the operator.",
    )
    lock_mode: str = _daemon(
        "cleaner.lock",
        "string",
        "round",
        "How long a log dir stays locked: `round`, during each round, or `hold`, as long as the daemon runs.",
        choices=("round", "hold"),
        dynamic=False,
    )
    config_watch: bool = _daemon(
        "cleaner.config.watch",
        "boolean",
        "false",
        "Whether the settings are reloaded automatically when the file changes.",
        dynamic=False,
    )
    http_listen: str = _daemon(
        "cleaner.http.listen",
        "string",
        "127.0.0.1:9404",
        "HOST:PORT of the status page and the metrics, an IPv6 address in brackets; empty: none.",
        dynamic=False,
    )
    http_web_config_file: str | None = _daemon(
        "cleaner.http.web.config.file",
        "string",
        None,
        "TLS and basic auth for them, in the form of Prometheus exporters' `web.config.file`.",
        dynamic=False,
    )
    http_partition_metrics: int = _daemon(
        "cleaner.http.partition.metrics",
        "int",
        "20",
        "How many of the dirtiest partitions have their own metrics.",
        minimum=0,
        maximum=10_000,
        dynamic=False,
    )
    http_kafka_metrics: bool = _daemon(
        "cleaner.http.kafka.metrics",
        "boolean",
        "false",
        "Whether the metrics are also shown under the names that the JMX exporter gives Kafka's.",
        dynamic=False,
    )
    configured_control_socket: str | None = _daemon(
        "cleaner.control.socket",
        "string",
        None,
        "The UNIX socket that commands talk to. Default: `control.sock` in `cleaner.state.dir`.",
        dynamic=False,
    )
    history_max_bytes: int = _daemon(
        "cleaner.history.max.bytes",
        "long",
        "8388608",
        "Largest file of the journal; before it grows longer, a new one is begun.",
        minimum=65_536,
        dynamic=False,
        in_bytes=True,
    )
    history_files: int = _daemon(
        "cleaner.history.files",
        "int",
        "5",
        "Most files of the journal that are kept.",
        minimum=1,
        maximum=10_000,
        dynamic=False,
    )
    log_format: str = _daemon(
        "cleaner.log.format",
        "string",
        "console",
        "How events are written to standard error: for people, or one JSON object a line.",
        choices=("console", "json"),
        dynamic=False,
    )
    log_level: str = _daemon(
        "cleaner.log.level",
        "string",
        "info",
        "Events below this level are not written.",
        choices=("debug", "info", "warning", "error"),
        dynamic=False,
    )
    stuck_ms: int = _daemon(
        "cleaner.stuck.ms",
        "long",
        "300000",
        "A busy worker that makes no progress for this time counts as stuck.",
        minimum=1000,
    )
    job_history: int = _daemon(
        "cleaner.job.history",
        "int",
        "64",
        "How many ended jobs of `cleaner now` are remembered.",
        minimum=1,
        maximum=10_000,
    )
