"""The state of a real broker's `__consumer_offsets` is the same after Kafka's own cleaner."""

from __future__ import annotations

from pathlib import Path

import cleaner
from tests.golden.archive import DATA, unpack


def test_groups_of_a_broker_are_the_same_after_its_cleaner(tmp_path: Path) -> None:
    """Classic and consumer groups that come and go, a deleted group, commits in transactions: nothing fails."""
    place = unpack(DATA / "consumer-offsets.tar.xz", tmp_path)
    (report,) = cleaner.replay(place / "before", place / "after-1")
    assert (report.is_same, report.kind, report.failures_before, report.failures_after) == (True, "groups", (), ())
    assert (report.records_before, report.records_after) == (1067, 39)
    assert dict(report.things) == {"group": 2, "offset": 15}
    assert (report.passed_over_before, report.passed_over_after) == ({}, {})
