"""
The settings of the topics of one log dir, for the daemon's watch.

They are read when first needed, and again after a reload or when one of their files has changed. A mistake in a new
version of a file does not take a log dir out of service, even if there is a reload too: the settings read before stay
in force, and the mistake is reported. If it concerns one topic, only that topic has to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, ConfigError
from cleaner.policy.kafka_version import ChosenVersion
from cleaner.settings import FollowedSettings, ResolvedTopic
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem


class WatchedTopicSettings:
    """
    The current settings of each topic. `take_over` and `refresh` are for one thread, the rest is for any.

    Args:
        fs: the file system.
        log_dir: the log dir.
        sources: where settings come from besides the log dir.
    """

    def __init__(self, fs: FileSystem, log_dir: Path, sources: Sources) -> None:
        self._fs = fs
        self._log_dir = log_dir
        self._sources = sources
        self._next: Sources | None = None
        self._next_mistake = ""
        self._names: Sequence[str] = ()
        self._followed: FollowedSettings | None = None

    @property
    def mistake(self) -> str:
        """Why the current files for all topics cannot be used; empty if they can."""
        reason = self._followed.errors.get("", "") if self._followed is not None else ""
        reason = self._next_mistake or reason
        return f"{reason}; the settings read before stay in force" if reason else ""

    @property
    def cleaner(self) -> CleanerConfig:
        """
        The settings of the process as they count for this log dir.

        Raises:
            ConfigError: they have not been read.
        """
        return self._read().resolver.cleaner

    @property
    def trusts_default_policy(self) -> bool:
        """Tell whether the operator trusts a default policy."""
        return self._followed is not None and self._followed.resolver.trusts_default_policy

    @property
    def kafka(self) -> ChosenVersion:
        """
        The Kafka version whose rules apply to this log dir.

        Raises:
            ConfigError: the settings have not been read.
        """
        return self._read().resolver.kafka

    @property
    def warnings(self) -> list[str]:
        """Warnings about the sources themselves."""
        return self._followed.resolver.warnings if self._followed is not None else []

    def take_over(self, sources: Sources) -> None:
        """Use other sources, from the next `refresh` on that can read them."""
        if self._followed is None:
            self._sources = sources
        else:
            self._next = sources

    def refresh(self, names: Sequence[str], now_ms: int) -> None:
        """
        Read the settings again if they have changed.

        Args:
            names: of the directories in the log dir; topics without one are forgotten.
            now_ms: the wall clock.
        Raises:
            CleanerError: they cannot be read, and have never been read before.
        """
        if self._followed is None:
            self._followed = FollowedSettings(self._fs, self._log_dir, self._sources)
        elif self._next is None:
            self._followed.look(now_ms)
        else:
            self._follow(self._followed, self._next)
        if names != self._names:
            self._names = names
            self._followed.keep_only({name.rpartition("-")[0] for name in names})

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """
        Return a topic's settings: the same object as long as they are unchanged.

        Raises:
            CleanerError: they cannot be read.
        """
        if self._followed is None:
            raise ConfigError("settings", topic, "were not read yet")
        return self._followed.topic(topic, topic_id)

    def _read(self) -> FollowedSettings:
        if self._followed is None:
            raise ConfigError("settings", self._log_dir, "were not read yet")
        return self._followed

    def _follow(self, followed: FollowedSettings, sources: Sources) -> None:
        try:
            followed.follow(sources)
        except CleanerError as error:
            self._next_mistake = f"not reloaded here: {error}"
            return
        self._sources, self._next, self._next_mistake = sources, None, ""
