"""
Chooses the prefixes of keys that say most about a log: few, none within another, that hold most of its bytes.

A prefix ends behind separators (`user:`, `user:42:`) or before the first digit of a number (`user` of `user42`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_PREFIXES = 4
"""Of one key: longer ones are not looked at."""

_END = re.compile(rb"[:/.\-_|]+|(?<=[A-Za-z])(?=[0-9])")
_LEAST_SHARE = 0.02  # of the topic: a smaller prefix is not worth a line
_LEAST_COVER = 0.8  # of a prefix: what its longer ones must hold to be shown in its place


def prefixes_of(key: bytes) -> list[bytes]:
    """Return the prefixes of a key, the shortest first, all shorter than the key."""
    found: list[bytes] = []
    for match in _END.finditer(key):
        if match.end() == len(key) or len(found) == MOST_PREFIXES:
            break
        if match.end():
            found.append(key[: match.end()])
    return found


def choose_prefixes(totals: Mapping[bytes, float], total: float, most: int) -> list[bytes]:
    """
    Choose prefixes.

    A prefix gives way to its longer ones if these hold most of it, one by one the largest first.

    Args:
        totals: the bytes of each prefix, those of longer ones included.
        total: of all keys.
        most: how many to choose.
    Returns:
        The chosen ones, the largest first. None begins with another.
    """
    large = {prefix: size for prefix, size in totals.items() if size >= _LEAST_SHARE * total and size > 0}
    longer: dict[bytes, list[bytes]] = {}
    for prefix in large:
        longer.setdefault((prefixes_of(prefix) or [b""])[-1], []).append(prefix)

    def by_size(prefix: bytes) -> tuple[float, bytes]:
        return -large[prefix], prefix

    chosen = sorted(longer.get(b"", ()), key=by_size)[:most]
    while True:
        for prefix in chosen:
            parts = longer.get(prefix, [])
            fits = len(chosen) - 1 + len(parts) <= most
            if parts and fits and sum(large[part] for part in parts) >= _LEAST_COVER * large[prefix]:
                chosen = sorted([each for each in chosen if each != prefix] + parts, key=by_size)
                break
        else:
            return chosen
