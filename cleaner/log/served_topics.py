"""
Topics whose logs are open: each change on disk also changes the open logs.

The caller makes one change at a time.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from cleaner.app.session import as_cleaner_errors
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError
from cleaner.log import counters
from cleaner.log.dir_state import DirState
from cleaner.log.partitions import Partitions, Services
from cleaner.log.topics import Topic, Topics, check_topic_name
from cleaner.log.upkeep import Upkeep
from cleaner.settings import FollowedSettings
from cleaner.settings.sources import Sources
from cleaner.storage.lock.partition_lock import partition_lock
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.remove.removals import Removals
from cleaner.storage.segment.generation import raise_generation


class ServedTopics:
    """
    See the head of the file.

    Args:
        services: those of the logs.
        partitions: the open logs.
        states: the log dirs.
        settings: of the topics, by log dir.
        sources: where they come from.
        upkeep: gives logs their settings.
        removals: files that wait for their removal.
    """

    def __init__(
        self,
        services: Services,
        partitions: Partitions,
        states: Sequence[DirState],
        settings: Mapping[Path, FollowedSettings],
        sources: Sources,
        upkeep: Upkeep,
        removals: Removals,
    ) -> None:
        self._services = services
        self._partitions = partitions
        self._states = states
        self._settings = settings
        self._sources = sources
        self._upkeep = upkeep
        self._removals = removals
        self._topics = Topics(services.fs, [state.log_dir for state in states], services.clock)
        # What an error has left unfinished: topics with the partitions they had before; others may be on disk by now.
        self._unfinished: dict[str, frozenset[TopicPartition]] = {}

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return self._topics.names()

    def find(self, name: str) -> Topic:
        """Return a topic as it is on disk. Raises UnknownTopicError."""
        return self._topics.find(name)

    def config(self, name: str) -> TopicConfig:
        """Return a topic's settings, defaults included. Raises UnknownTopicError."""
        return self._config_of(name, self._topics.find(name))

    def create(self, name: str, partitions: int, settings: Mapping[str, str], topic_id: uuid.UUID | None) -> Topic:
        """Create a topic and serve its logs; raises as `Topics.create`."""
        check_topic_name(name)
        policy = ",".join(sorted(self._config_of(name).cleanup_policy))
        self._topics.check_new(name)
        self._unfinished[name] = frozenset()
        try:
            made = self._topics.create(name, partitions, settings, default_policy=policy, topic_id=topic_id)
            self._serve(made, made.partitions)
        except BaseException as error:
            # Half a topic could neither be used nor created again.
            try:
                if name in self._topics.names():
                    self.delete(name)
            except CleanerError as second:
                error.add_note(f"the unfinished topic could not be deleted: {second}")
            raise
        del self._unfinished[name]
        return made

    def grow(self, name: str, partitions: int) -> Topic:
        """
        Give a topic more partitions and serve them; after an error, call it again.

        Raises as `Topics.grow`, and ConfigError for its settings.
        """
        self.config(name)  # before a directory is made: no log can be served with settings that cannot be read
        topic = self._topics.find(name)
        before = self._unfinished.setdefault(name, frozenset(topic.partitions))
        if partitions != len(topic.homes) or not self._unserved(topic, before):
            topic = self._topics.grow(name, partitions)
        self._serve(topic, self._unserved(topic, before))
        del self._unfinished[name]
        return topic

    def _unserved(self, topic: Topic, before: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that were made since, and that no log is open of."""
        served = before.union(each.partition for each in self._partitions.all())
        return [each for each in topic.partitions if each not in served]

    def alter(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        """Change a topic's settings, which count at once; raises as `Topics.alter`."""
        altered = self._topics.alter(name, changes)
        self._read_settings()
        return altered

    def delete(self, name: str) -> None:
        """Delete a topic, close its logs, and have its files removed later; raises as `Topics.delete`."""
        delay_ms = self.config(name).file_delete_delay_ms
        self._topics.delete(name, self._removing, lambda each: self._removals.add_directory(each, delay_ms))
        self._unfinished.pop(name, None)
        self._read_settings()
        self._services.wake()

    @contextlib.contextmanager
    def _removing(self, partition: TopicPartition, log_dir: LogDir) -> Iterator[None]:
        """Close a log, keep a cleaner and readers out while its directory is renamed, and drop its checkpoint lines."""
        fs, clock = self._services.fs, self._services.clock
        self._partitions.abandon(partition)
        with partition_lock(fs, log_dir.path, partition, clock):
            raise_generation(fs, log_dir.path, partition)
            yield
        self._topics.drop_offsets(log_dir, [partition])

    def _serve(self, topic: Topic, partitions: Sequence[TopicPartition]) -> None:
        """
        Open new logs, each with its high watermark on disk before any caller can append.

        A reader that finds no line reads to the log end (`directory_view.py`), which a killed writer may not have
        flushed. A crash before the line leaves logs without records; the next opening writes the line.
        """
        self._read_settings()
        for state in self._states:
            mine = [partition for partition in partitions if topic.homes[partition.partition] == state.path]
            if not mine:
                continue
            with as_cleaner_errors(state.path):
                state.note(OffsetKind.HIGH_WATERMARK, partial(dict.fromkeys, mine, 0))
            for partition in mine:
                self._partitions.open(state, self._settings[state.path], partition, was_closed=True)
        self._services.registry.put(counters.OPEN_LOGS, len(self._partitions.all()))

    def _config_of(self, name: str, topic: Topic | None = None) -> TopicConfig:
        """Return the settings of a topic; for one that does not exist yet, the defaults of all topics."""
        home = self._states[0].path if topic is None else next(iter(topic.homes.values()))
        return self._settings[home].topic(name, None if topic is None else topic.topic_id).config

    def _read_settings(self) -> None:
        for settings in self._settings.values():
            settings.follow(self._sources)
        self._upkeep.apply_settings()
