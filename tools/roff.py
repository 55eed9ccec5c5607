"""Words as roff takes them."""

from __future__ import annotations

# A line may not begin with these, and a backslash has a meaning everywhere.
_COMMAND_SIGNS = (".", "'")


def text(words: str) -> str:
    """Return words as roff shows them unchanged; hyphens stay hyphens, so that options can be copied."""
    return words.replace("\\", "\\e").replace("-", "\\-")


def line(words: str) -> str:
    """Return words that begin a line."""
    return ("\\&" if words.startswith(_COMMAND_SIGNS) else "") + text(words)


def heading(name: str, section: int, version: str, summary: str) -> list[str]:
    """Return the lines every page begins with."""
    return [
        f'.TH "{text(name.upper())}" {section} "" "kafka-log-cleaner {version}" "kafka-log-cleaner"',
        ".nh",  # an option that is broken in two cannot be found
        ".ad l",
        ".SH NAME",
        f"{text(name)} \\- {text(summary)}",
    ]
