"""Options: each by its type; an unknown one is refused with the nearest name."""

from __future__ import annotations

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError
from cleaner.spark.source.columns import BATCH_FIELDS, ddl
from cleaner.spark.source.offsets import EARLIEST, LATEST, Offsets
from cleaner.spark.source.options import ReadOptions, ignored_options, read_options


def options(**given: str) -> ReadOptions:
    """Read options together with a path."""
    return read_options({"path": "/logs", **given})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "prices"}, "no option 'topic'; the nearest is 'topics'"),
        ({"startingoffset": "5"}, "no option 'startingoffset'; the nearest is 'startingOffsets'"),
        ({"subscribePatern": "x.*"}, "no option 'subscribePatern'; the nearest is 'subscribePattern'"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign: each of them says which topics"),
        ({"topics": "a", "subscribePattern": "b"}, "topics and subscribePattern: each of them says which topics"),
        ({"assign": '{"a": [0]}', "partitions": "0"}, "assign and partitions: each of them says which partitions"),
        (
            {"isolationLevel": "read_uncommitted", "kafka.isolation.level": "read_committed"},
            "isolationLevel=read_uncommitted and kafka.isolation.level=read_committed: only one of them can be true",
        ),
        ({"latestPerKey": "true", "minPartitions": "4"}, "latestPerKey and minPartitions: the last of all keys"),
        ({"latestPerKey": "true", "maxRecordsPerPartition": "4"}, "latestPerKey and maxRecordsPerPartition"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"assign": '{"a": 0}'}, "must be JSON with partitions by topic"),
        ({"assign": '["a"]'}, "must be JSON with partitions by topic"),
        ({"endingTimestamp": "tomorrow"}, "endingTimestamp=tomorrow: must be milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": '{"t": 5}'}, "endingOffsetsByTimestamp: the value of topic t"),
        ({"kafka.isolation.level": "committed"}, "must be one of read_uncommitted, read_committed"),
        ({"minPartitions": "0"}, "minPartitions=0: must be a whole number"),
        ({"partitions": "1,x"}, "'x' is no number and no range"),
        ({"startingOffsets": "first"}, "neither a word, a number nor JSON"),
        ({"startingOffsets": "-3"}, "must be a number of at least -2"),
        ({"endingOffsets": '{"t": 5}'}, "the value of topic t is not of the form"),
        ({"endingOffsets": '{"t": {"0": "5"}}'}, "is not a partition and a number"),
        ({"startingTimestamp": "yesterday"}, "must be milliseconds since 1970, a time such as"),
        ({"isolationLevel": "committed"}, "must be one of read_uncommitted, read_committed"),
        ({"includeHeaders": "yes"}, "must be one of true, false"),
        ({"columns": "key,values"}, "there is no 'values'; there are key, value, topic"),
        ({"latestPerKeyMemory": "1x"}, "must be a number of bytes, with K, M"),
        ({"maxPartitionBytes": "0"}, "must be a size of at least 1 bytes"),
        ({"maxOffsetsPerTrigger": "0"}, "must be a whole number of at least 1"),
        ({"includeTombstones": "true"}, "goes with latestPerKey=true"),
        ({"badBatches": "ignore"}, "must be one of fail, skip, report"),
    ],
)
def test_option_that_makes_no_sense_is_refused_by_name(given: dict[str, str], reason: str) -> None:
    """The error says what is wrong with which option."""
    with pytest.raises(UsageError, match=reason):
        options(**given)


def test_read_without_a_path_is_refused() -> None:
    """`load()` without an argument."""
    with pytest.raises(UsageError, match="needs a path"):
        read_options({})


def test_options_are_read_by_type_whatever_their_case() -> None:
    """Spark passes them in lower case."""
    read = options(
        TOPICS="a, b", partitions="0,2-4", maxpartitionbytes="2MB", latestperkeymemory="64k", badbatches="skip"
    )
    assert (read.topics, read.partitions) == ({"a", "b"}, {0, 2, 3, 4})
    assert (read.task_bytes, read.map_bytes, read.bad_batches) == (2 << 20, 64 << 10, "skip")
    usual = options()
    assert (usual.topics, usual.partitions, usual.max_offsets, usual.starting_times) == (None, None, None, None)
    assert usual.fail_on_data_loss and not (usual.committed or usual.latest_per_key or usual.longest_replica)


def test_offsets_are_resolved_within_the_log() -> None:
    """Words, a number for all, or JSON by partition; others begin and end as usual."""
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    assert options().starting.resolve(here, 5, 9) == 5
    assert options().ending.resolve(here, 5, 9) == 9
    assert [options(startingOffsets=text).starting.resolve(here, 5, 9) for text in ("3", "7", "12")] == [5, 7, 9]
    json = options(startingOffsets='{"t": {"0": -1}}', endingOffsets='{"t": {"0": -2, "1": 6}}')
    assert (json.starting.resolve(here, 5, 9), json.starting.resolve(there, 5, 9)) == (9, 5)
    assert (json.ending.resolve(here, 5, 9), json.ending.resolve(there, 5, 9)) == (5, 6)
    assert Offsets(LATEST).of(here) == LATEST != EARLIEST


def test_place_of_a_stream_may_be_given_as_it_is() -> None:
    """As in `endOffset` of its progress, with the marks next to the offsets."""
    place = '{"t": {"0": 7}, "@": {"t": {"0": [5, 6, 0]}}}'
    assert options(startingOffsets=place).starting.by_partition == {TopicPartition("t", 0): 7}


def test_time_is_milliseconds_or_iso() -> None:
    """A time without a zone is UTC."""
    name = TopicPartition("t", 3)
    for text in ("1700000000000", "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-14T23:13:20+01:00"):
        times = options(startingTimestamp=text).starting_times
        assert times is not None and times.of(name) == 1_700_000_000_000
    times = options(startingTimestamp='{"t": {"0": 5}}').starting_times
    assert times is not None and (times.of(name), times.of(TopicPartition("t", 0))) == (None, 5)


def test_columns_are_those_of_sparks_kafka_source_unless_chosen() -> None:
    """Headers on request, chosen columns in their order, and a last column if damage is reported."""
    usual = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options().columns == usual
    assert options(includeHeaders="true").columns == (*usual, "headers")
    assert options(columns="Offset, producerid,offset", badBatches="report").columns == (
        "offset",
        "producerId",
        "badBatch",
    )
    assert ddl(options(columns="offset,timestamp").columns) == "`offset` bigint, `timestamp` timestamp"
    assert options(columns=",".join(BATCH_FIELDS)).columns == tuple(BATCH_FIELDS)


def test_topics_are_chosen_as_in_sparks_kafka_source() -> None:
    """By names, by a pattern for the whole name, or partition by partition."""
    names = [TopicPartition(topic, number) for topic in ("a", "ab") for number in (0, 1)]

    def chosen(**given: str) -> list[str]:
        return [str(name) for name in names if options(**given).selects(name)]

    assert chosen(subscribe="a, x") == ["a-0", "a-1"]
    assert chosen(subscribePattern="a") == ["a-0", "a-1"]
    assert chosen(subscribePattern="a.*", partitions="1") == ["a-1", "ab-1"]
    assert chosen(assign='{"a": [1], "ab": [0]}') == ["a-1", "ab-0"]
    assert chosen() == [str(name) for name in names]


def test_time_for_all_overrides_times_by_partition() -> None:
    """As in Spark's Kafka source."""
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    by_partition = '{"t": {"0": 7}}'
    both = options(startingTimestamp="5", startingOffsetsByTimestamp=by_partition).starting_times
    one = options(endingOffsetsByTimestamp=by_partition).ending_times
    assert both is not None and (both.of(here), both.of(there)) == (5, 5)
    assert one is not None and (one.of(here), one.of(there)) == (7, None)


def test_isolation_level_has_the_name_of_the_consumers_setting_too() -> None:
    """Given twice, both must be the same."""
    assert options(**{"kafka.isolation.level": "read_committed"}).committed
    assert options(**{"isolationLevel": "read_committed", "kafka.isolation.level": "read_committed"}).committed


def test_options_of_brokers_are_ignored_and_named() -> None:
    """In any case, by their name in Spark's documents; other options are not."""
    given = {"Kafka.Bootstrap.Servers": "x:9092", "groupidprefix": "g", "kafka.isolation.level": "read_committed"}
    assert ignored_options(given) == ["Kafka.Bootstrap.Servers", "groupIdPrefix"]
    assert options(**given).committed
