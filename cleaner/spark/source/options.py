"""
The options of `spark.read.format("kafkalog")`, by name and type; an unknown option is refused, with the nearest name.

Options of Spark's own Kafka source have the same meaning here; options about brokers and consumers are ignored with a
note. Spark passes options as texts, under case-insensitive names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from cleaner.base.mistakes import nearest
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import parse_size
from cleaner.config.forms import OFFSET_SURVIVES, checked_survivor
from cleaner.errors import ConfigError, UsageError
from cleaner.spark.source.columns import BAD_BATCH, SELECTABLE, usual_columns
from cleaner.spark.source.offsets import EARLIEST, LATEST, Offsets, Times, parse_offsets, parse_times

BadBatches = Literal["fail", "skip", "report"]

READ_DEFAULTS = {
    "path": "",
    "topics": "",
    "subscribe": "",
    "subscribePattern": "",
    "assign": "",
    "partitions": "",
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingTimestamp": "",
    "endingTimestamp": "",
    "startingOffsetsByTimestamp": "",
    "endingOffsetsByTimestamp": "",
    "startingOffsetsByTimestampStrategy": "latest",
    "isolationLevel": "read_uncommitted",
    "kafka.isolation.level": "read_uncommitted",
    "includeHeaders": "false",
    "columns": "",
    "latestPerKey": "false",
    "includeTombstones": "false",
    "latestPerKeyMemory": "512m",
    "survivor": "offset",
    "maxDecompressedBatch": "64m",
    "badBatches": "fail",
    "replica": "one",
    "maxPartitionBytes": "128m",
    "minPartitions": "",
    "maxRecordsPerPartition": "",
    "pushFilters": "false",
    "failOnDataLoss": "true",
    "maxOffsetsPerTrigger": "",
    "activeSegment": "wait",
}
"""Every option of a read, with the text of its default."""

NOT_HERE = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "useDeprecatedOffsetFetching",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
"""Options of Spark's Kafka source that are ignored without a broker, like all that begin with `kafka.`."""

_KAFKA = "kafka."
_TOPIC_OPTIONS = ("topics", "subscribe", "subscribePattern", "assign")
_ISOLATION = ("read_uncommitted", "read_committed")
_SMALLEST_MAP_BYTES = 1 << 16


@dataclass(frozen=True)
class ReadOptions:
    """
    What to read, and how.

    Attributes:
        path: of log dirs or partition directories; may hold the wildcards of `glob`.
        topics, partitions: only these; None: all.
        topic_pattern: only topics whose whole name matches; None: all.
        assigned: only these partitions; None: all.
        starting, ending: offsets to begin and end at, the end exclusive.
        starting_times, ending_times: begin, or end, at the first record of this time or later; they take precedence
            over `starting` and `ending`.
        needs_start_time: a partition without a record of its starting time is an error.
        committed: leave out aborted transactions, and everything from the first undecided transaction on.
        columns: in the order wanted; includes `BAD_BATCH` when damage is reported.
        latest_per_key: only the last record of each key of a partition.
        survivor: with `latest_per_key`, which record of a key is the last: `cleaner.survivor`.
        tombstones: with `latest_per_key`, also keys whose last value is null.
        map_bytes: memory that a task may use for the keys it compares.
        batch_bytes: size to which a batch may unpack; more is damage, or an attack on the memory of tasks.
        bad_batches: how to treat damage.
        longest_replica: if a partition is found twice, read the replica with the largest end offset.
        task_bytes: about how much one task reads.
        min_tasks: at least this many tasks, if there are as many offsets.
        max_records: the most offsets that one task reads; None: any number.
        push_filters: let filters limit what is read, see `source.FilteringReader`.
        fail_on_data_loss: missing offsets are an error.
        max_offsets: the most offsets that a stream reads in a micro-batch; None: any number.
        reads_active: a stream also reads the active segment, up to the high watermark.
    """

    path: str
    topics: frozenset[str] | None
    partitions: frozenset[int] | None
    topic_pattern: str | None
    assigned: frozenset[TopicPartition] | None
    starting: Offsets
    ending: Offsets
    starting_times: Times | None
    ending_times: Times | None
    needs_start_time: bool
    committed: bool
    columns: tuple[str, ...]
    latest_per_key: bool
    tombstones: bool
    survivor: str
    map_bytes: int
    batch_bytes: int
    bad_batches: BadBatches
    longest_replica: bool
    task_bytes: int
    min_tasks: int
    max_records: int | None
    push_filters: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    reads_active: bool

    def selects(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the options select a partition."""
        topic, partition = topic_partition
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and (self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None)
            and (self.assigned is None or topic_partition in self.assigned)
        )


def given_options(options: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """
    Return the text of every option, under the name in `defaults`.

    Raises:
        UsageError: an option that is not in `defaults`; the message gives the nearest one.
    """
    names = {name.lower(): name for name in defaults}
    texts = dict(defaults)
    for key, text in options.items():
        name = names.get(key.lower())
        if name is None and _is_ignored(key):
            continue
        if name is None:
            raise UsageError(f"kafkalog has no option {key!r}; the nearest is {nearest(key, defaults, 0.0)!r}")
        texts[name] = text.strip()
    return texts


def ignored_options(options: Mapping[str, str]) -> list[str]:
    """Return the given options of Spark's Kafka source that are ignored here."""
    names = {name.lower(): name for name in NOT_HERE}
    return sorted(names.get(key.lower(), key) for key in options if _is_ignored(key))


def _is_ignored(key: str) -> bool:
    lower = key.lower()
    is_consumers = lower.startswith(_KAFKA) and lower not in {name.lower() for name in READ_DEFAULTS}
    return is_consumers or lower in {name.lower() for name in NOT_HERE}


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """
    Parse the options of a batch or a stream.

    Raises:
        UsageError: an unknown option, or an invalid text.
    """
    texts = given_options(options, READ_DEFAULTS)
    if not texts["path"]:
        raise UsageError("kafkalog needs a path: load('/var/lib/kafka'), a log dir or partition directories")
    latest = flag(texts, "latestPerKey")
    tombstones = flag(texts, "includeTombstones")
    if tombstones and not latest:
        raise UsageError("includeTombstones=true goes with latestPerKey=true; other reads show all tombstones anyway")
    if has_own_survivor(texts["survivor"]) and not latest:
        raise UsageError("survivor goes with latestPerKey=true; other reads show all records anyway")
    bad_batches = choice(texts, "badBatches", ("fail", "skip", "report"))
    given = {key.lower() for key in options}
    _require_one([name for name in _TOPIC_OPTIONS if texts[name]], "each of them says which topics are read")
    _require_one([name for name in ("assign", "partitions") if texts[name]], "each of them says which partitions")
    for name in ("minPartitions", "maxRecordsPerPartition"):
        _require_one(["latestPerKey"] * latest + [name] * bool(texts[name]), "the last of all keys are one task's work")
    most = texts["maxOffsetsPerTrigger"]
    return ReadOptions(
        path=texts["path"],
        topics=frozenset(_words(texts["topics"] or texts["subscribe"])) or None,
        partitions=_partitions(texts["partitions"]),
        topic_pattern=_pattern(texts["subscribePattern"]),
        assigned=_assigned(texts["assign"]),
        starting=parse_offsets("startingOffsets", texts["startingOffsets"], EARLIEST),
        ending=parse_offsets("endingOffsets", texts["endingOffsets"], LATEST),
        starting_times=_times(texts, "startingTimestamp", "startingOffsetsByTimestamp"),
        ending_times=_times(texts, "endingTimestamp", "endingOffsetsByTimestamp"),
        needs_start_time=choice(texts, "startingOffsetsByTimestampStrategy", ("latest", "error")) == "error",
        committed=_isolation(texts, given) == "read_committed",
        columns=_columns(texts, reports=bad_batches == "report"),
        latest_per_key=latest,
        tombstones=tombstones,
        survivor=texts["survivor"],
        map_bytes=size(texts, "latestPerKeyMemory", _SMALLEST_MAP_BYTES),
        batch_bytes=size(texts, "maxDecompressedBatch", 1),
        bad_batches=bad_batches,  # type: ignore[arg-type]  # one of its three words
        longest_replica=choice(texts, "replica", ("one", "longest")) == "longest",
        task_bytes=size(texts, "maxPartitionBytes", 1),
        min_tasks=number(texts, "minPartitions", 1) if texts["minPartitions"] else 1,
        max_records=number(texts, "maxRecordsPerPartition", 1) if texts["maxRecordsPerPartition"] else None,
        push_filters=flag(texts, "pushFilters"),
        fail_on_data_loss=flag(texts, "failOnDataLoss"),
        max_offsets=number(texts, "maxOffsetsPerTrigger", 1) if most else None,
        reads_active=choice(texts, "activeSegment", ("wait", "read")) == "read",
    )


def flag(texts: Mapping[str, str], name: str) -> bool:
    """Return a boolean. Raises UsageError."""
    return choice({name: texts[name].lower()}, name, ("true", "false")) == "true"


def has_own_survivor(text: str) -> bool:
    """Tell whether a survivor rule is not the default. Raises UsageError for what is none."""
    try:
        return checked_survivor(text) != OFFSET_SURVIVES
    except ConfigError as error:
        raise UsageError(f"survivor={text}: {error.reason}") from error


def choice(texts: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return one of some words. Raises UsageError."""
    if texts[name] not in allowed:
        raise UsageError(f"{name}={texts[name]}: must be one of {', '.join(allowed)}")
    return texts[name]


def number(texts: Mapping[str, str], name: str, least: int) -> int:
    """Return a whole number. Raises UsageError."""
    text = texts[name]
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < least:
        raise UsageError(f"{name}={text}: must be a whole number of at least {least}")
    return int(text)


def size(texts: Mapping[str, str], name: str, least: int) -> int:
    """Return a size in bytes, written as in Spark: `134217728`, `128m`, `1gb`. Raises UsageError."""
    try:
        found = parse_size(texts[name])
    except ValueError as error:
        raise UsageError(f"{name}={texts[name]}: {error}") from None
    if found < least:
        raise UsageError(f"{name}={texts[name]}: must be a size of at least {least} bytes, such as 128m or 1g")
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _partitions(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for word in _words(text):
        match = re.fullmatch("([0-9]{1,9})(?:-([0-9]{1,9}))?", word)
        if match is None:
            raise UsageError(f"partitions={text}: {word!r} is no number and no range such as 0-7")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found) or None


def _columns(texts: Mapping[str, str], *, reports: bool) -> tuple[str, ...]:
    headers = flag(texts, "includeHeaders")
    chosen: tuple[str, ...] = usual_columns(headers=headers)
    if texts["columns"]:
        names = {name.lower(): name for name in SELECTABLE}
        words = _words(texts["columns"])
        for word in words:
            if word.lower() not in names:
                raise UsageError(f"columns: there is no {word!r}; there are {', '.join(SELECTABLE)}")
        chosen = tuple(dict.fromkeys(names[word.lower()] for word in words))
    return (*chosen, BAD_BATCH) if reports else chosen


def _require_one(given: list[str], reason: str) -> None:
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]}: {reason}; give one of them")


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"subscribePattern={text}: no regular expression: {error}") from error
    return text or None


def _assigned(text: str) -> frozenset[TopicPartition] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
        pairs = [(topic, of) for topic, partitions in found.items() for of in partitions]
    except (AttributeError, TypeError, ValueError):
        pairs = []
    if not pairs or not all(isinstance(of, int) and not isinstance(of, bool) and of >= 0 for _, of in pairs):
        raise UsageError(f'assign={text}: must be JSON with partitions by topic, as {{"prices": [0, 1]}}')
    return frozenset(TopicPartition(topic, of) for topic, of in pairs)


def _isolation(texts: Mapping[str, str], given: set[str]) -> str:
    names = [name for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given]
    levels = [choice(texts, name, _ISOLATION) for name in names]
    if len(set(levels)) > 1:
        _require_one([f"{name}={texts[name]}" for name in names], "only one of them can be true")
    return levels[0] if levels else _ISOLATION[0]


def _times(texts: Mapping[str, str], for_all: str, by_partition: str) -> Times | None:
    """Parse two options; the first takes precedence, as in Spark's Kafka source."""
    name = for_all if texts[for_all] else by_partition
    text = texts[name]
    if not text:
        return None
    if text.startswith("{") or (text.isascii() and text.isdecimal()):
        return parse_times(name, text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        reason = "must be milliseconds since 1970, a time such as 2026-01-31T12:00:00Z, or JSON by topic and partition"
        raise UsageError(f"{name}={text}: {reason}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return parse_times(name, json.dumps(int(moment.timestamp() * 1000)))
