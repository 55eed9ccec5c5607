"""What the tests of looking share: small log dirs, a clock that is ahead of every file, a counting file system."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cleaner.base.clock import SystemClock
from cleaner.config.values import CleanerConfig
from cleaner.daemon.log_dir_watch import DirLook, WatchedLogDir
from cleaner.daemon.log_status import LogStatus
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import DirectoryEntry, File, FileSystem


def sources(*, config: Mapping[str, str] | None = None, **topics: str) -> Sources:
    """Make sources in which some topics have a policy of their own; `_` in a topic's name stands for itself."""
    sets = [SetOption(topic, "cleanup.policy", policy) for topic, policy in topics.items()]
    return Sources(config=config or {}, sets=sets)


def with_sets(base: Sources, topic: str, **settings: str) -> Sources:
    """Add settings of a topic; `_` stands for a dot."""
    more = [SetOption(topic, key.replace("_", "."), value) for key, value in settings.items()]
    return Sources(config=base.config, sets=[*base.sets, *more], topics_dir=base.topics_dir)


class CountingFileSystem(FileSystem):
    """The real one, counting what it is asked."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def open(self, path: Path, *, write: bool = False) -> File:
        """Count."""
        self.calls["open"] += 1
        return super().open(path, write=write)

    def stat(self, path: Path) -> os.stat_result:
        """Count."""
        self.calls["stat"] += 1
        return super().stat(path)

    def stat_followed(self, path: Path) -> os.stat_result:
        """Count."""
        self.calls["stat"] += 1
        return super().stat_followed(path)

    def scan_dir(self, directory: Path, suffixes: tuple[str, ...]) -> list[DirectoryEntry]:
        """Count."""
        self.calls["list"] += 1
        return super().scan_dir(directory, suffixes)


class Watch:
    """A watched log dir and the time, which is minutes ahead of the files and moves a minute with every look."""

    def __init__(
        self,
        path: Path,
        given: Sources | None = None,
        config: CleanerConfig | None = None,
        fs: FileSystem | None = None,
        now_ms: int | None = None,
    ) -> None:
        self.now_ms = now_ms or time.time_ns() // 1_000_000 + 600_000
        self.dir = WatchedLogDir(
            fs or FileSystem(), SystemClock(), path, config or CleanerConfig(), given or sources(topic="compact")
        )

    def look(self, after_ms: int = 60_000) -> DirLook:
        """Let time pass and look."""
        self.now_ms += after_ms
        return self.dir.look(self.now_ms)

    def log(self, name: str = "topic-0", after_ms: int = 60_000) -> LogStatus:
        """Look, and return one log."""
        return next(log for log in self.look(after_ms).logs if str(log.partition) == name)
