"""Exports beside a running broker: tables are what its consumer of committed records comes to, cleaned or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from tests.kafka.broker import Broker, Client, Outgoing
from tests.kafka.rig import Rig
from tests.reference.table import Row, Table, changes
from tests.support.tables import changes_in, table_in

pytestmark = [pytest.mark.kafka, pytest.mark.slow]  # tests/property/test_export.py is the short form

TOPIC = "prices"
_PATIENCE_SECONDS = 30
# So that the high watermark's checkpoint, which readers go by, is soon that of the consumer.
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "200", "log.cleaner.backoff.ms": "200"}


def consumed(broker: Broker) -> Table:
    """Return what a consumer of committed records comes to."""
    table: Table = {}
    for each in broker.read([TOPIC], committed=True)[TOPIC]:
        assert each.key is not None
        table.pop(each.key, None)
        if each.value is not None:
            table[each.key] = Row(each.value, each.offset, each.timestamp, each.headers)
    return table


def exported(broker: Broker, target: Path, wanted: Table) -> Table:
    """Export until the broker has written its checkpoint."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        cleaner.export(broker.log_dir, TOPIC, target, changes=True)
        found = table_in(target)
        if found == wanted or time.monotonic() > until:
            return found
        time.sleep(0.3)


def test_exports_beside_a_broker(cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path: Path) -> None:
    """The broker's own cleaner has removed the tombstone when the second export is made."""
    target, steps = tmp_path / "out", tmp_path / "steps"
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), tmp_path / "broker", settings=SETTINGS)
    with broker:
        policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(1 << 20)}
        broker.create([TOPIC], {**policy, "delete.retention.ms": "0"})
        broker.write(TOPIC, [Outgoing(f"k{number}", f"v{number}") for number in range(50)])
        broker.write(
            TOPIC,
            [Outgoing("k1", "aborted", "abort"), Outgoing("k2", "committed", "commit")],
            {"transactional.id": "t"},
        )
        first = consumed(broker)
        assert exported(broker, target, first) == first
        cleaner.export(broker.log_dir, TOPIC, steps)
        broker.write(TOPIC, [Outgoing("k3", None), Outgoing("k4", "new"), Outgoing("k50", "new")])
        for _ in range(2):  # the second round removes the tombstone
            broker.write(TOPIC, [Outgoing(f"filler {number % 2}", "x" * 200_000) for number in range(12)])
            broker.wait_until_clean(TOPIC)
            time.sleep(1)
        second = consumed(broker)
        assert b"k3" not in second
        assert exported(broker, target, second) == second
        cleaner.export(broker.log_dir, TOPIC, steps, changes=True)
    upserts, deletes = changes_in(steps)
    assert (upserts, deletes) == changes(first, second)
    assert {b"k4", b"k50"} <= upserts.keys()
    assert deletes == {b"k3"}
