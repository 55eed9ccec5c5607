"""What may be cleaned of a log that was closed: Kafka's loader and cleaner manager say what `plan` says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from tests.integration.log_dirs import offsets
from tests.kafka.rig import CLEANING_ROUND, Rig
from tests.kafka.test_random_logs import fresh_seed
from tests.property.closed_logs import write
from tests.scratch import scratch_directory
from tests.support.log_builder import START_MS

pytestmark = pytest.mark.kafka

SETTINGS = {"cleanup.policy": "compact"}
NOW_MS = START_MS + 10_000
COUNT = 150


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the logs are."""
    with scratch_directory() as directory:
        yield directory


def test_range_and_checkpoint_are_kafkas(kafka: Rig, scratch: Path) -> None:
    """R-405 to R-409, R-420: whatever checkpoints, snapshots and indexes there are; the line left behind is Kafka's."""
    seed = fresh_seed()
    print(f"RANDOM_LOGS_SEED={seed}")
    ours, theirs, settings = scratch / "ours", scratch / "kafka", scratch / "settings"
    _, lines = write(ours, seed, COUNT, lost_indexes=0.15)
    shutil.copytree(ours, theirs, copy_function=shutil.copy2)
    settings.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    # The program takes the log end for a missing high watermark, and Kafka empties a log that ends below its start.
    entries = {entry.partition: entry for entry in cleaner.plan(ours, SETTINGS, now_ms=NOW_MS) if not entry.error}
    names = [str(tp) for tp, line in lines.items() if line.high_watermark is not None and str(tp) in entries]
    asked = "".join(f"{theirs} {name} {NOW_MS} {settings}\n" for name in names)
    unlike = []
    for name, answer in zip(names, kafka.java(CLEANING_ROUND, "-", stdin=asked).splitlines(), strict=True):
        got, entry = json.loads(answer), entries[name]
        found = (entry.first_dirty_offset, entry.first_uncleanable_offset, entry.last_stable_offset)
        if found != (got["first_dirty"], got["upper"], got["last_stable"]):
            unlike.append(f"{name}: {found}, Kafka {got}")
        cleaner.clean(ours, name, SETTINGS, now_ms=NOW_MS)
    assert unlike == []
    left, kafkas = offsets(ours, "cleaner"), offsets(theirs, "cleaner")
    assert {name: left.get(name) for name in names} == {name: kafkas.get(name) for name in names}
    assert len(names) > COUNT // 2
