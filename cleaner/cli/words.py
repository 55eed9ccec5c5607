"""How moments, durations and names are written for people, and colours where a terminal shows them."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TextIO

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90", "bold": "1"}
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def printable(text: str) -> str:
    """Return a text in one line, with line ends, control characters and terminal codes made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(ms: float) -> str:
    """Write a duration in its two largest units: `3 d 4 h`, `12 s`, `85 ms`; `for ever` beyond all calendars."""
    if not abs(ms) < 1e15:
        return "for ever"
    rest = round(ms)
    if rest < 1000:
        return f"{rest} ms"
    for place, (unit, size) in enumerate(_UNITS):
        if rest >= size:
            count, below = divmod(rest, size)
            if place + 1 == len(_UNITS):
                break
            smaller, smaller_size = _UNITS[place + 1]
            more = below // smaller_size
            return f"{count} {unit} {more} {smaller}" if more else f"{count} {unit}"
    return f"{count} s"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Write how long ago something was; `never` without a moment, `just now` where clocks disagree."""
    if then_ms is None:
        return "never"
    return f"{duration(now_ms - then_ms)} ago" if now_ms - then_ms >= 1000 else "just now"


def moment(ms: int) -> str:
    """Write a moment in the local time zone, with its offset from UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


class Paint:
    """
    Colours text for a terminal, and leaves it as it is for anything else, or where NO_COLOR is set.

    Args:
        stream: where the text is going to be written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._is_on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, colour: str, text: str) -> str:
        """Return the text in `red`, `green`, `yellow`, `blue`, `grey` or `bold`."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._is_on and text else text
