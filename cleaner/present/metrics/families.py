"""
All metrics: the only place that defines their names, help texts and labels.

`metrics.py` fills these families, and `docs/metrics.md` is generated from them (`python -m tools.metrics_doc`). Names
are in base units and end in `_total` exactly when they are counters; a help text names Kafka's own metric if there is
one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class MetricKind(enum.Enum):
    """What a family is, as Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    """
    One metric family.

    Attributes:
        name: as scraped, with `_total` for a counter.
        kind: see `MetricKind`.
        help: one line.
        labels: their names, in order.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """Families that belong together, for the document."""

    title: str
    families: tuple[Family, ...]


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(name, MetricKind.GAUGE, help, labels)


def _counter(name: str, help: str, *labels: str) -> Family:
    return Family(name, MetricKind.COUNTER, help, labels)


BUILD_INFO = _gauge("cleaner_build_info", "1; the version of the program is a label.", "version")
STARTED = _gauge("cleaner_start_timestamp_seconds", "When the process started.")
STATE = _gauge("cleaner_state", "1 for the state the daemon is in: starting, running or stopping.", "state")
READY = _gauge("cleaner_ready", "1 when settings and kernels are loaded and every log dir was checked once.")
PROGRESSING = _gauge("cleaner_progressing", "1 when the scheduler turns and every busy worker makes progress.")
STUCK = _gauge("cleaner_stuck_threads", "Threads that make no progress although they should.")
OPEN_FILES = _gauge("cleaner_open_files", "File descriptors the process holds open.")
ANONYMOUS_MEMORY = _gauge(
    "cleaner_anonymous_memory_bytes",
    "Anonymous memory of the process: unlike resident memory without cached programs and logs.",
)
NEEDED_MEMORY = _gauge("cleaner_needed_memory_bytes", "The most memory the process needs by its settings.")

TURN_SECONDS = _gauge("cleaner_scheduler_turn_seconds", "How long the scheduler's last check of all logs took.")
TURN_ENDED = _gauge(
    "cleaner_scheduler_last_turn_timestamp_seconds",
    "When the scheduler last checked all logs. Kafka: LogCleanerManager time-since-last-run-ms.",
)
WINDOW_OPEN = _gauge(
    "cleaner_window_open", "1 when rounds may start: a window of cleaner.windows is open, or none set."
)
WINDOW_OPENS = _gauge("cleaner_window_opens_timestamp_seconds", "When the next window opens; absent while one is open.")
PAUSES = _gauge("cleaner_pauses", "What operators have paused: everything, topics or partitions.")
QUEUE = _gauge("cleaner_queue_logs", "Logs that only wait for a worker.")
JOBS = _gauge("cleaner_jobs", "Jobs of cleaner now that are remembered, by state.", "state")

DUE = _gauge("cleaner_due_logs", "Logs that are due and wait for a worker, or have one.")
DUE_LEFT = _gauge("cleaner_due_left_bytes", "Bytes still to read in the logs that are due, in both passes.")
DUE_SECONDS = _gauge(
    "cleaner_due_remaining_seconds",
    "How long the due logs take at the rate of the last minutes; no sample if that is not known, +Inf if dirty "
    "bytes arrive as fast as they can be cleaned.",
)
WORKERS = _gauge("cleaner_workers", "Worker threads (log.cleaner.threads).")
WORKERS_BUSY = _gauge("cleaner_workers_busy", "Worker threads that have a partition.")
WORKER_DEATHS = _counter(
    "cleaner_worker_deaths_total",
    "Workers that died of an internal error and were replaced. Kafka: LogCleaner DeadThreadCount.",
)

LOGS = _gauge("cleaner_logs", "Logs by the reason why they are next, wait or are not cleaned.", "reason")
MAX_RATIO = _gauge(
    "cleaner_max_dirty_ratio",
    "The highest dirty ratio of any log, 0 to 1. Kafka: LogCleanerManager max-dirty-percent.",
)
OVERDUE = _gauge("cleaner_overdue_logs", "Logs with something to clean that are over max.compaction.lag.ms.")
MAX_OVERDUE = _gauge(
    "cleaner_max_overdue_seconds",
    "By how much the log most overdue is over max.compaction.lag.ms. Kafka: LogCleaner max-compaction-delay-secs.",
)
TOPIC_RATIO = _gauge("cleaner_topic_max_dirty_ratio", "The highest dirty ratio of a topic's logs, 0 to 1.", "topic")
PARTITION_RATIO = _gauge(
    "cleaner_partition_dirty_ratio",
    "Dirty ratio, 0 to 1, of the dirtiest logs (cleaner.http.partition.metrics of them).",
    *("topic", "partition", "log_dir"),
)
PARTITION_OVERDUE = _gauge(
    "cleaner_partition_overdue_seconds",
    "By how much a log is over max.compaction.lag.ms; those most overdue (cleaner.http.partition.metrics of them).",
    *("topic", "partition", "log_dir"),
)
RETRYING = _gauge("cleaner_retrying_partitions", "Partitions whose last round failed and that are tried again.")

ROUNDS = _counter("cleaner_rounds_total", "Rounds that ended, by result.", "topic", "result")
ROUND_SECONDS = Family(
    "cleaner_round_duration_seconds",
    MetricKind.HISTOGRAM,
    "How long successful rounds took. Kafka: LogCleaner max-clean-time-secs.",
)
LAST_SUCCESS = _gauge(
    "cleaner_last_successful_round_timestamp_seconds",
    "When a round of any log last succeeded; absent before the first.",
)
TOPIC_LAST_SUCCESS = _gauge(
    "cleaner_topic_last_successful_round_timestamp_seconds", "When a round of the topic last succeeded.", "topic"
)
MAP_UTILIZATION = _gauge(
    "cleaner_max_map_utilization_ratio",
    "How full the offset map was, 0 to 1; the most of every worker's last round. "
    "Kafka: LogCleaner max-buffer-utilization-percent.",
)

READ_BYTES = _counter("cleaner_read_bytes_total", "Bytes of segments read, by pass: map or copy.", "topic", "pass")
READ_RECORDS = _counter("cleaner_read_records_total", "Records read, by pass: map or copy.", "topic", "pass")
WRITTEN_BYTES = _counter(
    "cleaner_written_bytes_total",
    "Bytes written to cleaned segments; divided by the bytes read by copy, Kafka's LogCleaner cleaner-recopy-percent.",
    "topic",
)
WRITTEN_RECORDS = _counter("cleaner_written_records_total", "Records written to cleaned segments.", "topic")
REMOVED_RECORDS = _counter(
    "cleaner_removed_records_total",
    "Records left out: superseded, tombstones, aborted, markers or keyless.",
    *("topic", "reason"),
)
RETENTION_SEGMENTS = _counter("cleaner_retention_segments_total", "Segments that retention removed.", "topic")
RETENTION_BYTES = _counter("cleaner_retention_bytes_total", "Bytes of segments that retention removed.", "topic")
RETENTION_WAITING = _gauge("cleaner_retention_waiting_files", "Deleted files that wait for file.delete.delay.ms.")

THROTTLE_RATE = _gauge(
    "cleaner_throttle_limit_bytes_per_second",
    "Limit of all workers' reads and writes (log.cleaner.io.max.bytes.per.second); +Inf: none.",
)
THROTTLE_DIR_RATE = _gauge(
    "cleaner_log_dir_throttle_limit_bytes_per_second", "Limit of one log dir, where it has one.", "log_dir"
)
THROTTLE_BYTES = _counter("cleaner_throttle_bytes_total", "Bytes read and written under the limit.")
THROTTLE_WAIT = _counter("cleaner_throttle_wait_seconds_total", "Time workers slept for the limit, all together.")

DIR_STATE = _gauge(
    "cleaner_log_dir_state",
    "1 for the state a log dir is in: online, unread, offline, needs_recovery or locked.",
    *("log_dir", "state"),
)
DIRS_OFFLINE = _gauge(
    "cleaner_offline_log_dirs", "Log dirs taken offline because their disk failed. Kafka: OfflineLogDirectoryCount."
)
DIR_PARTITIONS = _gauge("cleaner_log_dir_partitions", "Partitions served from a log dir.", "log_dir")
DIR_WORKERS = _gauge("cleaner_log_dir_workers_busy", "Workers at work in a log dir.", "log_dir")
DIR_FREE = _gauge("cleaner_log_dir_free_bytes", "Free bytes of a log dir's file system.", "log_dir")
DIR_SIZE = _gauge("cleaner_log_dir_size_bytes", "Size of a log dir's file system.", "log_dir")
DIR_LOOKED_AT = _gauge("cleaner_log_dir_last_look_timestamp_seconds", "When a log dir was last checked.", "log_dir")
LOG_BYTES = _gauge(
    "cleaner_log_bytes",
    "Bytes of all logs by section: clean, dirty, uncleanable or active.",
    *("log_dir", "section"),
)
QUARANTINED = _gauge(
    "cleaner_quarantined_partitions",
    "Partitions in quarantine. Kafka: LogCleanerManager uncleanable-partitions-count.",
    "log_dir",
)
QUARANTINED_BYTES = _gauge(
    "cleaner_quarantined_bytes",
    "Bytes of partitions in quarantine. Kafka: LogCleanerManager uncleanable-bytes.",
    "log_dir",
)

RELOAD_GOOD = _gauge("cleaner_config_last_reload_successful", "1 when the last attempt to read the settings succeeded.")
RELOAD_TIME = _gauge("cleaner_config_last_reload_success_timestamp_seconds", "When settings were last applied.")
RESTART_KEYS = _gauge("cleaner_config_keys_awaiting_restart", "Settings whose new values wait for a restart.")

CHAPTERS: tuple[Chapter, ...] = (
    Chapter("The process", (BUILD_INFO, STARTED, STATE, READY, PROGRESSING, STUCK, OPEN_FILES,
                            ANONYMOUS_MEMORY, NEEDED_MEMORY)),
    Chapter("Scheduler and workers", (TURN_SECONDS, TURN_ENDED, WINDOW_OPEN, WINDOW_OPENS, PAUSES, QUEUE, JOBS,
                                      DUE, DUE_LEFT, DUE_SECONDS,
                                      WORKERS, WORKERS_BUSY, WORKER_DEATHS)),
    Chapter("Logs", (LOGS, MAX_RATIO, OVERDUE, MAX_OVERDUE, TOPIC_RATIO, PARTITION_RATIO, PARTITION_OVERDUE, RETRYING)),
    Chapter("Rounds", (ROUNDS, ROUND_SECONDS, LAST_SUCCESS, TOPIC_LAST_SUCCESS, MAP_UTILIZATION)),
    Chapter("Bytes and records", (READ_BYTES, READ_RECORDS, WRITTEN_BYTES, WRITTEN_RECORDS, REMOVED_RECORDS,
                                  RETENTION_SEGMENTS, RETENTION_BYTES, RETENTION_WAITING)),
    Chapter("Throttle", (THROTTLE_RATE, THROTTLE_DIR_RATE, THROTTLE_BYTES, THROTTLE_WAIT)),
    Chapter("Log dirs", (DIR_STATE, DIRS_OFFLINE, DIR_PARTITIONS, DIR_WORKERS, DIR_FREE, DIR_SIZE, DIR_LOOKED_AT,
                         LOG_BYTES, QUARANTINED, QUARANTINED_BYTES)),
    Chapter("Settings", (RELOAD_GOOD, RELOAD_TIME, RESTART_KEYS)),
)  # fmt: skip

KAFKA_MAX_BUFFER = _gauge(
    "kafka_log_logcleaner_max_buffer_utilization_percent", "As Kafka's: cleaner_max_map_utilization_ratio in percent."
)
KAFKA_RECOPY = _gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "As Kafka's: of the bytes each worker's last round read, those written.",
)
KAFKA_MAX_TIME = _gauge(
    "kafka_log_logcleaner_max_clean_time_secs", "As Kafka's: the longest of each worker's last round, seconds."
)
KAFKA_MAX_DELAY = _gauge("kafka_log_logcleaner_max_compaction_delay_secs", "As Kafka's: cleaner_max_overdue_seconds.")
KAFKA_DEAD = _gauge(
    "kafka_log_logcleaner_deadthreadcount",
    "Cleaner threads that died; unlike Kafka's they were replaced. See cleaner_worker_deaths_total.",
)
KAFKA_DIRTY = _gauge("kafka_log_logcleanermanager_max_dirty_percent", "As Kafka's: cleaner_max_dirty_ratio in percent.")
KAFKA_SINCE = _gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms", "As Kafka's: since the scheduler's last turn, milliseconds."
)
KAFKA_UNCLEANABLE = _gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "As Kafka's: cleaner_quarantined_partitions.",
    "logdirectory",
)
KAFKA_UNCLEANABLE_BYTES = _gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes", "As Kafka's: cleaner_quarantined_bytes.", "logdirectory"
)

KAFKA_CHAPTER = Chapter(
    "Kafka's own names",
    (KAFKA_MAX_BUFFER, KAFKA_RECOPY, KAFKA_MAX_TIME, KAFKA_MAX_DELAY, KAFKA_DEAD, KAFKA_DIRTY, KAFKA_SINCE,
     KAFKA_UNCLEANABLE, KAFKA_UNCLEANABLE_BYTES),
)  # fmt: skip

SERVE_CONNECTIONS = _gauge("cleaner_serve_open_connections", "Connections of Kafka's clients now.")
SERVE_ACCEPTED = _counter(
    "cleaner_serve_connections_total", "Connections: accepted, or turned_away because there were too many.", "result"
)
SERVE_REQUESTS = _counter("cleaner_serve_requests_total", "Requests, by Kafka's name of the API.", "api")
SERVE_REFUSED = _counter("cleaner_serve_refused_requests_total", "Those of them that would write.", "api")
SERVE_ERRORS = _counter(
    "cleaner_serve_errors_total",
    "Errors in answers, by Kafka's name of the code: of a whole answer, or of each topic or partition in it.",
    "error",
)
SERVE_FAILURES = _counter("cleaner_serve_internal_errors_total", "Requests that failed by a mistake of the program.")
SERVE_LOGINS = _counter("cleaner_serve_failed_logins_total", "Connections that ended with a wrong name or password.")
SERVE_BYTES = _counter("cleaner_serve_sent_bytes_total", "Bytes of answers: records, or other.", "content")
SERVE_GROUPS = _gauge("cleaner_serve_groups", "Consumer groups of this process.")
SERVE_MEMBERS = _gauge("cleaner_serve_group_members", "Members of all of them.")

SERVE_CHAPTER = Chapter(
    "The endpoint",
    (SERVE_CONNECTIONS, SERVE_ACCEPTED, SERVE_REQUESTS, SERVE_REFUSED, SERVE_ERRORS, SERVE_FAILURES, SERVE_LOGINS,
     SERVE_BYTES, SERVE_GROUPS, SERVE_MEMBERS),
)  # fmt: skip
