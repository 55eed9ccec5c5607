"""
Golden logs, cleaned by us and installed in a real broker, next to the same logs cleaned by Kafka's own cleaner.

The logs are from another cluster, so topics are first created on the broker, and then get the logs' contents (R-107).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
OURS = {"as-4.3": "4.3", "as-4.4": "4.4"}
# A topic the broker may clean on its own would change under the test's eyes.
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


@dataclass
class Shelf:
    """A running broker that holds each scenario as Kafka left it and as we do, and what it said when it started."""

    broker: Broker
    without_recovery: bool
    repairs: dict[str, list[str]]
    uncommitted: dict[str, list[Consumed]]
    committed: dict[str, list[Consumed]]


@pytest.fixture(scope="module")
def shelf(
    broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shelf]:
    """Start a broker on all scenarios at once: starting it is what takes long."""
    home = tmp_path_factory.mktemp("broker")
    topics = [f"{name}-{maker}" for name in SCENARIOS for maker in ("kafkas", *OURS)]
    broker = Broker(broker_rig, clients(broker_rig), home)
    with broker:
        broker.create(topics, SETTINGS)
    rounds = {
        step.scenario: step for step in steps() if step.kafka == "4.3" and step.number == SCENARIOS.get(step.scenario)
    }
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
    with broker:
        without_recovery = started_without_recovery(broker)
        repairs = {topic: repairs_at_start(broker, topic) for topic in topics}
        yield Shelf(broker, without_recovery, repairs, broker.read(topics), broker.read(topics, committed=True))


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


def test_broker_takes_new_writes_to_every_installed_partition(shelf: Shelf) -> None:
    """A record written behind a cleaned log is given the next offset and read back."""
    name = "zstd-as-4.4"
    shelf.broker.write(name, [Outgoing("new", "record")])
    last = shelf.broker.read([name])[name][-1]
    assert (last.key, last.value) == (b"new", b"record")
    assert last.offset > shelf.uncommitted[name][-1].offset
