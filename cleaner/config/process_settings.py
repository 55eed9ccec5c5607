"""The settings of the process that every command reads, Kafka's (R-801) and ours: a field of `CleanerConfig` each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cleaner.config.definition import Setting, setting
from cleaner.config.forms import OTEL_ENDPOINT_KEY, RECOMPRESS_KEY, checked_otel_endpoint, checked_recompression

KAFKA_VERSION_KEY = "cleaner.kafka.version"
KAFKA_VERSION_NAMES = ("4.3", "4.4")
"""Releases whose rules a round can follow; they are in `policy/kafka_version.py`."""

# Double.MAX_VALUE: in Kafka it means "not throttled".
UNLIMITED_RATE = 1.7976931348623157e308


def _once_each(log_dirs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(log_dirs))  # as in Kafka 4.3


@dataclass(frozen=True)
class ProcessSettings:
    """
    The settings that every command reads.

    A `Setting` by itself is read as text, where it is used: a bad value of it stops nothing else.
    """

    threads: int = setting(
        "log.cleaner.threads",
        "int",
        "1",
        "Logs cleaned at the same time; they share the dedupe buffer.",
        minimum=1,
    )
    dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        "134217728",
        "Bytes of offset maps of all threads together, 24 a key. Limits how many keys a round takes; less memory is "
        "used if the dirty section cannot fill the map.",
        minimum=0,
        in_bytes=True,
    )
    io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        "int",
        "524288",
        "Kafka's I/O buffers: checked, but without effect, since the cleaner reads in chunks of its own size (R-592).",
        minimum=0,
        in_bytes=True,
    )
    io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        "double",
        "0.9",
        "How full the offset map may become (its name is Kafka's).",
    )
    io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        repr(UNLIMITED_RATE),
        "Bytes read and written a second, all threads together.",
        in_bytes=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        "int",
        "1048588",
        "The broker's largest record batch, and the default of `max.message.bytes`.",
        minimum=0,
        in_bytes=True,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        "int",
        "86400000",
        "An idle producer is forgotten after this time; then its last batch may be removed (R-545).",
        minimum=1,
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        "list",
        None,
        "The broker's log dirs, for commands that name none.",
        dynamic=False,
        convert=_once_each,
    )
    log_dir: tuple[str, ...] = setting(
        "log.dir",
        "list",
        "/tmp/kafka-logs",  # noqa: S108 - Kafka's own
        "Used if `log.dirs` is not set; the default is Kafka's and never used here.",
        dynamic=False,
        convert=_once_each,
    )
    metadata_log_dir: str | None = setting(
        "metadata.log.dir",
        "string",
        None,
        "Directory of `__cluster_metadata-0` if it is not in the first log dir: topic settings are read from it.",
    )
    node_id: ClassVar[Setting] = Setting(
        "node.id",
        "int",
        None,
        "The node whose dynamic broker settings count, if `meta.properties` has no node id.",
    )
    broker_id: ClassVar[Setting] = Setting(
        "broker.id",
        "int",
        None,
        "Older name of `node.id`.",
    )
    offsets_topic_segment_bytes: ClassVar[Setting] = Setting(
        "offsets.topic.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__consumer_offsets`.",
        minimum=1,
        in_bytes=True,
    )
    transaction_state_log_segment_bytes: ClassVar[Setting] = Setting(
        "transaction.state.log.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__transaction_state`.",
        minimum=1,
        in_bytes=True,
    )
    share_coordinator_state_topic_segment_bytes: ClassVar[Setting] = Setting(
        "share.coordinator.state.topic.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__share_group_state`.",
        minimum=1,
        in_bytes=True,
    )
    kafka_version: str = setting(
        KAFKA_VERSION_KEY,
        "string",
        "auto",
        "The Kafka release whose rules a round follows. `auto`: by `metadata.version` in the cluster's metadata, 4.4 "
        "from level 32 on, otherwise 4.3.",
        choices=("auto", *KAFKA_VERSION_NAMES),
    )
    map_kafka_cap: bool = setting(
        "cleaner.map.kafka.cap",
        "boolean",
        "false",
        "Limit a thread's offset map to 2 GiB, as Kafka does (R-523).",
    )
    trust_default_policy: bool = setting(
        "cleaner.trust.default.policy",
        "boolean",
        "false",
        "Let `--all` clean topics whose policy is known only from a default.",
    )
    configured_pipeline_threads: int | None = setting(
        "cleaner.pipeline.threads",
        "int",
        None,
        "Threads that work on one log in parallel. Default: the processors this process may use, at most 4.",
        minimum=1,
        maximum=64,
    )
    max_decompressed_batch_bytes: int | None = setting(
        "cleaner.max.decompressed.batch.bytes",
        "long",
        None,
        "A batch that unpacks to more is refused. Default: 64 times the largest of 1 MiB, `message.max.bytes` and "
        "`max.message.bytes`.",
        minimum=1,
        in_bytes=True,
    )
    index_dir: str | None = setting(
        "cleaner.index.dir",
        "string",
        None,
        "A directory for the key indexes of clean segments, by which rounds leave segments unread. Default: "
        "`key-index` in `cleaner.state.dir` for the daemon, none for `clean`.",
        dynamic=False,
    )
    index_enabled: bool = setting(
        "cleaner.index.enabled",
        "boolean",
        "true",
        "Use key indexes, where there is a directory for them.",
    )
    full_read_days: int = setting(
        "cleaner.full.read.days",
        "int",
        "30",
        "Every segment is read in full once in so many days, whatever its key index says: damage in a segment that is "
        "not read goes unseen.",
        minimum=1,
        maximum=36_500,
    )
    quiet_cleaning: bool = setting(
        "cleaner.quiet.cleaning",
        "boolean",
        "false",
        "Clean a log without anything dirty, too, once tombstones, transaction markers or batches without records in "
        "it are past their delete horizon: Kafka keeps them until there is something dirty again. Only the segments "
        "that hold them are recopied.",
    )
    recompress: str = setting(
        RECOMPRESS_KEY,
        "string",
        "off",
        "Pack the batches that rounds keep: `zstd`, `zstd:1` to `zstd:19`, `lz4`, or `none` for no compression; "
        "adjacent batches without a producer become one, up to `max.message.bytes`. Records stay the same, batches "
        "are no longer those that Kafka would leave. Not in bulk jobs.",
        convert=checked_recompression,
    )
    topics_dir: str | None = setting(
        "cleaner.topics.dir",
        "string",
        None,
        "A directory of `<topic>.properties` files, for commands without `--topics-dir`.",
    )
    otel_endpoint: str = setting(
        OTEL_ENDPOINT_KEY,
        "string",
        "",
        "Where `run`, `clean` and `bulk` send their rounds as spans, over OTLP/HTTP: `http://collector:4318`; empty: "
        "nowhere. Needs the extra `otel`.",
        convert=checked_otel_endpoint,
        dynamic=False,
    )
