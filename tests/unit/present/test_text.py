"""Words and numbers for people."""

from __future__ import annotations

import pytest

from cleaner.base.sizes import duration
from cleaner.present.text import ago, counted, moment, percent, printable, until, utc_moment


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


@pytest.mark.parametrize(
    ("part", "words"),
    [(0, "0 %"), (0.001, "<1 %"), (0.01, "1 %"), (0.5, "50 %"), (0.999, "99 %"), (1, "100 %"), (1.2, "120 %")],
)
def test_percent_is_0_for_nothing_and_100_for_all_only(part: float, words: str) -> None:
    """Almost done is not done."""
    assert percent(part) == words


def test_future_time_is_shown_by_its_distance() -> None:
    """Now, or so far ahead."""
    assert [until(then, 100_000) for then in (99_000, 100_500, 160_000)] == ["now", "now", "in 1 min"]


def test_moment_is_local_with_its_offset_from_utc_or_in_utc() -> None:
    """Two machines' logs can be put side by side; a moment no calendar has is a number."""
    assert moment(0).endswith(("+00:00", "-00:00")) or moment(0)[-6] in "+-"
    assert (utc_moment(0), utc_moment(10**20), moment(2**62)) == (
        "1970-01-01T00:00:00Z",
        f"{10**20} ms",
        f"{2**62} ms",
    )


def test_counted_things_have_their_plural() -> None:
    """One log, two logs."""
    assert [counted(1, "log"), counted(2_000, "log")] == ["1 log", "2,000 logs"]


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\u202egnp", "\ud800", "\x00", "\u2028", "\x7f"])
def test_plain_text_shows_what_would_act(text: str) -> None:
    """Whatever comes in, what goes out is printable and can be encoded."""
    assert printable(text).isprintable() and printable(text).encode()


def test_name_with_terminal_codes_is_made_visible() -> None:
    """Nothing acts on the terminal."""
    assert printable("a\x1b[2J\n\u202e\udcff é") == "a\\x1b[2J\\n\\u202e\\udcff é"
