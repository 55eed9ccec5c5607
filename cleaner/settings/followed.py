"""
The settings of a log dir's topics, kept up to date as their sources change.

A daemon asks once a turn whether anything changed. That costs one `stat` per file; only changed files are read again,
and 5000 topics with their own files are checked in some milliseconds.

- A changed file takes effect when it has stayed the same for a second: an editor may still be writing it, and half a
  file can mean the opposite of the whole. The metadata log takes effect at once: a batch is whole or absent.
- A change that cannot take effect (a bad value, an unreadable file) leaves the settings as they were, and is reported
  in `errors` or in the topic's warnings until it is fixed.
- A topic that is requested for the first time is read at once; if that fails, it has no settings, and is not cleaned.

Every call may come from any thread; one `look` serves all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from cleaner.base import concurrency
from cleaner.errors import MAY_PASS, CleanerError
from cleaner.settings.file_state import FileState, file_state
from cleaner.settings.files import CLEANER_TOPICS
from cleaner.settings.resolver import FilesOfLogDir, ResolvedTopic, SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import META_PROPERTIES

SETTLED_MS = 1000


class Settling:
    """
    Judges files by the time of their last change, so it must remember only files that are gone, which have none.

    A time in the future is useless, so such a file counts as complete.
    """

    def __init__(self) -> None:
        self._gone_since_ms: dict[str, int] = {}

    def is_settled(self, name: str, state: FileState | None, directory: FileState | None, now_ms: int) -> bool:
        """
        Tell whether a change may take effect.

        Args:
            name: identifies the file.
            state: of the file; None if it is gone, perhaps only for a moment while an editor replaces it.
            directory: state of its directory, which changed when the file vanished, or later.
            now_ms: the wall clock.
        """
        if state is not None:
            self._gone_since_ms.pop(name, None)
            return _is_old(state, now_ms)
        since_ms = self._gone_since_ms.setdefault(name, now_ms)
        is_gone = directory is None or _is_old(directory, now_ms) or not 0 <= now_ms - since_ms < SETTLED_MS
        if is_gone:
            del self._gone_since_ms[name]
        return is_gone


def _is_old(state: FileState, now_ms: int) -> bool:
    return not 0 <= now_ms - state.changed_ns // 1_000_000 < SETTLED_MS


_NOT_APPLIED = "a change was not applied: "


@dataclass
class _Known:
    """A topic that was requested: the state of its file, and the settings for each topic id."""

    state: FileState | None
    settings: dict[UUID | None, ResolvedTopic] = field(default_factory=dict)


class FollowedSettings:
    """
    See the module's docstring.

    Args:
        fs: the file system.
        log_dir: the topics' log dir.
        sources: where settings come from.
    Raises:
        ConfigError, CorruptCheckpointError: as `SettingsResolver`.
    """

    def __init__(self, fs: FileSystem, log_dir: Path, sources: Sources) -> None:
        self._fs = fs
        self._log_dir = log_dir
        self._sources = sources
        self._lock = concurrency.RLock()  # guards all below
        self._resolver = SettingsResolver(fs, log_dir, sources)
        self._topics_dir = self._resolver.topics_dir_state()
        self._topics: dict[str, _Known] = {}
        self._before: dict[str, _Known] = {}
        self._settling = Settling()
        self._refused: dict[str, tuple[object, str]] = {}

    @property
    def resolver(self) -> SettingsResolver:
        """The resolver in force; replaced by a `look` or `follow` that changes something."""
        return self._resolver

    @property
    def errors(self) -> Mapping[str, str]:
        """Why a change did not take effect, by topic; under an empty name for errors that concern all topics."""
        with self._lock:
            return {topic: reason for topic, (_, reason) in self._refused.items()}

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """
        Return a topic's settings; the same object as long as they do not change.

        Raises:
            ConfigError: a bad value or name in a source of this topic, or settings that contradict each other.
        """
        with self._lock:
            known = self._topics.get(topic)
            if known is None:
                known = self._topics[topic] = _Known(self._resolver.topic_file_state(topic))
            settings = known.settings.get(topic_id)
            if settings is None:
                settings = known.settings[topic_id] = self._resolve(topic, topic_id, self._before.get(topic))
            return settings

    def look(self, now_ms: int) -> bool:
        """
        Check all files for changes; returns whether something changed, so that topics must be requested again.

        Args:
            now_ms: the wall clock, by which file systems date changes.
        """
        with self._lock:
            has_changed = self._look_at_sources(now_ms)
            return self._look_at_topic_files(now_ms) or has_changed

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget all other topics."""
        with self._lock:
            for gone in [topic for topic in self._topics if topic not in topics]:
                del self._topics[gone]
                self._refused.pop(gone, None)

    def follow(self, sources: Sources) -> None:
        """
        Change to other sources, after a reload.

        Raises:
            ConfigError, CorruptCheckpointError: as `SettingsResolver`; then nothing has changed.
        """
        resolver = SettingsResolver(self._fs, self._log_dir, sources)
        with self._lock:
            self._sources = sources
            self._take(resolver)

    def _take(self, resolver: SettingsResolver) -> None:
        self._resolver = resolver
        self._topics_dir = resolver.topics_dir_state()
        self._before, self._topics = self._topics, {}
        self._settling = Settling()
        self._refused.clear()

    def _resolve(self, topic: str, topic_id: UUID | None, before: _Known | None) -> ResolvedTopic:
        resolved = self._resolver.topic(topic, topic_id)
        was = before.settings.get(topic_id) if before is not None else None
        return was if was is not None and was == resolved else resolved

    def _look_at_sources(self, now_ms: int) -> bool:
        states = files, _ = self._resolver.file_states(), self._resolver.metadata_states()
        if states == self._resolver.read_states:
            self._refused.pop("", None)
            return False
        refused = self._refused.get("")
        if refused is not None and refused[0] == states:
            return False
        if not self._are_settled(files, now_ms):
            return False
        try:
            resolver = SettingsResolver(self._fs, self._log_dir, self._sources)
        except CleanerError as error:
            self._refused[""] = (states, str(error))
            return False
        self._take(resolver)
        return True

    def _are_settled(self, files: FilesOfLogDir, now_ms: int) -> bool:
        was = self._resolver.read_states[0]
        log_dir = file_state(self._fs, self._log_dir)
        changed = {
            CLEANER_TOPICS: (files.cleaner_topics, was.cleaner_topics),
            META_PROPERTIES: (files.meta_properties, was.meta_properties),
        }
        return all(
            now == then or self._settling.is_settled(name, now, log_dir, now_ms)
            for name, (now, then) in changed.items()
        )

    def _look_at_topic_files(self, now_ms: int) -> bool:
        topics_dir = self._resolver.topics_dir_state()
        may_appear = topics_dir != self._topics_dir
        has_changed = is_waiting = False
        for topic, known in self._topics.items():
            if known.state is None and not may_appear:
                continue
            state = self._resolver.topic_file_state(topic)
            if state == known.state:
                continue
            if self._settling.is_settled(topic, state, topics_dir, now_ms):
                has_changed |= self._read_again(topic, known, state)
            else:
                is_waiting = True
        if not is_waiting:
            self._topics_dir = topics_dir
        return has_changed

    def _read_again(self, topic: str, known: _Known, state: FileState | None) -> bool:
        try:
            known.settings = {topic_id: self._resolve(topic, topic_id, known) for topic_id in known.settings}
            self._refused.pop(topic, None)
        except CleanerError as error:
            refused = (state, str(error))
            may_pass = any(isinstance(each, MAY_PASS) for each in (error, error.__cause__))
            if may_pass and self._refused.get(topic) == refused:
                return False
            self._refused[topic] = refused
            known.settings = {topic_id: _kept(settings, error) for topic_id, settings in known.settings.items()}
            if may_pass:
                return True  # the state from before stays: the next look reads the file again
        known.state = state
        return True


def _kept(settings: ResolvedTopic, error: CleanerError) -> ResolvedTopic:
    """Return settings that stay in force, with the reason."""
    warnings = [warning for warning in settings.warnings if not warning.startswith(_NOT_APPLIED)]
    return replace(settings, warnings=(*warnings, f"{_NOT_APPLIED}{error}"))
