"""Markers of transactions that no index names: to rounds they have no data (R-533, R-535)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.verification_proof.passed_over import NAME, prove
from tests.unit.verification_proof.test_passed_over import clean

NOW = START_MS + 1000
RETENTION = {"delete.retention.ms": "0"}


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A log whose aborted transaction is in no index, as a round over a damaged offset index can leave it."""
    log = LogBuilder(index_interval_bytes=0)
    log.append(("a", "aborted"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=False)
    log.append(("a", "later"))
    for key in ("x", "y", "z"):
        log.roll()
        log.append((key, key))
    before = tmp_path / "before"
    before.mkdir()
    write_log_dir(before, log)
    for path in (before / NAME).glob("*.txnindex"):
        path.unlink()
    return before


def test_marker_without_an_entry_gets_a_horizon_and_goes_at_once_beside_its_data(before: Path, tmp_path: Path) -> None:
    """Its batch stays, empty, for the producer's sequence; the marker gets a horizon, and goes when that passes."""
    first = clean(before, tmp_path / "first", 2, **RETENTION)
    second = clean(first.after, tmp_path / "second", 9, **RETENTION)
    for done in (first, second):
        report = prove(done.before, done.after, done.settings, now_ms=NOW)
        assert (report.findings, report.is_proven) == ((), True)
    log = f"{NAME}/00000000000000000000.log"
    assert (first.after / log).stat().st_size > (second.after / log).stat().st_size
