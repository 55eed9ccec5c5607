"""
Golden logs, cleaned by us and installed in a real broker, next to the same logs cleaned by Kafka's own cleaner; and the
same logs as they were, with all records of every other key erased, and without.

The logs are from another cluster, so topics are first created on the broker, and then get the logs' contents (R-107).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from tests.golden.archive import DATA, unpack
from tests.golden.scenario import steps
from tests.kafka.broker import (
    Broker,
    Client,
    Consumed,
    Outgoing,
    install_partition,
    repairs_at_start,
    started_without_recovery,
)
from tests.kafka.rig import Rig
from tests.reference.batches import read_batches, read_records

pytestmark = pytest.mark.kafka

# Each with a round; in the last two, one release keeps an empty batch that the other drops.
SCENARIOS = {
    "broker-transactions": 1,
    "headers-and-nulls": 1,
    "idempotent-producers": 1,
    "legacy-magic": 1,
    "log-append-time": 1,
    "lz4": 1,
    "offset-gaps": 1,
    "snappy": 1,
    "tombstones": 1,
    "zstd": 1,
    "watermark-aborted": 3,
    "watermark-unkeyed": 2,
}
BEFORE, ERASED = "before", "erased"
OURS = {"as-4.3": "4.3", "as-4.4": "4.4"}
# A topic the broker may clean on its own would change under the test's eyes.
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


@dataclass
class Shelf:
    """
    A running broker that holds each scenario as Kafka left it and as we do, and what it said when it started.

    Attributes:
        erased: the keys that were erased from each scenario.
    """

    broker: Broker
    erased: dict[str, frozenset[bytes | None]]
    without_recovery: bool
    repairs: dict[str, list[str]]
    uncommitted: dict[str, list[Consumed]]
    committed: dict[str, list[Consumed]]


def keys_of(directory: Path) -> set[bytes]:
    """Return all keys of a partition's records, by the tests' own reader."""
    batches = [batch for path in directory.glob("*.log") for batch in read_batches(path.read_bytes())]
    records = [record for batch in batches if not batch.control for record in read_records(batch)]
    return {record.key for record in records if record.key is not None}


def modern(record: Consumed) -> Consumed:
    """Return a record as a batch of magic 2 has it: there is no time without a type."""
    kind = "CreateTime" if record.timestamp_type == "NoTimestampType" else record.timestamp_type
    return record._replace(timestamp_type=kind)


@pytest.fixture(scope="module")
def shelf(
    broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shelf]:
    """Start a broker on all scenarios at once: starting it is what takes long."""
    home = tmp_path_factory.mktemp("broker")
    topics = [f"{name}-{maker}" for name in SCENARIOS for maker in ("kafkas", *OURS, BEFORE, ERASED)]
    broker = Broker(broker_rig, clients(broker_rig), home)
    with broker:
        broker.create(topics, SETTINGS)
    rounds = {
        step.scenario: step for step in steps() if step.kafka == "4.3" and step.number == SCENARIOS.get(step.scenario)
    }
    erased = {}
    for name in SCENARIOS:
        step = rounds[name]
        unpacked = unpack(DATA / f"{name}.tar.xz", home / name)
        source = TopicPartition.parse(step.partition)
        install_partition(broker, f"{name}-kafkas", unpacked / step.output, source)
        for ours, version in OURS.items():
            work = step.prepare(unpacked, home / f"{name}-{ours}")
            settings = {**step.settings, "cleaner.kafka.version": version}
            cleaner.clean(work, step.partition, settings, now_ms=step.now_ms)
            install_partition(broker, f"{name}-{ours}", work, source)
        work = step.prepare(unpacked, home / f"{name}-{BEFORE}")
        install_partition(broker, f"{name}-{BEFORE}", work, source)
        keys = keys_of(work / step.partition)
        erased[name] = frozenset(sorted(keys)[::2])
        (report,) = cleaner.erase(work, [step.partition], erased[name], step.settings, now_ms=step.now_ms)
        assert isinstance(report, cleaner.EraseReport), report
        install_partition(broker, f"{name}-{ERASED}", work, source)
    with broker:
        without_recovery = started_without_recovery(broker)
        repairs = {topic: repairs_at_start(broker, topic) for topic in topics}
        yield Shelf(broker, erased, without_recovery, repairs, broker.read(topics), broker.read(topics, committed=True))


def test_broker_on_installed_partitions_starts_without_recovery(shelf: Shelf) -> None:
    """Every cleaned partition is loaded as it is."""
    assert shelf.without_recovery
    assert {topic: lines for topic, lines in shelf.repairs.items() if lines} == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_consumer_is_given_the_same_records_as_after_kafkas_cleaning(shelf: Shelf, name: str) -> None:
    """Uncommitted and committed readers see in our logs, of whichever release's rules, what they see in Kafka's."""
    assert shelf.uncommitted[f"{name}-kafkas"]
    for ours in OURS:
        assert shelf.uncommitted[f"{name}-{ours}"] == shelf.uncommitted[f"{name}-kafkas"]
        assert shelf.committed[f"{name}-{ours}"] == shelf.committed[f"{name}-kafkas"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_consumer_is_given_all_records_but_the_erased_ones(shelf: Shelf, name: str) -> None:
    """Of both isolation levels: the same records, offsets and times as before, without those of the erased keys."""
    gone = shelf.erased[name]
    for consumed in (shelf.uncommitted, shelf.committed):
        before, after = consumed[f"{name}-{BEFORE}"], consumed[f"{name}-{ERASED}"]
        assert list(map(modern, after)) == [modern(each) for each in before if each.key not in gone]
    assert len(shelf.uncommitted[f"{name}-{ERASED}"]) < len(shelf.uncommitted[f"{name}-{BEFORE}"])


def test_broker_takes_new_writes_to_every_installed_partition(shelf: Shelf) -> None:
    """A record written behind a cleaned log is given the next offset and read back."""
    name = "zstd-as-4.4"
    shelf.broker.write(name, [Outgoing("new", "record")])
    last = shelf.broker.read([name])[name][-1]
    assert (last.key, last.value) == (b"new", b"record")
    assert last.offset > shelf.uncommitted[name][-1].offset
