"""The calls of a `LogManager` that are about topics: it checks what it is given, and keeps changes apart."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping

from cleaner.base import arguments, concurrency
from cleaner.base.arguments import Setting, Settings
from cleaner.config.values import TopicConfig
from cleaner.errors import LogClosedError, TopicExistsError, UsageError
from cleaner.log.dir_state import DirState
from cleaner.log.interrupted import in_the_middle
from cleaner.log.origin import Origin
from cleaner.log.served_topics import ServedTopics
from cleaner.log.topics import Topic
from cleaner.settings.internal_topics import INTERNAL_TOPICS


class TopicCalls:
    """The part of a `LogManager` that lists, makes, changes and deletes topics."""

    # Held while topics are created, changed or deleted, and while the manager is closed; reentrant for signal handlers,
    # which are refused.
    _lock: concurrency.RLock
    _is_changing: bool
    _origin: Origin
    _topics: ServedTopics
    _states: list[DirState]
    _is_closed: bool

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        self._require_open()
        return self._topics.names()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        settings: Settings | None = None,
        *,
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """
        Create a topic; its logs can be written to when it returns.

        A crash or a disk error in the middle may leave the first of its partitions; `add_partitions` makes the others.

        Args:
            name: as Kafka's rules for names allow.
            partitions: how many.
            settings: its own; this manager's settings are the defaults.
            topic_id: None chooses one.
        Raises:
            InvalidTopicError, TopicExistsError, TopicSettingsError, ConfigError: see `Topics.create`.
            LogDirOfflineError, NoSpaceError: the disk.
        """
        name, partitions = arguments.text("name", name), arguments.whole("partitions", partitions)
        texts = arguments.setting_texts(settings)
        if topic_id is not None and not isinstance(topic_id, uuid.UUID):
            raise UsageError(f"topic_id is {topic_id!r}; a uuid.UUID or None is needed")
        with self._changing():
            return self._topics.create(name, partitions, texts, topic_id)

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Raise a topic's number of partitions to `partitions`; raises as `Topics.grow`."""
        name, partitions = arguments.text("name", name), arguments.whole("partitions", partitions)
        with self._changing():
            return self._topics.grow(name, partitions)

    def alter_topic(self, name: str, changes: Mapping[str, Setting | None]) -> Topic:
        """Change a topic's settings, None takes one back; they count at once. Raises as `Topics.alter`."""
        name, texts = arguments.text("name", name), arguments.setting_changes(changes)
        with self._changing():
            return self._topics.alter(name, texts)

    def describe_topic(self, name: str) -> Topic:
        """Return a topic as it is on disk. Raises UnknownTopicError."""
        self._require_open()
        return self._topics.find(arguments.text("name", name))

    def topic_config(self, name: str) -> TopicConfig:
        """Return all settings of a topic, defaults included."""
        self._require_open()
        return self._topics.config(arguments.text("name", name))

    def delete_topic(self, name: str) -> None:
        """
        Delete a topic: its readers and writers get LogClosedError, its files are removed after `file.delete.delay.ms`.

        Raises:
            UnknownTopicError: it does not exist.
            LogDirOfflineError: the disk; some of its partitions may be gone.
        """
        name = arguments.text("name", name)
        with self._changing():
            self._topics.delete(name)

    # ---- small parts -----------------------------------------------------------------------------------------------

    def _partition_count(self, name: str) -> int:
        """Return how many partitions a coordinator's topic has; it is made, with one, if it is not there."""
        if name not in self._topics.names():
            with contextlib.suppress(TopicExistsError):
                # Its own settings, as a broker would give it: this manager's defaults are for other topics.
                self.create_topic(name, settings=dict(INTERNAL_TOPICS[name].values))
        return len(self._topics.find(name).homes)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        self._require_open()
        with self._lock:
            self._require_unchanging()
            if self._is_closed:
                raise LogClosedError(self._name())
            try:
                self._is_changing = True
                yield
            finally:
                self._is_changing = False

    def _require_unchanging(self) -> None:
        """Raise LogWriteError: called by a signal handler in the middle of a change of topics. Needs the lock."""
        if self._is_changing:
            raise in_the_middle(self._name())

    def _require_open(self) -> None:
        self._origin.require_own()
        if self._is_closed:
            raise LogClosedError(self._name())

    def _name(self) -> str:
        return ", ".join(str(state.path) for state in self._states)
