"""
The settings of the topics of one log dir, as the daemon's watch asks for them.

They are read when first asked for, and again after a reload or when one of the files they come from has changed. A
mistake in a new version of a file does not take a log dir out of service, nor does a reload beside one: what was read
before stays in force, and the mistake is told. Where it is about one topic, only that topic has to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from cleaner.app.options import Sources
from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, ConfigError
from cleaner.settings import FollowedSettings, ResolvedTopic
from cleaner.storage.fs.file_system import FileSystem


class TopicSettings:
    """
    What each topic's settings are now. `take_over` and `refresh` are for one thread, the rest is for any.

    Args:
        fs: the file system.
        log_dir: the log dir.
        sources: where else settings come from.
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
        """Why the files of all topics as they are now cannot be used; empty when they can."""
        reason = self._followed.errors.get("", "") if self._followed is not None else ""
        reason = self._next_mistake or reason
        return f"{reason}; the settings read before stay in force" if reason else ""

    @property
    def cleaner(self) -> CleanerConfig:
        """
        The settings of the process as they count for this log dir.

        Raises:
            ConfigError: nothing was read yet.
        """
        if self._followed is None:
            raise ConfigError("settings", self._log_dir, "were not read yet")
        return self._followed.resolver.cleaner

    @property
    def trusts_default_policy(self) -> bool:
        """Tell whether the operator takes a default policy for the truth."""
        by_config = self._followed is not None and self._followed.resolver.cleaner.trust_default_policy
        return self._sources.trust_default_policy or by_config

    @property
    def warnings(self) -> list[str]:
        """What the operator should know about the sources themselves."""
        return self._followed.resolver.warnings if self._followed is not None else []

    def take_over(self, sources: Sources) -> None:
        """Have settings come from elsewhere, as of the next `refresh` that can read them."""
        if self._followed is None:
            self._sources = sources
        else:
            self._next = sources

    def refresh(self, names: Sequence[str], now_ms: int) -> None:
        """
        Read the settings again if they have changed.

        Args:
            names: of the directories in the log dir: topics that have none are forgotten.
            now_ms: the wall clock.
        Raises:
            CleanerError: they cannot be read, and never could.
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
        Return a topic's settings: the same object as long as they are the same.

        Raises:
            CleanerError: they cannot be read.
        """
        if self._followed is None:
            raise ConfigError("settings", topic, "were not read yet")
        return self._followed.topic(topic, topic_id)

    def _follow(self, followed: FollowedSettings, sources: Sources) -> None:
        try:
            followed.follow(sources)
        except CleanerError as error:
            self._next_mistake = f"not reloaded here: {error}"
            return
        self._sources, self._next, self._next_mistake = sources, None, ""
