"""One directory, and brokers of both releases on it in turn, with a round of ours by either's rules in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cleaner.base.model import TopicPartition
from tests.kafka.broker import Broker, Client, Consumed, repairs_at_start, started_without_recovery
from tests.kafka.rig import Rig
from tests.kafka.test_brokers_on_own_directory import NEVER, stock_levels, transactions
from tests.support.log_builder import LogBuilder, write_log_dir

pytestmark = pytest.mark.kafka

TOPIC = "levels"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)} | NEVER


def clean(log_dir: Path, *options: str) -> dict[str, Any]:
    """Run the command on the stopped directory; returns its report."""
    command = [sys.executable, "-m", "cleaner", "clean", str(log_dir), f"{TOPIC}-0", "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[0])
    assert isinstance(report, dict)
    return report


def newest(records: list[Consumed]) -> dict[bytes | None, Consumed]:
    """Return the last record of each key."""
    return {record.key: record for record in records}


@dataclass
class Stay:
    """What a broker served before it stopped, and how it had started."""

    began_with: dict[bool, list[Consumed]]
    served: dict[bool, list[Consumed]] = field(default_factory=dict)
    recovered: bool = False
    repairs: list[str] = field(default_factory=list)


def stay(broker: Broker, seed: int) -> Stay:
    """Start a broker, read everything in both isolation levels, write more, read again, and stop."""
    with broker:
        recovered, repairs = not started_without_recovery(broker), repairs_at_start(broker, TOPIC)
        if seed == 1:
            broker.create([TOPIC], SETTINGS)
        began = {committed: broker.read([TOPIC], committed=committed)[TOPIC] for committed in (True, False)}
        broker.write(TOPIC, stock_levels(seed, 1500), {"linger.ms": "20"})
        broker.write(TOPIC, transactions(300), {"transactional.id": "levels"})
        served = {committed: broker.read([TOPIC], committed=committed)[TOPIC] for committed in (True, False)}
    return Stay(began, served, recovered, repairs)


def test_brokers_of_both_releases_take_turns_with_ours_on_one_directory(
    kafkas: Mapping[str, Rig], clients: Callable[[Rig], Client], tmp_path: Path
) -> None:
    """4.3.1, ours, 4.4.0, ours, 4.3.1: each starts without recovery, and no key loses its newest record."""
    before: Stay | None = None
    for seed, version in enumerate(("4.3", "4.4", "4.3"), 1):
        rig = kafkas[version]
        now = stay(Broker(rig, clients(rig), tmp_path / "broker"), seed)
        if before is not None:
            assert not now.recovered
            assert now.repairs == []
            for committed in (True, False):
                left = now.began_with[committed]
                assert len(left) < len(before.served[committed])
                assert newest(left) == newest(before.served[committed]) or not committed
                assert set(left) <= set(before.served[committed])
        before = now
        report = clean(tmp_path / "broker" / "logs", "--as-kafka", version)
        assert report["kafka"] == version
        assert report["messages_written"] < report["messages_read"]


@pytest.mark.parametrize(
    ("by", "options", "expected"),
    [
        ("4.3", (), "4.3"),
        ("4.3", ("--release-version", "4.2"), "4.3"),
        ("4.4", (), "4.4"),
        ("4.4", ("--release-version", "4.3"), "4.3"),
    ],
)
def test_release_is_read_from_a_directory_that_was_only_formatted(
    kafkas: Mapping[str, Rig],
    clients: Callable[[Rig], Client],
    tmp_path: Path,
    by: str,
    options: tuple[str, ...],
    expected: str,
) -> None:
    """4.3 writes `bootstrap.checkpoint`, 4.4 a first snapshot of the metadata log; neither has a metadata log yet."""
    broker = Broker(kafkas[by], clients(kafkas["4.3"]), tmp_path / "broker")
    broker.format(*options)
    log = LogBuilder(TopicPartition(TOPIC, 0))
    log.append(("k", "v"))
    log.roll()
    log.append(("k", "w"))
    write_log_dir(broker.log_dir, log)
    assert clean(broker.log_dir, "--set", f"{TOPIC}:cleanup.policy=compact")["kafka"] == expected
