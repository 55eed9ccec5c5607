"""
Golden logs, cleaned by us and installed in a real broker, next to the same logs cleaned by Kafka's own cleaner.

The logs are from another cluster, so topics are first created on the broker, and then get the logs' contents (R-107).
"""

from __future__ import annotations

from collections.abc import Iterator
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

SCENARIOS = (
    "broker-transactions",
    "headers-and-nulls",
    "idempotent-producers",
    "legacy-magic",
    "log-append-time",
    "lz4",
    "offset-gaps",
    "snappy",
    "tombstones",
    "zstd",
)
# A topic the broker may clean on its own would change under the test's eyes.
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


@dataclass
class Shelf:
    """A running broker that holds each scenario twice, and what it said when it started."""

    broker: Broker
    without_recovery: bool
    repairs: dict[str, list[str]]
    uncommitted: dict[str, list[Consumed]]
    committed: dict[str, list[Consumed]]


@pytest.fixture(scope="module")
def shelf(broker_rig: Rig, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Start a broker on all scenarios at once: starting it is what takes long."""
    home = tmp_path_factory.mktemp("broker")
    topics = [f"{name}-{maker}" for name in SCENARIOS for maker in ("ours", "kafkas")]
    broker = Broker(broker_rig, client, home)
    with broker:
        broker.create(topics, SETTINGS)
    first_rounds = {step.scenario: step for step in steps() if step.number == 1}
    for name in SCENARIOS:
        step = first_rounds[name]
        unpacked = unpack(DATA / f"{name}.tar.xz", home / name)
        source = TopicPartition.parse(step.partition)
        install_partition(broker, f"{name}-kafkas", unpacked / step.output, source)
        work = step.prepare(unpacked, home / f"{name}-work")
        cleaner.clean(work, step.partition, step.settings, now_ms=step.now_ms)
        install_partition(broker, f"{name}-ours", work, source)
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
    """Uncommitted and committed readers see in our log what they see in Kafka's."""
    assert shelf.uncommitted[f"{name}-ours"]
    assert shelf.uncommitted[f"{name}-kafkas"] == shelf.uncommitted[f"{name}-ours"]
    assert shelf.committed[f"{name}-kafkas"] == shelf.committed[f"{name}-ours"]


def test_broker_takes_new_writes_to_every_installed_partition(shelf: Shelf) -> None:
    """A record written behind a cleaned log is given the next offset and read back."""
    name = "zstd-ours"
    shelf.broker.write(name, [Outgoing("new", "record")])
    last = shelf.broker.read([name])[name][-1]
    assert (last.key, last.value) == (b"new", b"record")
    assert last.offset > shelf.uncommitted[name][-1].offset
