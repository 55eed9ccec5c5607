"""The benchmark of looks measures what it says, on a few partitions."""

from __future__ import annotations

from pathlib import Path

from benchmarks.look import BOUNDS, look_repeatedly, write_logs


def test_look_benchmark_finds_every_log_dirty(tmp_path: Path) -> None:
    """Every look of it sees all logs, and each figure has a bound."""
    assert look_repeatedly(write_logs(tmp_path, 12), 12).keys() == BOUNDS[5000].keys()
