"""
A broker takes over logs that we have written, and we take over a broker's: `docs/handover.md`.

A broker creates the topics, writes to them, and stops. We open its log dir and go on writing: every codec,
transactions, an idempotent producer, on topics whose settings are only in the broker's metadata log, also after stops
without a marker, more of them than the broker has had elections. Logs that were
written elsewhere, one of them from a DataFrame, are handed over: first killed in the middle, with the broker started
and stopped in between, then to the end. The broker starts.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from cleaner import Log, LogManager, Record, open_reader
from cleaner.app.handover import hand_over
from cleaner.app.options import CallContext
from cleaner.settings.sources import Sources
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from tests.kafka.broker import (
    CLUSTER_ID,
    Broker,
    Client,
    Consumed,
    Outgoing,
    repairs_at_start,
    started_without_recovery,
)
from tests.kafka.rig import Rig
from tests.unit.spark_source.reading import Row
from tests.unit.spark_source.writing import write_frame

pytestmark = pytest.mark.kafka

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONS = "transactions"
APPEND_TIME = "append-time"
ELSEWHERE = "elsewhere"
FRAME = "frame"
WRITTEN = (*CODECS, TRANSACTIONS, APPEND_TIME)
TOPICS = (*WRITTEN, ELSEWHERE, FRAME)
# A ratio of 1 is never exceeded: the broker leaves it to us what its consumer gets.
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
SMALL = {"segment.bytes": str(1 << 20)}


def records(begin: int, count: int) -> list[Record]:
    """Return records of all kinds: tombstones, empty and long values, headers, times of their own."""
    return [
        Record(
            f"key-{number % 97}".encode(),
            None if number % 11 == 0 else f"{number}-".encode() * (number % 300),
            (("number", str(number).encode()), ("null", None), ("ümlaut", b"")) if number % 7 == 0 else (),
            1_700_000_000_000 + number,
        )
        for number in range(begin, begin + count)
    ]


def in_transactions(log: Log) -> None:
    """Commit some, abort some, leave one open."""
    producer = log.producer("handover")
    for number in range(9):
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.append(records(number * 100, 50))
            log.append(records(5000 + number, 1))
            producer.append(records(number * 100 + 50, 50))
            1 // (number % 3)
    producer.begin()
    producer.append(records(9000, 10))


def fill(manager: LogManager, topic: str) -> None:
    """Write to a topic in appends of several sizes, with a roll in between."""
    log = manager.log(topic)
    log.append(records(0, 1))
    log.append(records(1, 2000))
    log.roll()
    producer = log.producer()
    for number in range(20):
        appended = producer.append(records(3000 + 10 * number, 10))
        sequence = producer.next_sequence - 10
        repeated = producer.append(records(3000 + 10 * number, 10), sequence=sequence)
        assert repeated.base_offset == appended.base_offset
    log.append([Record(b"last", b"one")])


def fill_from_rows(path: Path, topic_id: UUID) -> None:
    """Make a log dir as `df.write.format("kafkalog")` does, of three tasks' rows in many segments."""
    rows: list[Row] = [
        {
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "timestamp": datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=record.timestamp_ms or 0),
        }
        for record in records(0, 2400)
    ]
    options = {"topic": FRAME, "compression": "zstd", "segmentBytes": "20k", "batchBytes": "4k"}
    ids = json.dumps({FRAME: format_uuid(topic_id)})
    write_frame(path, rows[:900], rows[900:901], rows[901:], clusterId=CLUSTER_ID, topicIds=ids, **options)


class Killed(BaseException):
    """The process is gone."""


class KilledAtRename(FileSystem):
    """Kills its process when a copy that is whole, lines and all, is about to get its name."""

    def rename(self, source: Path, target: Path) -> None:
        """Die."""
        if source.name.endswith("-delete") and target.name == f"{ELSEWHERE}-0":
            raise Killed
        super().rename(source, target)


def fill_elsewhere(path: Path) -> None:
    """Make a log under an id of its own, with unclean stops, each of which begins a leader epoch."""
    with LogManager(path, create=True, cleaner=False) as manager:
        manager.create_topic(ELSEWHERE, 1, {"cleanup.policy": "compact"})
    for life in range(20):
        (path / ".kafka_cleanshutdown").unlink()
        with LogManager(path, cleaner=False) as manager:
            manager.log(ELSEWHERE).append(records(7000 + life, 1)).durable.result()
    with LogManager(path, cleaner=False) as manager:
        fill(manager, ELSEWHERE)
        assert manager.log(ELSEWHERE).leader_epoch == 20  # more than the broker has had elections


def conflicting_epochs(broker: Broker) -> list[str]:
    """Return the lines of the last start's log about leader epochs that the broker has forgotten."""
    return [line for line in broker.log.splitlines() if "conflicting" in line]


def hand_over_to(broker: Broker, source: Path, topic: str, fs: FileSystem | None = None) -> list[str]:
    """Hand a topic over as `cleaner handover` does, under the id the broker has for it; returns the warnings."""
    topic_id = read_topic_id(FileSystem(), broker.log_dir / f"{topic}-0" / "partition.metadata")
    assert topic_id is not None
    warnings: list[str] = []
    report = hand_over(source, broker.log_dir, {topic: topic_id}, Sources(), CallContext.of(fs, warn=warnings.append))
    assert [each.state for each in report.partitions] == ["handed over"], report.refused
    return warnings


def read_by_us(log_dir: Path, topic: str, *, committed: bool = False) -> list[Consumed]:
    """Return what our reader gives, in the words of Kafka's consumer."""
    kind = "LogAppendTime" if topic == APPEND_TIME else "CreateTime"
    with open_reader(log_dir, topic) as reader:
        isolation = "read_committed" if committed else "read_uncommitted"
        return [
            Consumed(record.offset or 0, record.timestamp_ms or 0, kind, record.key, record.value, record.headers)
            for record in reader.read(0, isolation=isolation)  # type: ignore[arg-type]
        ]


@dataclass
class Story:
    """What happened, for the tests to judge."""

    broker_before: dict[str, list[Consumed]]
    ours_before: dict[str, list[Consumed]]
    without_recovery: bool
    repairs: list[str]
    stray: list[str]
    ours: dict[str, list[Consumed]]
    brokers: dict[str, list[Consumed]]
    ours_committed: list[Consumed]
    brokers_committed: list[Consumed]
    back: list[Consumed]
    back_by_us: list[Consumed]
    interrupted: list[Consumed]
    more: list[Consumed]
    conflicts: list[str]
    warnings: list[str]


@pytest.fixture(scope="module")
def story(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run the whole story once with each version of the broker."""
    home = tmp_path_factory.mktemp("handover")
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), home / "broker")
    with broker:
        for codec in CODECS:
            broker.create([codec], {"compression.type": codec} | SMALL)
        broker.create([TRANSACTIONS], COMPACTED | SMALL)
        broker.create([APPEND_TIME], {"message.timestamp.type": "LogAppendTime"})
        broker.create([ELSEWHERE, FRAME], COMPACTED)
        for topic in WRITTEN:
            broker.write(topic, [Outgoing(f"k{number}", f"v{number}") for number in range(50)])
        before = broker.read(TOPICS)
    ours_before = {topic: read_by_us(broker.log_dir, topic) for topic in TOPICS}

    with LogManager(broker.log_dir, cleaner=False) as manager:
        for topic in WRITTEN:
            fill(manager, topic)
        in_transactions(manager.log(TRANSACTIONS))
    for life in range(4):
        (broker.log_dir / ".kafka_cleanshutdown").unlink()
        with LogManager(broker.log_dir, cleaner=False) as manager:
            for topic in WRITTEN:
                manager.log(topic).append(records(8000 + life, 1)).durable.result()
    fill_elsewhere(home / "elsewhere")
    frame_id = read_topic_id(FileSystem(), broker.log_dir / f"{FRAME}-0" / "partition.metadata")
    assert frame_id is not None
    fill_from_rows(home / "frame", frame_id)
    with pytest.raises(Killed):
        hand_over_to(broker, home / "elsewhere", ELSEWHERE, KilledAtRename())
    with broker:
        interrupted = broker.read([ELSEWHERE])[ELSEWHERE]
        conflicts = conflicting_epochs(broker)
    warnings = [
        *hand_over_to(broker, home / "elsewhere", ELSEWHERE),
        *hand_over_to(broker, home / "frame", FRAME),
    ]
    ours = {topic: read_by_us(broker.log_dir, topic) for topic in TOPICS}
    ours_committed = read_by_us(broker.log_dir, TRANSACTIONS, committed=True)

    with broker:
        without_recovery = started_without_recovery(broker)
        repairs = [line for topic in TOPICS for line in repairs_at_start(broker, topic)]
        brokers = broker.read(TOPICS)
        brokers_committed = broker.read([TRANSACTIONS], committed=True)[TRANSACTIONS]
        broker.write(ELSEWHERE, [Outgoing("k", "more")])
        more = broker.read([ELSEWHERE])[ELSEWHERE]
        conflicts += conflicting_epochs(broker)
        broker.write(TRANSACTIONS, [Outgoing("k", "back", "commit")], {"transactional.id": "handover"})
        broker.write(TRANSACTIONS, [Outgoing("k", "gone", "abort")], {"transactional.id": "handover"})
        back = broker.read([TRANSACTIONS], committed=True)[TRANSACTIONS]
        stray = [path.name for path in broker.log_dir.iterdir() if path.name.endswith("-stray")]
    with LogManager(broker.log_dir, cleaner=False) as manager:
        assert manager.failed == {}
    back_by_us = read_by_us(broker.log_dir, TRANSACTIONS, committed=True)
    return Story(
        before,
        ours_before,
        without_recovery,
        repairs,
        stray,
        ours,
        brokers,
        ours_committed,
        brokers_committed,
        back,
        back_by_us,
        interrupted,
        more,
        conflicts,
        warnings,
    )


def test_we_read_what_a_broker_wrote(story: Story) -> None:
    """As its own consumer does."""
    assert all(len(story.broker_before[topic]) == 50 for topic in WRITTEN)
    assert story.ours_before == story.broker_before


def test_broker_starts_on_our_files_without_recovery(story: Story) -> None:
    """Nothing is repaired or renamed as a stray, and nothing created again."""
    assert story.without_recovery
    assert story.repairs == []
    assert story.stray == []


@pytest.mark.parametrize("topic", TOPICS)
def test_consumer_reads_what_we_wrote(story: Story, topic: str) -> None:
    """Offsets, times, keys, values, headers; whatever the codec."""
    assert len(story.ours[topic]) > 2100
    assert story.brokers[topic] == story.ours[topic]


def test_consumer_of_committed_records_reads_what_ours_does(story: Story) -> None:
    """Aborted transactions are not seen, nor the one we had left open when we closed."""
    assert 0 < len(story.ours_committed) < len(story.ours[TRANSACTIONS])
    assert story.brokers_committed == story.ours_committed


def test_handover_killed_before_its_end_leaves_an_empty_topic(story: Story) -> None:
    """The broker starts, makes a log anew where none is, and the next try finds its place; nothing is left behind."""
    assert story.interrupted == []
    assert len(story.brokers[ELSEWHERE]) > 2000


def test_broker_appends_to_a_log_that_was_handed_over(story: Story) -> None:
    """Behind our end, in leader epochs of its own that contradict those of no batch of ours, in any log."""
    end = story.brokers[ELSEWHERE][-1].offset
    assert [(record.offset, record.value) for record in story.more[-1:]] == [(end + 1, b"more")]
    assert story.more[:-1] == story.brokers[ELSEWHERE]
    assert story.conflicts == []


def test_settings_that_the_broker_has_too_draw_no_warning(story: Story) -> None:
    """Ids, counts and settings were compared with its own metadata log."""
    assert story.warnings == []


def test_broker_goes_on_and_hands_the_log_back(story: Story) -> None:
    """With transactions of its own behind ours."""
    assert [record.value for record in story.back[len(story.brokers_committed) :]] == [b"back"]
    assert story.back_by_us == story.back
