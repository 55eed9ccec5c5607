"""The memory budget is true: a command never has more resident than computed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cleaning.round.memory_budget import BASE_BYTES, MemoryBudget
from cleaner.config.values import CleanerConfig
from tests.peak_memory import run_measured
from tests.support.batch_builder import Record, data_batch
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

PARTITION = TopicPartition("small", 0)
BATCHES = 250_000


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of batches of one record each, which needs the largest tables for a window."""
    log = LogBuilder(PARTITION)
    batches = [data_batch([Record(b"key-%05d" % n, b"value")], 0, timestamp_ms=START_MS) for n in range(50_000)]
    for offset in range(BATCHES):
        # A batch's checksum does not cover its base offset.
        log.append_raw(offset.to_bytes(8, "big") + batches[offset % len(batches)][8:])
    log.roll()
    log.append(("key", "value"))
    path = tmp_path_factory.mktemp("logs")
    write_log_dir(path, log)
    return path


@pytest.mark.parametrize("pipeline_threads", [1, 4])
def test_peak_memory_is_within_the_budget(log_dir: Path, tmp_path: Path, pipeline_threads: int) -> None:
    """With one lane and with eight, and a small map so that lanes are what counts."""
    shutil.copytree(log_dir, tmp_path / "logs")
    settings = {"log.cleaner.dedupe.buffer.size": "4000000", "cleaner.pipeline.threads": str(pipeline_threads)}
    command = [sys.executable, "-m", "cleaner", "clean", str(tmp_path / "logs"), str(PARTITION)]
    command += ["--set=cleanup.policy=compact", *(f"--set={key}={value}" for key, value in settings.items())]
    finished = run_measured(command)
    budget = MemoryBudget.of(CleanerConfig.from_mapping(settings))
    print(f"{finished.peak_bytes / 1e6:.0f} MB resident of {budget.total / 1e6:.0f} MB")
    assert finished.status == 0, finished.errors
    assert 0.5 * BASE_BYTES < finished.peak_bytes <= budget.total
