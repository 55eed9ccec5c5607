"""A log to scale: every byte in one part, and the delete retention point of R-502."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cleaner.config.values import TopicConfig
from cleaner.policy.cleanable import cleanable
from cleaner.policy.sections import Sections, legacy_delete_horizon_ms, sections_of
from cleaner.read.summary import ListedSegment, LogSummary, summarize
from cleaner.storage.fs.file_system import DirectoryEntry, FileState, FileSystem

SIZES = (100, 200, 300, 400, 50)
MTIMES_MS = (1_000, 2_000, 3_000, 9_000, 10_000)


def seen(high_watermark: int = 99, log_start: int = 0) -> LogSummary:
    """Segments at 0, 10, 20, 30, 40 (active)."""
    segments = [
        ListedSegment(
            FileSystem(),
            Path("nowhere"),
            DirectoryEntry(f"{10 * row:020d}.log", FileState(row, size, mtime * 1_000_000)),
        )
        for row, (size, mtime) in enumerate(zip(SIZES, MTIMES_MS, strict=True))
    ]
    return summarize(Path("nowhere"), segments, log_start_offset=log_start, high_watermark=high_watermark)


def parts(checkpoint: int | None, high_watermark: int = 99, delete_retention_ms: int = 10**9) -> Sections:
    """Part the log with this first dirty offset."""
    log = seen(high_watermark)
    topic = cast(TopicConfig, SimpleNamespace(min_compaction_lag_ms=0))
    return sections_of(log, cleanable(log, checkpoint, topic, 0), delete_retention_ms)


@pytest.mark.parametrize(
    ("checkpoint", "high_watermark", "expected"),
    [
        pytest.param(None, 99, (0, 1000, 0, 50), id="never-cleaned"),
        pytest.param(20, 99, (300, 700, 0, 50), id="half-clean"),
        pytest.param(25, 99, (300, 700, 0, 50), id="inside-a-segment-which-is-dirty"),
        pytest.param(40, 99, (1000, 0, 0, 50), id="all-clean"),
        pytest.param(10, 33, (100, 500, 400, 50), id="above-the-high-watermark"),
        pytest.param(25, 27, (300, 0, 700, 50), id="bound-inside-the-first-dirty-segment"),
        pytest.param(30, 12, (600, 0, 400, 50), id="high-watermark-below-the-clean-end"),
    ],
)
def test_sections_hold_every_byte_once(
    checkpoint: int | None, high_watermark: int, expected: tuple[int, int, int, int]
) -> None:
    """Clean, dirty, uncleanable, active: in order, and together all of the log."""
    found = parts(checkpoint, high_watermark)
    assert (found.clean_bytes, found.dirty_bytes, found.uncleanable_bytes, found.active_bytes) == expected
    assert found.total_bytes == sum(SIZES)
    assert found.log_start_offset <= found.first_dirty_offset <= found.first_uncleanable_offset


@pytest.mark.parametrize(
    ("checkpoint", "delete_retention_ms", "expected"),
    [
        pytest.param(None, 0, (None, 0), id="nothing-clean"),
        pytest.param(30, 0, (30, 600), id="no-retention-all-clean-segments"),
        pytest.param(30, 1_000, (20, 300), id="the-boundary-has-had-its-time"),
        pytest.param(30, 1_001, (10, 100), id="a-millisecond-younger-has-not"),
        pytest.param(30, 2_001, (0, 0), id="none-old-enough"),
        pytest.param(35, 2_000, (10, 100), id="first-dirty-inside-a-segment"),
    ],
)
def test_delete_retention_point_is_where_old_tombstones_end(
    checkpoint: int | None, delete_retention_ms: int, expected: tuple[int | None, int]
) -> None:
    """R-502: by the modification times, counted from that of the last clean segment."""
    found = parts(checkpoint, delete_retention_ms=delete_retention_ms)
    assert (found.delete_retention_offset, found.delete_retention_bytes) == expected


def test_sections_of_a_log_that_is_not_compacted_are_uncleanable() -> None:
    """Everything except the active segment."""
    found = sections_of(seen(log_start=13), None, 0)
    assert (found.clean_bytes, found.dirty_bytes, found.uncleanable_bytes, found.active_bytes) == (0, 0, 1000, 50)
    assert (found.log_start_offset, found.delete_retention_offset) == (13, None)


def test_legacy_horizon_counts_back_from_the_last_clean_segment() -> None:
    """R-502: zero without a clean section, so that no file is that old."""
    assert (legacy_delete_horizon_ms(None, 300), legacy_delete_horizon_ms(1000, 300)) == (0, 700)
