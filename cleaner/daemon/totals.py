"""Sums of the work since the process started, by topic, and how long rounds took."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from cleaner.daemon.faults import Ending
from cleaner.daemon.snapshot import Histogram, RoundView, TopicTotals

# A round of a small log takes milliseconds, one of 500 GB an hour.
ROUND_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)


class Totals:
    """Sums. To be called by one thread at a time."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTotals] = {}
        self._counts = [0] * (len(ROUND_SECONDS) + 1)
        self._seconds = 0.0
        self._ended_ms: int | None = None

    def add_round(self, view: RoundView) -> None:
        """Add a round that ended, whether it succeeded or failed."""
        is_good = view.result in (Ending.DONE.value, Ending.NOTHING.value)
        totals = self._topics.get(view.partition.topic, TopicTotals())
        self._topics[view.partition.topic] = replace(
            totals,
            rounds=_added(totals.rounds, {view.result: 1}),
            bytes_read=totals.bytes_read + view.bytes_read,
            bytes_written=totals.bytes_written + view.bytes_written,
            messages_read=totals.messages_read + view.messages_read,
            messages_written=totals.messages_written + view.messages_written,
            map_bytes_read=totals.map_bytes_read + view.map_bytes_read,
            map_messages_read=totals.map_messages_read + view.map_messages_read,
            removed=_added(totals.removed, view.removed),
            last_success_ms=view.ended_ms if is_good else totals.last_success_ms,
        )
        if is_good:
            self._counts[bisect_left(ROUND_SECONDS, view.seconds)] += 1
            self._seconds += view.seconds
            self._ended_ms = view.ended_ms

    def add_retention(self, topic: str, segments: int, size: int) -> None:
        """Add what a retention pass deleted of one log."""
        totals = self._topics.get(topic, TopicTotals())
        self._topics[topic] = replace(
            totals,
            retention_segments=totals.retention_segments + segments,
            retention_bytes=totals.retention_bytes + size,
        )

    def topics(self) -> dict[str, TopicTotals]:
        """Return the sums of each topic with any work."""
        return dict(self._topics)

    def round_seconds(self) -> Histogram:
        """Return the durations of successful rounds."""
        return Histogram(ROUND_SECONDS, tuple(self._counts), self._seconds)

    @property
    def ended_ms(self) -> int | None:
        """When the last successful round ended."""
        return self._ended_ms


def _added(sums: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: sums.get(name, 0) + more.get(name, 0) for name in {**sums, **more}}
