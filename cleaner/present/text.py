"""Numbers, moments, durations and names as people read them; sizes and durations are written by `base/sizes.py`."""

from __future__ import annotations

from datetime import UTC, datetime

from cleaner.base.sizes import duration


def printable(text: str) -> str:
    """
    Make visible what must not act: line ends, terminal codes, writing turned round, half characters.

    A topic's name is safe already; the text of an error may quote anything.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def count(number: int) -> str:
    """Say a number: `1,234,567`."""
    return f"{number:,}"


def counted(number: int, word: str, words: str | None = None) -> str:
    """Say so many of something: `1 log`, `2 logs`."""
    return f"{count(number)} {word if number == 1 else words or word + 's'}"


def percent(part: float) -> str:
    """Say a part of 1 in percent; nothing but all is 100 %, nothing but nothing is 0 %."""
    value = part * 100
    if 0 < value < 1:
        return "<1 %"
    return f"{min(99, round(value)) if value < 100 else round(value)} %"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Say how long ago a moment was; `never` without one, `just now` also where clocks disagree."""
    if then_ms is None:
        return "never"
    return f"{duration(now_ms - then_ms)} ago" if now_ms - then_ms >= 1000 else "just now"


def until(then_ms: int, now_ms: int) -> str:
    """Say how far ahead a moment is."""
    return f"in {duration(then_ms - now_ms)}" if then_ms - now_ms >= 1000 else "now"


def moment(ms: int) -> str:
    """Write a moment in the local time zone, with its offset from UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def utc_moment(ms: int) -> str:
    """Write a moment in UTC, as ISO 8601 has it: for programs, which may show a reader's own time."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
