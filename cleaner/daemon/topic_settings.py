"""
The settings of the topics of one log dir, followed as they change.

They are read again when one of the files they come from has changed. A mistake in a new version of a file does not take
a log dir out of service: what was read before stays in force, and the mistake is told.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from cleaner.api.options import Sources
from cleaner.errors import CleanerError, ConfigError
from cleaner.settings import ResolvedTopic, SettingsResolver
from cleaner.settings.files import CLEANER_TOPICS
from cleaner.storage.fs import FileSystem
from cleaner.storage.names import META_PROPERTIES

Fingerprint = tuple[tuple[str, int, int, int], ...]


class TopicSettings:
    """
    What each topic's settings are now.

    Attributes:
        mistake: why the files as they are now cannot be used; empty when they can.

    Args:
        fs: the file system.
        log_dir: the log dir.
        sources: where else settings come from.
    """

    def __init__(self, fs: FileSystem, log_dir: Path, sources: Sources) -> None:
        self.mistake = ""
        self._fs = fs
        self._log_dir = log_dir
        self._sources = sources
        self._fingerprint: Fingerprint = ()
        self._names: tuple[str, ...] = ()
        self._resolver: SettingsResolver | None = None
        self._resolved: dict[tuple[str, UUID | None], ResolvedTopic | CleanerError] = {}
        self._before: dict[tuple[str, UUID | None], ResolvedTopic | CleanerError] = {}

    @property
    def trusts_default_policy(self) -> bool:
        """Tell whether the operator takes a default policy for the truth."""
        by_config = self._resolver is not None and self._resolver.cleaner.trust_default_policy
        return self._sources.trust_default_policy or by_config

    @property
    def warnings(self) -> list[str]:
        """What the operator should know about the sources themselves."""
        return self._resolver.warnings if self._resolver is not None else []

    def refresh(self, names: tuple[str, ...]) -> None:
        """
        Read the settings again if they may have changed.

        Args:
            names: of the directories in the log dir; which topics there are tells how some lines are to be read.
        Raises:
            ConfigError, CleanerError: they cannot be read, and never could.
        """
        fingerprint = self._take_fingerprint()
        if self._resolver is not None and (fingerprint, names) == (self._fingerprint, self._names):
            return
        try:
            self._resolver = SettingsResolver.of(self._fs, self._log_dir, self._sources)
        except CleanerError as error:
            if self._resolver is None:
                raise
            self.mistake = f"{error}; the settings read before stay in force"
        else:
            self.mistake = ""
            self._before, self._resolved = self._resolved, {}
        self._fingerprint, self._names = fingerprint, names

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """
        Return a topic's settings: the same object as long as they are the same.

        Raises:
            CleanerError: they cannot be read.
        """
        key = (topic, topic_id)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._resolve(topic, topic_id)
            if found == self._before.get(key):
                found = self._resolved[key] = self._before[key]
        if isinstance(found, CleanerError):
            raise found
        return found

    def _resolve(self, topic: str, topic_id: UUID | None) -> ResolvedTopic | CleanerError:
        if self._resolver is None:
            raise ConfigError("settings", topic, "were not read yet")
        try:
            return self._resolver.topic(topic, topic_id)
        except CleanerError as error:
            return error

    def _take_fingerprint(self) -> Fingerprint:
        """Note which files there are, and their times and sizes."""
        paths = [self._log_dir / CLEANER_TOPICS, self._log_dir / META_PROPERTIES]
        for directory in (self._sources.topics_dir, self._sources.metadata_dir):
            if directory is not None:
                paths += [directory, *(directory / name for name in self._list(directory))]
        return tuple(self._fingerprint_of(path) for path in paths)

    def _list(self, directory: Path) -> list[str]:
        try:
            return self._fs.list_dir(directory)
        except OSError:
            return []

    def _fingerprint_of(self, path: Path) -> tuple[str, int, int, int]:
        try:
            about = self._fs.stat(path.resolve())
        except OSError:
            return (str(path), 0, 0, 0)
        return (str(path), about.st_ino, about.st_size, about.st_mtime_ns)
