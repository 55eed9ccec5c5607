"""A broker on a topic that was cleaned with `cleaner.key.view`: consumers see what docs/key-views.md says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from tests.kafka.broker import Broker, Client, Outgoing, last_values, repairs_at_start, started_without_recovery
from tests.kafka.rig import Rig

pytestmark = [pytest.mark.kafka, pytest.mark.slow]  # what a view leaves are batches like all others

TOPIC = "_schemas"
DELETED = '{"keytype":"SCHEMA","subject":"orders","version":1,"magic":1}'
DELETED_AGAIN = '{"subject":"orders","keytype":"SCHEMA","magic":1,"version":1}'
KEPT = '{"keytype":"SCHEMA","subject":"users","version":1,"magic":1}'
KEPT_AGAIN = '{ "magic":1, "version":1, "subject":"users", "keytype":"SCHEMA" }'
ABORTED = '{"version":2,"keytype":"SCHEMA","subject":"users","magic":1}'
OTHER = '{"keytype":"SCHEMA","subject":"users","version":2,"magic":1}'
NO_JSON = "not json"
SETTINGS = {"cleanup.policy": "compact", "cleaner.key.view": "schema-registry"}
DAYS_MS = 3 * 86_400_000


def test_broker_starts_on_what_a_view_leaves(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path: Path
) -> None:
    """The deletion holds, the newest writing of each key stays, and what is not JSON is as Kafka leaves it."""
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), tmp_path / "broker")
    partition = f"{TOPIC}-0"
    with broker:
        broker.create(
            [TOPIC], {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "segment.bytes": str(1 << 20)}
        )
        broker.write(TOPIC, [Outgoing(DELETED, "schema 1"), Outgoing(KEPT, "schema 2"), Outgoing(OTHER, "schema 3")])
        broker.write(TOPIC, [Outgoing(NO_JSON, "1"), Outgoing(NO_JSON + " ", "2"), Outgoing(DELETED_AGAIN, None)])
        broker.write(
            TOPIC,
            [Outgoing(KEPT_AGAIN, "schema 4", "commit"), Outgoing(ABORTED, "schema 5", "abort")],
            {"transactional.id": "registry"},
        )
        broker.write(TOPIC, [Outgoing(f"filler {number % 2}", "x" * 200_000) for number in range(12)])
    now_ms = max(path.stat().st_mtime_ns for path in (broker.log_dir / partition).glob("*.log")) // 1_000_000
    before, kept = tmp_path / "before", tmp_path / "kept"
    shutil.copytree(broker.log_dir, before)

    (entry,) = [each for each in cleaner.plan(before, settings=SETTINGS) if each.partition == partition]
    assert (entry.key_view, entry.merged_keys) == ("schema-registry", 2)
    report = cleaner.clean(broker.log_dir, partition, SETTINGS, now_ms=now_ms, keep_old=kept)
    assert (report.key_view, report.merged_keys) == ("schema-registry", 2)
    assert cleaner.verify(before, broker.log_dir, partition, settings=SETTINGS, now_ms=now_ms).is_proven

    expected = {NO_JSON: "1", NO_JSON + " ": "2", DELETED_AGAIN: None, OTHER: "schema 3", KEPT_AGAIN: "schema 4"}
    for late_ms in (0, DAYS_MS):
        if late_ms:  # the tombstone's time has come, and what it deleted does not come back
            cleaner.clean(broker.log_dir, partition, SETTINGS, now_ms=now_ms + late_ms)
            del expected[DELETED_AGAIN]
        with broker:
            assert repairs_at_start(broker, TOPIC) == []
            assert started_without_recovery(broker)
            for committed in (True, False):
                assert last_values(broker, TOPIC, committed=committed) == expected, (late_ms, committed)
            broker.write(TOPIC, [Outgoing(DELETED, None), Outgoing(f"filler {late_ms}", "y")])
        expected[DELETED] = None
