"""Words and numbers for people."""

from __future__ import annotations

import pytest

from cleaner.present.text import ago, counted, duration, moment, percent, plain


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.04, "<0.1 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min"), (250, "4 min 10 s"),
        (3_600, "1 h"), (7_384, "2 h 3 min"), (86_400, "1 d"), (86_460, "1 d"), (266_400, "3 d 2 h"),
    ],
)  # fmt: skip
def test_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    """What is small beside the rest is left out."""
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [(0, "0 %"), (0.001, "<1 %"), (0.01, "1 %"), (0.5, "50 %"), (0.999, "99 %"), (1, "100 %"), (1.2, "120 %")],
)
def test_percent_is_0_for_nothing_and_100_for_all_only(part: float, words: str) -> None:
    """Almost done is not done."""
    assert percent(part) == words


def test_moments_are_told_by_their_distance() -> None:
    """Past, to come, now, never; a moment no calendar has is a number."""
    assert [ago(then, 100_000) for then in (97_000, 100_500, 160_000, None)] == ["3 s ago", "now", "in 1 min", "never"]
    assert (moment(0), moment(10**20)) == ("1970-01-01T00:00:00Z", f"{10**20} ms")


def test_counted_things_have_their_plural() -> None:
    """One log, two logs."""
    assert [counted(1, "log"), counted(2_000, "log")] == ["1 log", "2,000 logs"]


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\u202egnp", "\ud800", "\x00", "\u2028", "\x7f"])
def test_plain_text_shows_what_would_act(text: str) -> None:
    """Whatever comes in, what goes out is printable and can be encoded."""
    assert plain(text).isprintable() and plain(text).encode()
