"""A broker moves segments away and removes its own; the topic joined again is what its producer wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import cleaner
from cleaner.log.reader import open_reader
from tests.kafka.broker import Broker, Client, Outgoing, wait_until
from tests.kafka.rig import Rig

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "moved"
Isolation = Literal["read_committed", "read_uncommitted"]
Pair = tuple[str, str]


def _settings(bucket: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "TieredLayout",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(bucket),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }


def _records(part: int) -> tuple[list[Outgoing], list[Pair]]:
    """Return records to write in transactions, and those that are committed."""
    written: list[Outgoing] = []
    committed: list[Pair] = []
    for transaction in range(30):
        ends = "abort" if transaction % 4 == 1 else "commit"
        rows = [(f"k{row % 7}", f"{part}.{transaction}.{row}." + "v" * 2000) for row in range(50)]
        written += [Outgoing(key, value, ends if row == 49 else None) for row, (key, value) in enumerate(rows)]
        committed += rows if ends == "commit" else []
    return written, committed


def _read(place: str, isolation: Isolation) -> list[Pair]:
    with open_reader(place, TOPIC, 0) as reader:
        found = reader.read(reader.log_start_offset, isolation=isolation)
        return [((each.key or b"").decode(), (each.value or b"").decode()) for each in found]


def test_topic_of_a_broker_is_whole(kafka: Rig, clients: Callable[[Rig], Client], tmp_path: Path) -> None:
    """Twice, the second time by another leader epoch; while the broker runs and when it has stopped."""
    bucket = tmp_path / "bucket"
    broker = Broker(kafka, clients(kafka), tmp_path / "broker", settings=_settings(bucket))
    place = f"tiered+file://{bucket}::{broker.log_dir}"
    directory = broker.log_dir / f"{TOPIC}-0"
    written: list[Pair] = []
    committed: list[Pair] = []
    for part in range(2):
        with broker:
            if not part:
                topic = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
                broker.create([TOPIC], topic | {"retention.ms": "-1"})
            rows, kept = _records(part)
            broker.write(TOPIC, rows, {"transactional.id": "mover"})
            written += [(each.key, each.value or "") for each in rows]
            committed += kept
            wait_until(lambda: len(list(directory.glob("*.log"))) == 1, "segments were not moved and removed")
            # Beside a broker readers end at the high watermark, which it notes every five seconds.
            expected = list(committed)
            wait_until(lambda: _read(place, "read_committed") == expected, "the topic is not what was written")  # noqa: B023
        assert _read(place, "read_committed") == committed
        assert _read(place, "read_uncommitted") == written
        assert cleaner.check(place).is_sound
    assert len(list(bucket.rglob("*.rsm-manifest"))) > 4
    assert len(_read(str(broker.log_dir), "read_uncommitted")) < len(written) / 2
