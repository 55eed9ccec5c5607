"""Durations, moments and names as people read them."""

from __future__ import annotations

import pytest

from cleaner.base.sizes import duration
from cleaner.present.formatting import ago, moment, printable


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_720_000, "1 h 2 min"),
        (86_400_000 * 3 + 3_600_000 * 4 + 5, "3 d 4 h"),
        (2**63, "forever"),
        (float("inf"), "forever"),
        (float("nan"), "forever"),
    ],
)
def test_duration_has_its_two_largest_units(ms: float, words: str) -> None:
    """No more than a person takes in."""
    assert duration(ms) == words


@pytest.mark.parametrize(
    ("then_ms", "words"), [(None, "never"), (5_000, "5 s ago"), (9_500, "just now"), (99_000, "just now")]
)
def test_ago_knows_clocks_that_disagree(then_ms: int | None, words: str) -> None:
    """A moment to come is now."""
    assert ago(then_ms, 10_000) == words


def test_moment_has_its_offset_from_utc() -> None:
    """Two machines' logs can be put side by side."""
    assert moment(0).endswith(("+00:00", "-00:00")) or moment(0)[-6] in "+-"
    assert moment(2**62) == f"{2**62} ms"


def test_name_with_terminal_codes_is_made_visible() -> None:
    """Nothing acts on the terminal."""
    assert printable("a\x1b[2J\n\u202e\udcff é") == "a\\x1b[2J\\n\\u202e\\udcff é"
