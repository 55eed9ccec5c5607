"""How moments, durations and names are written for people, and colours where a terminal shows them."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TextIO

from cleaner.base.sizes import duration

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90", "bold": "1"}


def printable(text: str) -> str:
    """Return a text in one line, with line ends, control characters and terminal codes made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
