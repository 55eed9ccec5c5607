"""A log that grows between rounds, written by the product's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cleaner
from cleaner.app.reports import CleanReport
from cleaner.base.clock import StillClock
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from tests.golden.comparison import contents
from tests.support.log_builder import START_MS

TOPIC = "prices"
DAY_MS = 86_400_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "internal.segment.bytes": "4000",
    "index.interval.bytes": "500",
    "delete.retention.ms": str(5 * DAY_MS),
    "min.cleanable.dirty.ratio": "0.01",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "replica.high.watermark.checkpoint.interval.ms": "60000",
}


class GrowingLog:
    """
    One log in a log dir of its own.

    Args:
        root: gets the log dir and a directory for indexes.
        settings: besides `SETTINGS`.
    Attributes:
        now_ms: the moment of the next append or round.
        warned: of rounds.
    """

    def __init__(self, root: Path, settings: dict[str, str] | None = None) -> None:
        self.log_dir, self.index_dir = root / "logs", root / "index"
        self.directory = self.log_dir / f"{TOPIC}-0"
        self.settings = SETTINGS | (settings or {})
        self.now_ms = START_MS
        with self.manager(create=True) as manager:
            manager.create_topic(TOPIC, settings={"cleanup.policy": "compact"})

    def manager(self, *, create: bool = False) -> LogManager:
        """Open the log dir for writing."""
        clock = StillClock(self.now_ms)
        return LogManager(self.log_dir, self.settings, cleaner=False, tasks=False, clock=clock, create=create)

    def append(self, *segments: Sequence[tuple[str, str | None]]) -> None:
        """Append segments, each a batch for each ten records; the last one stays active and empty."""
        with self.manager() as manager:
            log = manager.log(TOPIC, 0)
            for pairs in segments:
                records = [Record(key.encode(), None if value is None else value.encode()) for key, value in pairs]
                for first in range(0, len(records), 10):
                    log.append(records[first : first + 10])
                log.roll()

    def segment(self, first: int, count: int = 30, size: int = 100) -> list[tuple[str, str | None]]:
        """Return records of that many keys from a number on, which fill a segment of its own."""
        return [(f"k{number}", f"{self.now_ms}".ljust(size, ".")) for number in range(first, first + count)]

    def clean(self, *, index: bool = True, **options: Any) -> CleanReport:
        """Clean once, with or without indexes."""
        options.setdefault("now_ms", self.now_ms)
        return cleaner.clean(
            self.log_dir,
            f"{TOPIC}-0",
            self.settings | options.pop("settings", {}),
            index_dir=self.index_dir if index else None,
            **options,
        )

    def round(self, first: int, **options: Any) -> CleanReport:
        """Append one segment, and clean."""
        self.append(self.segment(first))
        return self.clean(**options)

    def indexes(self) -> list[Path]:
        """Return the indexes that are there, ascending."""
        return sorted(self.index_dir.glob("*/*/*.keys"))

    def contents(self) -> dict[str, bytes]:
        """Return the log's files."""
        return contents(self.directory)
