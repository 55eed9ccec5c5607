"""Formats numbers, moments and names for people; `base/sizes.py` formats sizes and durations."""

from __future__ import annotations

from datetime import UTC, datetime

from cleaner.base import sizes
from cleaner.base.sizes import duration


def printable(text: str) -> str:
    """
    Escape characters that must not take effect: line ends, terminal codes, changes of writing direction, lone
    surrogates.

    A topic's name is safe; the text of an error may quote anything.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def count(number: int) -> str:
    """Format a number: `1,234,567`."""
    return f"{number:,}"


def counted(number: int, word: str) -> str:
    """Format a count of something: `1 log`, `1,234 logs`."""
    return sizes.counted(number, word, ",")


def percent(part: float) -> str:
    """Format a part of 1 in percent; only all is 100 %, and only nothing is 0 %."""
    value = part * 100
    if 0 < value < 1:
        return "<1 %"
    return f"{min(99, round(value)) if value < 100 else round(value)} %"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Say how long ago a moment was; `never` for None, `just now` also if clocks disagree."""
    if then_ms is None:
        return "never"
    return f"{duration(now_ms - then_ms)} ago" if now_ms - then_ms >= 1000 else "just now"


def until(then_ms: int, now_ms: int) -> str:
    """Say how far ahead a moment is."""
    return f"in {duration(then_ms - now_ms)}" if then_ms - now_ms >= 1000 else "now"


def moment(ms: int) -> str:
    """Format a moment in the local time zone, with its offset from UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def utc_moment(ms: int) -> str:
    """Format a moment in UTC, as in ISO 8601: for programs, which may show a reader's own time."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
