"""A broker on a topic cleaned with its own survivor rule and age: consumers see what docs/survivors.md says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from tests.kafka.broker import Broker, Client, Outgoing, last_values, repairs_at_start, started_without_recovery
from tests.kafka.rig import Rig

pytestmark = [pytest.mark.kafka, pytest.mark.slow]  # what these rules leave are batches like all others

TOPIC = "prices"
HOUR_MS = 3_600_000
SETTINGS = {"cleanup.policy": "compact", "cleaner.survivor": "timestamp", "cleaner.record.ttl.ms": str(10 * HOUR_MS)}
DAYS_MS = 3 * 86_400_000


def test_broker_starts_on_what_the_rules_leave(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path: Path
) -> None:
    """The record with the latest time stays, an old one is a tombstone for a day, and then it is gone."""
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), tmp_path / "broker")
    partition = f"{TOPIC}-0"
    with broker:
        broker.create(
            [TOPIC], {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.bytes": str(1 << 20)}
        )
        broker.write(TOPIC, [Outgoing("late", "new"), Outgoing("once", "only")])
        broker.write(
            TOPIC,
            [Outgoing("late", "committed", "commit"), Outgoing("once", "aborted", "abort")],
            {"transactional.id": "t"},
        )
        broker.write(TOPIC, [Outgoing(f"filler {number % 2}", "x" * 200_000) for number in range(12)])
    written_ms = max(path.stat().st_mtime_ns for path in (broker.log_dir / partition).glob("*.log")) // 1_000_000
    before = tmp_path / "before"
    shutil.copytree(broker.log_dir, before)

    report = cleaner.clean(broker.log_dir, partition, SETTINGS, now_ms=written_ms)
    assert (report.survivor, report.expired_records) == ("timestamp", 0)
    assert cleaner.verify(before, broker.log_dir, partition, settings=SETTINGS, now_ms=written_ms).is_proven

    for late_ms, expected in (
        (0, {"late": "committed", "once": "only"}),
        (11 * HOUR_MS, {"late": None, "once": None}),
        (DAYS_MS, {}),
    ):
        if late_ms:
            cleaner.clean(broker.log_dir, partition, SETTINGS, now_ms=written_ms + late_ms)
        with broker:
            assert repairs_at_start(broker, TOPIC) == []
            assert started_without_recovery(broker)
            for committed in (True, False):
                assert last_values(broker, TOPIC, committed=committed) == expected, (late_ms, committed)
