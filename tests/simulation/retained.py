"""
Where a log starts, and what retention may have removed below it.

Source: rules R-118, R-901 to R-914.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.simulation.found import Wrong, first_base

LOG_STARTS = "log-start-offset-checkpoint"
_LONGEST_WAY_MS = 1000  # between taking the time of a record, or of a look, and its effect


class LogStart:
    """
    The log start of one partition: it never goes back, and moves only as its topic's settings allow.

    Args:
        directory: the partition's.
        settings: of its topic.
        now_ms: returns the wall clock.
    Attributes:
        offset: the highest that was on disk.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._directory = directory
        self._expires = "delete" in settings["cleanup.policy"].split(",")
        self._retention_ms = int(settings.get("retention.ms", -1))
        self._retention_bytes = int(settings.get("retention.bytes", -1))
        self._now_ms = now_ms
        self._latest_ms = now_ms()
        self.offset = 0
        self._judged = 0  # the offset when the log was last judged

    def copy(self) -> LogStart:
        """Return an independent copy."""
        other = LogStart.__new__(LogStart)
        other.__dict__ |= self.__dict__
        return other

    @property
    def retention_ms(self) -> int | None:
        """After how long all records have to be gone; None: never."""
        return self._retention_ms if self._expires and self._retention_ms >= 0 else None

    def note_time(self) -> None:
        """Note the wall clock; called before and after each jump."""
        self._latest_ms = max(self._latest_ms, self._now_ms())

    @property
    def is_dated_ahead(self) -> bool:
        """Whether records may have a time that has not come yet: the clock went back."""
        return self._latest_ms > self._now_ms()

    def look(self) -> int:
        """Note where the log starts by its segments, which is on disk; returns it."""
        start = first_base(self._directory) or 0
        if start and not self._expires:
            raise Wrong(f"the log starts at {start}, and nothing may be deleted from it")
        self.offset = max(start, self.offset)
        return start

    def judge(self, line: int, size: int | None) -> range:
        """
        Note where the log starts when it has been opened; returns the offsets that are below it since.

        Args:
            line: of the log start checkpoint.
            size: bytes of the log; None: not to be judged.
        """
        before, start = self.offset, max(self.look(), line)
        if start < before:
            raise Wrong(f"the log starts at {start}, and started at {before} before")
        self.note_time()
        gone = range(self._judged, start)
        self._judged = self.offset = start
        if gone and self._retention_ms < 0 and size is not None and size < self._retention_bytes:
            raise Wrong(f"{size} bytes are left of the log, {self._retention_bytes} have to stay")
        return gone

    def judge_damaged(self, line: int, end: int) -> range:
        """
        Note where the log starts, as `judge`, when the checkpoint may say anything below the log's end.

        Args:
            line: of the damaged log start checkpoint.
            end: the log's, as far as anybody knows.
        """
        start = max(self.look(), line)
        if start > end:
            raise Wrong(f"the log starts at {start} by a damaged line, and ends at {end}")
        gone = range(self._judged, start)
        self._judged = self.offset = start
        return gone

    def judge_gone(self, records: Iterable[tuple[int, int]]) -> None:
        """Judge records that retention has removed, (offset, time of its append) each: they have to be old enough."""
        if self._retention_ms < 0 or self._retention_bytes >= 0:
            return
        for offset, sent_ms in records:
            if self._latest_ms + _LONGEST_WAY_MS - sent_ms <= self._retention_ms:
                raise Wrong(
                    f"the record at {offset} was removed {self._latest_ms - sent_ms} ms after it was sent, "
                    f"retention.ms is {self._retention_ms}"
                )
