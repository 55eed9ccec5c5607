"""
Sizes, rates and durations as people write and read them: one notation everywhere, in powers of 1024.

    read:     134217728   128M   128m   128 MiB   128MB   1.5G   (K, M, G, T, P; a following `iB` or `B` is ignored)
    written:  17 B   1.2 KiB   128.0 MiB   50.0 MiB/s

Files that a broker reads too must have plain bytes: Kafka does not support suffixes.
"""

from __future__ import annotations

import re

SUFFIXES_IN_WORDS = "K, M, G or T after it for powers of 1024"
SLOW_BYTES_PER_SECOND = 1 << 20
"""A limit below this rate is probably a typo: 50 for 50M."""

_UNITS = ("", "K", "M", "G", "T", "P", "E")
_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_SIZE = re.compile(r"([0-9]{1,20})(\.[0-9]{1,20})?[ ]?(?:([kmgtp])i?)?b?\Z", re.IGNORECASE | re.ASCII)
_MAX_BYTES = 2**63 - 1


def parse_size(text: str) -> int:
    """
    Parse a size; returns bytes, rounded to the nearest whole number.

    Raises:
        ValueError: not a size, a fraction without a unit, or above 2**63 - 1; the message says what is valid.
    """
    found = _SIZE.match(text.strip())
    if found is None or (found[2] and not found[3]):
        raise ValueError(f"must be a number of bytes, with {SUFFIXES_IN_WORDS}: 134217728, 128M, 1.5G")
    unit = 1 << (10 * _UNITS.index((found[3] or "").upper()))
    part = (found[2] or ".0")[1:]
    size: int = int(found[1]) * unit + (2 * int(part) * unit + 10 ** len(part)) // (2 * 10 ** len(part))
    if size > _MAX_BYTES:
        raise ValueError(f"must be at most {_MAX_BYTES} bytes")
    return size


def human_bytes(count: float | None) -> str:
    """Format a number of bytes: `17 B`, `1.2 GiB`; `unknown` for None."""
    if count is None:
        return "unknown"
    value, unit = float(abs(count)), 0
    while value >= (1023.5 if unit == 0 else 1023.95) and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    sign = "-" if count < 0 else ""
    return f"{sign}{value:.1f} {_UNITS[unit]}iB" if unit else f"{sign}{value:.0f} B"


def counted(number: int, word: str, form: str = "d") -> str:
    """Format a count of something, `1 segment` or `2 segments`; `form` is the number's format."""
    return f"{number:{form}} {word if number == 1 else word + 's'}"


def human_rate(bytes_per_second: float | None) -> str:
    """Format a speed limit: `50.0 MiB/s`, `unlimited` for None."""
    return "unlimited" if bytes_per_second is None else f"{human_bytes(bytes_per_second)}/s"


def slow_rate(bytes_per_second: float | None) -> str:
    """Return a warning for a speed limit that is implausibly low; empty for others and for None."""
    if bytes_per_second is None or not 0 < bytes_per_second < SLOW_BYTES_PER_SECOND:
        return ""
    hours = (1 << 30) / bytes_per_second / 3600
    took = f"{hours / 24:,.0f} days" if hours >= 48 else f"{hours * 60:,.0f} minutes"
    return (
        f"{human_rate(bytes_per_second)} is below 1 MiB/s: reading and writing 1 GiB takes {took} then; "
        f"50M means 50 MiB/s"
    )


def duration(ms: float) -> str:
    """Format a duration in its two largest units: `3 d 4 h`, `12 s`, `85 ms`; `forever` from 30 000 years on."""
    if not abs(ms) < 1e15:
        return "forever"
    rest = round(ms)
    if rest < 1000:
        return f"{rest} ms"
    for place, (unit, size) in enumerate(_SPANS):
        if rest >= size:
            count, below = divmod(rest, size)
            if place + 1 == len(_SPANS):
                break
            smaller, smaller_size = _SPANS[place + 1]
            more = below // smaller_size
            return f"{count} {unit} {more} {smaller}" if more else f"{count} {unit}"
    return f"{count} s"
