"""
Brokers on a directory whose batches `cleaner clean --recompress` has packed in another way.

A producer without an id, an idempotent one and a transactional one have written; consumers must be given what they are
given of a copy that was cleaned as Kafka does, before and after the broker's own cleaner has gone on.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import cleaner
from cleaner.app.reports import CleanReport
from tests.kafka.broker import Broker, Client, Consumed, Outgoing, repairs_at_start, started_without_recovery
from tests.kafka.rig import Rig
from tests.reference.batches import read_batches

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "stock-levels"
NEVER = {"min.cleanable.dirty.ratio": "1.0"}
AT_ONCE = {"min.cleanable.dirty.ratio": "0.0"}
PLAIN = {"enable.idempotence": "false", "linger.ms": "0", "batch.size": "400"}


def records(seed: int, count: int) -> list[Outgoing]:
    """Return records of 300 keys, some tombstones among them."""
    rng = Random(seed)
    return [
        Outgoing(f"item-{rng.randrange(300)}", None if rng.random() < 0.05 else f'{{"item": {i}, "level": {seed}}}' * 3)
        for i in range(count)
    ]


def transactions(count: int) -> list[Outgoing]:
    """Return transactions of five records each, every third aborted."""
    ends = ("abort", "commit", "commit")
    return [Outgoing(f"item-{i % 70}", f"t{i}" * 20, ends[i // 5 % 3] if i % 5 == 4 else None) for i in range(count)]


def everything(broker: Broker) -> tuple[list[Consumed], list[Consumed]]:
    """Return what consumers of both isolation levels are given."""
    return broker.read([TOPIC])[TOPIC], broker.read([TOPIC], committed=True)[TOPIC]


def codecs_of(log_dir: Path) -> Counter[tuple[str, bool]]:
    """Count batches with records by codec, and by whether they have a producer id."""
    return Counter(
        (batch.codec, batch.producer_id >= 0)
        for path in (log_dir / f"{TOPIC}-0").glob("*.log")
        for batch in read_batches(path.read_bytes())
        if batch.count and not batch.control
    )


def clean(log_dir: Path, *options: str) -> CleanReport:
    """Clean the topic by the command; returns its report as JSON values."""
    command = [sys.executable, "-m", "cleaner", "clean", str(log_dir), f"{TOPIC}-0", "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report: CleanReport = json.loads(done.stdout.splitlines()[0])
    return report


@pytest.mark.parametrize("target", ["zstd:9", "lz4", "none"])
def test_consumers_are_given_the_same_records(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path: Path, target: str
) -> None:
    """In both isolation levels; producers go on, and the broker's own cleaner does."""
    rig, client = cleaning_broker_rig, clients(cleaning_broker_rig)
    usual = Broker(rig, client, tmp_path / "usual")
    with usual:
        usual.create([TOPIC], {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)} | NEVER)
        for seed, settings in enumerate((PLAIN, {"compression.type": "lz4"}, PLAIN | {"compression.type": "gzip"})):
            usual.write(TOPIC, records(seed, 1500), settings)
        usual.write(TOPIC, transactions(600), {"transactional.id": "levels"})
        usual.write(TOPIC, records(5, 12000), PLAIN)
    before = tmp_path / "before"
    shutil.copytree(usual.log_dir, before, copy_function=shutil.copy2)
    packed = Broker(rig, client, tmp_path / "packed")
    shutil.copytree(usual.log_dir, packed.log_dir, copy_function=shutil.copy2)
    clean(usual.log_dir)
    kept = tmp_path / "kept"
    clean(packed.log_dir, "--recompress", target, "--keep-old", str(kept))
    codec = target.partition(":")[0]
    assert {name for name, _ in codecs_of(packed.log_dir)} <= {codec, "none"}
    plain = (codecs_of(usual.log_dir), codecs_of(packed.log_dir))
    assert sum(count for (_, is_known), count in plain[1].items() if not is_known) < sum(
        count for (_, is_known), count in plain[0].items() if not is_known
    )
    settings = {"cleanup.policy": "compact"}
    assert cleaner.verify(before, packed.log_dir, f"{TOPIC}-0", settings, recompressed=True).is_proven
    assert not cleaner.verify(before, packed.log_dir, f"{TOPIC}-0", settings).is_proven
    with usual:
        expected = everything(usual)
        usual.write(TOPIC, records(7, 3000), PLAIN)
        usual.alter([TOPIC], AT_ONCE)
        usual.wait_until_clean(TOPIC)
        cleaned_on = everything(usual)
    with packed:
        assert started_without_recovery(packed)
        assert repairs_at_start(packed, TOPIC) == []
        found = everything(packed)
        packed.write(TOPIC, records(7, 3000), PLAIN)
        packed.alter([TOPIC], AT_ONCE)
        packed.wait_until_clean(TOPIC)
        went_on = everything(packed)
    assert found == expected
    # Both were written to, but not at the same moment, nor in the same batches.
    last = {record.key: record.value for record in went_on[1]}
    assert last == {record.key: record.value for record in cleaned_on[1]}
