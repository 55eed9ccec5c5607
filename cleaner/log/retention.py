"""
Retention of a log by its writer: segments that have expired as a whole go, the active one too.

Which ones is `policy/retention.py`; in which steps they go so that no crash makes a hole is `storage/remove/expiry.py`. When
all have expired an empty segment takes their place first (R-913), so an idle log that keeps nothing for ever keeps
nothing at all. A policy that nobody has said deletes nothing but what lies below the log start.

Source: rules R-901 to R-914, R-920.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ActiveOne:
    """The segment that is appended to: how long it is and its largest timestamp are known, on disk they may not be."""

    base_offset: int
    size: int
    timestamp_ms: int

    def largest_timestamp(self) -> int:
        """Return the largest timestamp, or when it was last written to (R-324)."""
        return self.timestamp_ms


@dataclass(frozen=True)
class ExpiredSegments:
    """
    What was set aside: how many segments, the bytes of their logs, and the `.deleted` files there are now.
    """

    segments: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
