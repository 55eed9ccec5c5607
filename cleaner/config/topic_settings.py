"""The settings of topics (R-802): a field of `TopicConfig` each."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.base.key_views import NO_VIEW
from cleaner.config.definition import LONG_MAX, Synonym, setting
from cleaner.config.forms import OFFSET_SURVIVES, SURVIVOR_KEY, checked_survivor
from cleaner.kernels.codec_table import CODECS, NONE

KEY_VIEW_KEY = "cleaner.key.view"
RECORD_TTL_KEY = "cleaner.record.ttl.ms"
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def _log(name: str, factor: int = 1) -> Synonym:
    return Synonym("log." + name, factor)


def _retention(name: str, factor: int = 1) -> Synonym:
    return Synonym("log.retention." + name, factor, negative_is_unlimited=True)


@dataclass(frozen=True)
class TopicSettings:
    """The settings of one topic."""

    cleanup_policy: frozenset[str] = setting(
        "cleanup.policy",
        "list",
        "delete",
        "What is done with old data: `compact` keeps the last record of each key, `delete` drops old segments, both "
        "may be given. An empty list means neither (R-803).",
        choices=("compact", "delete"),
        synonyms=(_log("cleanup.policy"),),
        convert=frozenset,
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        "double",
        "0.5",
        "A log is due when this share of its cleanable bytes is dirty.",
        minimum=0,
        maximum=1,
        synonyms=(_log("cleaner.min.cleanable.ratio"),),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        "long",
        "0",
        "Records younger than this are not cleaned. Not above `max.compaction.lag.ms`.",
        minimum=0,
        synonyms=(_log("cleaner.min.compaction.lag.ms"),),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        "long",
        str(LONG_MAX),
        "A log whose oldest dirty record is older than this is due whatever its ratio.",
        minimum=1,
        synonyms=(_log("cleaner.max.compaction.lag.ms"),),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        "long",
        "86400000",
        "How long tombstones and transaction markers stay once they have been cleaned.",
        minimum=0,
        synonyms=(_log("cleaner.delete.retention.ms"),),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        "int",
        "1073741824",
        "Largest segment: limits a group of segments that are merged into one.",
        minimum=1,
        kafka_minimum=1048576,
        synonyms=(_log("segment.bytes"),),
        in_bytes=True,
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes",
        "int",
        None,
        "Replaces `segment.bytes` if set (R-807).",
        minimum=1,
        in_bytes=True,
    )
    segment_ms: int = setting(
        "segment.ms",
        "long",
        "604800000",
        "Age at which the active segment is rolled.",
        minimum=1,
        synonyms=(_log("roll.ms"), _log("roll.hours", HOUR_MS)),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        "long",
        "0",
        "A random time up to this is subtracted from `segment.ms`, so that logs do not roll together.",
        minimum=0,
        synonyms=(_log("roll.jitter.ms"), _log("roll.jitter.hours", HOUR_MS)),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        "int",
        "10485760",
        "Size of an offset index; with `index.interval.bytes` it limits a group.",
        minimum=4,
        synonyms=(_log("index.size.max.bytes"),),
        in_bytes=True,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        "int",
        "4096",
        "An index entry is written at the first batch after this many bytes.",
        minimum=0,
        synonyms=(_log("index.interval.bytes"),),
        in_bytes=True,
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        "int",
        "1048588",
        "Largest record batch a broker accepts. Larger ones in the log are cleaned anyway.",
        minimum=0,
        synonyms=(Synonym("message.max.bytes"),),
        in_bytes=True,
    )
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes",
        "int",
        "2147483639",
        "Largest record of a compressed batch, unpacked: a log with a larger one can be read, but is not cleaned "
        "(R-511). Kafka has it since 4.4; here it applies with the rules of 4.3, too.",
        minimum=1,
        maximum=2147483639,
        synonyms=(Synonym("max.decompressed.message.bytes"),),
        in_bytes=True,
    )
    retention_ms: int = setting(
        "retention.ms",
        "long",
        "604800000",
        "With `delete`: segments older than this are deleted; -1 keeps them forever.",
        minimum=-1,
        synonyms=(_retention("ms"), _retention("minutes", MINUTE_MS), _retention("hours", HOUR_MS)),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        "long",
        "-1",
        "With `delete`: the oldest segments are deleted while the log is larger than this; -1 is no limit.",
        synonyms=(_log("retention.bytes"),),
        in_bytes=True,
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        "long",
        "60000",
        "How long a `.deleted` file waits for its last readers.",
        minimum=0,
        synonyms=(_log("segment.delete.delay.ms"),),
    )
    flush_messages: int = setting(
        "flush.messages",
        "long",
        str(LONG_MAX),
        "Records after which an appended log is forced to disk.",
        minimum=1,
        synonyms=(_log("flush.interval.messages"),),
    )
    flush_ms: int = setting(
        "flush.ms",
        "long",
        str(LONG_MAX),
        "Time after which an appended log is forced to disk.",
        minimum=0,
        synonyms=(_log("flush.interval.ms"), _log("flush.scheduler.interval.ms")),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "Which clock gives a new record its time: the producer's or the log's.",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=(_log("message.timestamp.type"),),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        "long",
        str(LONG_MAX),
        "With `CreateTime`: how much older than the log's clock a new record may be.",
        minimum=0,
        synonyms=(_log("message.timestamp.before.max.ms"),),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        "long",
        str(HOUR_MS),
        "With `CreateTime`: how far ahead of the log's clock a new record may be.",
        minimum=0,
        synonyms=(_log("message.timestamp.after.max.ms"),),
    )
    preallocate: bool = setting(
        "preallocate",
        "boolean",
        "false",
        "Whether our writer keeps room behind the batches of an active segment, up to 1 MiB of zeros, so that forcing "
        "single records to disk is quicker. The room is cut off when the segment is complete or the log is closed.",
        synonyms=(_log("preallocate"),),
    )
    compression_type: str = setting(
        "compression.type",
        "string",
        "producer",
        "The codec of appended batches. The cleaner keeps each batch's own codec.",
        choices=("uncompressed", *(codec.name for codec in reversed(CODECS) if codec.id != NONE), "producer"),
        synonyms=(Synonym("compression.type"),),
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        "boolean",
        "false",
        "Tiered storage; such logs are left alone unless they are compacted (R-808, R-914).",
    )
    key_view: str = setting(
        KEY_VIEW_KEY,
        "string",
        NO_VIEW,
        "Not of Kafka, which compares the bytes of keys: `schema-registry` compares JSON, so that the same fields in "
        "another order are one key; or the name of a view that is installed (docs/key-views.md).",
    )
    survivor: str = setting(
        SURVIVOR_KEY,
        "string",
        OFFSET_SURVIVES,
        "Not of Kafka, which keeps the record of a key with the highest offset: `timestamp` keeps the one with the "
        "latest timestamp, `header:NAME` the one with the greatest number in that header; of equal ones the later "
        "(docs/survivors.md).",
        convert=checked_survivor,
    )
    record_ttl_ms: int = setting(
        RECORD_TTL_KEY,
        "long",
        "-1",
        "Not of Kafka: a round makes a tombstone of the last record of a key once it is so old by its timestamp; the "
        "tombstone goes after `delete.retention.ms` like any other. -1: records do not expire (docs/survivors.md).",
        minimum=-1,
    )


# Topic settings of Kafka 4.3.1 and 4.4.0 that a cleaner does not use.
UNUSED_TOPIC_KEYS = frozenset(
    (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "min.insync.replicas",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "unclean.leader.election.enable",
    )
)
