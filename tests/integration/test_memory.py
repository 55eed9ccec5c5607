"""The memory of `cleaner clean` is bounded by the dedupe buffer and a constant, whatever the size of the log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.generate import Shape, generate
from cleaner.base.model import TopicPartition
from tests.peak_memory import run_measured

PARTITION = TopicPartition("measurements", 0)
DEDUPE_BUFFER_BYTES = 128 << 20
BESIDE_THE_BUFFER_BYTES = 240_000_000


@pytest.mark.parametrize(
    ("gigabytes", "keys"),
    [
        pytest.param(0.5, 400_000, id="half-a-gigabyte"),
        pytest.param(10, 5_000_000, id="ten-gigabytes", marks=pytest.mark.slow),
    ],
)
def test_clean_on_large_log_stays_within_its_memory(tmp_path: Path, gigabytes: float, keys: int) -> None:
    """At most 240 MB besides the dedupe buffer are resident at any time of the command."""
    value_bytes = 128 if gigabytes < 1 else 1024
    generate(tmp_path / "logs", PARTITION, Shape(int(gigabytes * 1e9), keys, value_bytes))
    command = [sys.executable, "-m", "cleaner", "clean", str(tmp_path / "logs"), str(PARTITION), "--rounds", "all"]
    command += ["--set", "cleanup.policy=compact", "--set", f"log.cleaner.dedupe.buffer.size={DEDUPE_BUFFER_BYTES}"]
    finished = run_measured(command)
    print(f"{finished.peak_bytes / 1e6:.0f} MB resident for {gigabytes} GB")
    assert finished.status == 0, finished.errors
    assert finished.peak_bytes <= BESIDE_THE_BUFFER_BYTES + DEDUPE_BUFFER_BYTES
