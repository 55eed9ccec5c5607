"""Whose bytes Kafka's own `__consumer_offsets` holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cleaner
from cleaner import WhoReport


def test_groups_of_kafkas_own_offsets(unpacked: Callable[[str], Path]) -> None:
    """Of a log that a broker wrote: groups, topics, and aborted commits by their producer."""
    (report,) = cleaner.who(unpacked("consumer-offsets") / "before")
    assert isinstance(report, WhoReport)
    groups = {row.name: row for row in report.by("group")}
    assert list(groups)[:3] == ["by-hand-1", "by-hand-0", "by-hand-2"]
    assert groups["by-hand-1"].dead_bytes > 40 * groups["by-hand-1"].live_bytes
    assert {row.name for row in report.by("consumed_topic")} > {"orders", "(groups and members)"}
    assert sum(row.aborted_bytes for row in report.by("producer") if row.name == "9") > 0
    assert report.by("prefix") == []
