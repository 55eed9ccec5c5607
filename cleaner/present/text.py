"""Words and numbers for people: durations, moments, and text that can do no harm."""

from __future__ import annotations

from datetime import UTC, datetime

_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def plain(text: str) -> str:
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


def duration(seconds: float) -> str:
    """Say how long: `0.4 s`, `58 s`, `4 min 10 s`, `3 d 2 h`; two units at most."""
    if 0 < seconds < 0.05:
        return "<0.1 s"
    if abs(seconds) < 9.95:
        return f"{seconds:.1f} s" if seconds else "0 s"
    left = round(abs(seconds))
    parts: list[str] = []
    for span, unit in _SPANS:
        whole, left = divmod(left, span)
        if whole or parts:
            parts.append(f"{whole} {unit}" if whole else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def ago(then_ms: int | None, now_ms: int) -> str:
    """Say how long ago a moment was, or how far ahead it is."""
    if then_ms is None:
        return "never"
    seconds = (now_ms - then_ms) / 1000
    if abs(seconds) < 1:
        return "now"
    whole = duration(float(round(abs(seconds))) if abs(seconds) < 10 else abs(seconds)).replace(".0 s", " s")
    return f"{whole} ago" if seconds > 0 else f"in {whole}"


def moment(ms: int) -> str:
    """Say a moment in UTC, as ISO 8601 has it; the page's script shows the reader's own time."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
