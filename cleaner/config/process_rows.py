"""The settings of the process that every command reads: Kafka's (spec rule R-801) and ours; see `config_table.py`."""

from __future__ import annotations

from cleaner.config.definition import Setting

# Double.MAX_VALUE, Kafka's way to say "not throttled".
UNLIMITED_RATE = 1.7976931348623157e308

PROCESS_ROWS = (
    Setting(
        "log.cleaner.threads",
        "int",
        "1",
        "Logs cleaned at the same time; they share the dedupe buffer.",
        minimum=1,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        "134217728",
        "Bytes of offset maps of all threads together, 24 a key. Sets how many keys a round takes, not what is "
        "touched: a smaller map is used when the dirty section cannot fill it.",
        minimum=0,
        in_bytes=True,
    ),
    Setting(
        "log.cleaner.io.buffer.size",
        "int",
        "524288",
        "Bytes of I/O buffers of all threads together.",
        minimum=0,
        in_bytes=True,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        "double",
        "0.9",
        "How full the offset map may become (its name is Kafka's).",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        repr(UNLIMITED_RATE),
        "Bytes read and written a second, all threads together.",
        in_bytes=True,
    ),
    Setting(
        "message.max.bytes",
        "int",
        "1048588",
        "The broker's largest record batch, and the default of `max.message.bytes`.",
        minimum=0,
        in_bytes=True,
    ),
    Setting(
        "producer.id.expiration.ms",
        "int",
        "86400000",
        "An idle producer is forgotten after this; its last batch then no longer stays (R-545).",
        minimum=1,
    ),
    Setting("log.dirs", "list", None, "The log dirs of the broker, when the command names none.", dynamic=False),
    Setting(
        "log.dir",
        "list",
        "/tmp/kafka-logs",  # noqa: S108 - Kafka's own
        "Used when `log.dirs` is not set; its default is Kafka's and never used here.",
        dynamic=False,
    ),
    Setting(
        "metadata.log.dir",
        "string",
        None,
        "Where `__cluster_metadata-0` is when it is not in the first log dir: topic settings are read from it.",
    ),
    Setting("node.id", "int", None, "Whose dynamic broker settings count, when `meta.properties` does not say."),
    Setting("broker.id", "int", None, "Older name of `node.id`."),
    Setting(
        "offsets.topic.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__consumer_offsets`.",
        minimum=1,
        in_bytes=True,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__transaction_state`.",
        minimum=1,
        in_bytes=True,
    ),
    Setting(
        "share.coordinator.state.topic.segment.bytes",
        "int",
        "104857600",
        "`segment.bytes` of `__share_group_state`.",
        minimum=1,
        in_bytes=True,
    ),
    Setting(
        "cleaner.map.kafka.cap",
        "boolean",
        "false",
        "Bound a thread's offset map to 2 GiB, as Kafka does (R-523).",
    ),
    Setting(
        "cleaner.trust.default.policy",
        "boolean",
        "false",
        "Let `--all` clean topics whose policy is known only from a default.",
    ),
    Setting(
        "cleaner.pipeline.threads",
        "int",
        None,
        "Threads that work on one log side by side. Default: the processors this process may use, at most 4.",
        minimum=1,
        maximum=64,
    ),
    Setting(
        "cleaner.max.decompressed.batch.bytes",
        "long",
        None,
        "A batch that unpacks to more is refused. Default: 64 times the largest of 1 MiB, `message.max.bytes` and "
        "`max.message.bytes`.",
        minimum=1,
        in_bytes=True,
    ),
    Setting(
        "cleaner.topics.dir",
        "string",
        None,
        "A directory of `<topic>.properties` files, when the command names none with `--topics-dir`.",
    ),
)
