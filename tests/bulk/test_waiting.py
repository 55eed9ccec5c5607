"""Waiting for tasks that end at any moment of the wait, with progress reports during it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.spark.clean import round as bulk_round
from tests.bulk.local_jobs import LocalJobs, bulk_clean
from tests.golden.scenario import steps

STEP = next(step for step in steps() if str(step) == "k1-k4-1")


def test_task_that_ends_as_the_wait_does_is_no_failure(
    unpacked: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is so short that it always ends first, many times."""
    monkeypatch.setattr(bulk_round, "_LOOK_UP_SECONDS", 1e-6)
    log_dir = STEP.prepare(unpacked(STEP.scenario), tmp_path / "logs")
    jobs = LocalJobs(on_job=lambda _: time.sleep(0.005))
    report = bulk_clean(
        log_dir, STEP.partition, dict(STEP.settings), work_dir=tmp_path / "work", now_ms=STEP.now_ms, jobs=jobs
    )
    assert report.end_offset == STEP.expected["end_offset"]
