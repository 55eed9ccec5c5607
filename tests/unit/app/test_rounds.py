"""What the rounds of one call have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.settings.sources import Sources
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir
from tests.support.manual_clock import ManualClock

RATE = 1000


def test_rate_is_that_of_all_partitions_of_a_call(tmp_path: Path) -> None:
    """Reads of both passes and writes take their time; no partition begins with bytes to spare (R-715)."""
    names = [f"topic-{number}" for number in range(5)]
    write_log_dir(tmp_path, *(keyed_log(name) for name in names))
    config = {
        "cleanup.policy": "compact",
        "log.cleaner.io.max.bytes.per.second": str(RATE),
        "cleaner.pipeline.threads": "1",
    }
    clock = ManualClock()
    outcomes = list(clean_log_dir(tmp_path, names, Sources(config), CleanOptions(), CallContext(clock=clock)))
    reports = [outcome for outcome in outcomes if isinstance(outcome, CleanReport)]
    assert len(reports) == len(names)
    passed = sum(2 * report.bytes_read + report.bytes_written for report in reports)
    assert passed > 10 * RATE
    assert clock.monotonic_ns() / 1e9 == pytest.approx(passed / RATE, rel=0.01)
