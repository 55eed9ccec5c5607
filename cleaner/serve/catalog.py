"""The topics in the log dirs that are served. Directories are looked at again when a client asks for topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.errors import MAY_PASS, CleanerError, CleaningAborted, UsageError
from cleaner.serve.codes import Code, code_of
from cleaner.serve.partition import Partition
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import PARTITION_METADATA

_FRESH_NS = 1_000_000_000
_MOST_SAID = 10_000
# Clients remember topics by id; a directory without one gets the same id in every life of the server.
_NAMESPACE = uuid.UUID("8bb90f68-23a4-5d23-a3b1-6f0d1cbbf6c5")


class Topic(NamedTuple):
    """
    A topic, as far as it is in the log dirs.

    Attributes:
        topic_id: Kafka's text of it.
        partitions: by number; those of other brokers are missing.
    """

    name: str
    topic_id: str
    partitions: Mapping[int, Partition]


class Catalog:
    """
    The topics by name and id.

    Args:
        directories: the log dirs.
        warn: called with one line for what cannot be served.
    Raises:
        UsageError: two of the log dirs have the same partition.
        LogDirOfflineError: a directory cannot be listed.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[Path], clock: Clock, warn: Callable[[str], None]) -> None:
        self._fs = fs
        self._clock = clock
        self._warn = warn
        self._said: set[str] = set()
        self.log_dirs = [LogDir(fs, directory) for directory in directories]
        self._looked_at_ns = clock.monotonic_ns()
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        self._partitions: dict[TopicPartition, Partition] = {}
        self._has_all_ids = True
        self._instead: Mapping[TopicPartition, Path | None] | None = None
        self._look(is_first=True)

    def serve_instead(self, places: Mapping[TopicPartition, Path | None]) -> None:
        """
        Serve some partitions from other log dirs, or (None) not at all; from now on the topics stay the same.

        Before anything is asked.
        """
        self._instead = places
        for topic_partition in places:
            self._partitions.pop(topic_partition).close()
        self._look(is_first=True)

    def refresh(self) -> None:
        """Look for new and for removed partitions, at most once a second."""
        if self._instead is None and self._clock.monotonic_ns() - self._looked_at_ns >= _FRESH_NS:
            self._looked_at_ns = self._clock.monotonic_ns()
            try:
                self._look(is_first=False)
            except CleaningAborted:
                raise
            except CleanerError as error:
                # What is known stays: a bucket that does not answer now has it all the same.
                self.say(str(error))

    def told(self, partition: Partition, error: CleanerError) -> Code:
        """Return what a client is told of an error; the operator is told of it here."""
        code = code_of(error)
        self.say(f"{partition.topic_partition}: a client is told {code.name}: {error}")
        return code

    def find(self, name: str, number: int) -> Partition | None:
        """Return a partition; None if it is not here."""
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions.get(number)

    def _look(self, *, is_first: bool) -> None:
        found: dict[TopicPartition, Partition] = {}
        for log_dir in self.log_dirs:
            listing = log_dir.listing(lambda error: self.say(str(error)))
            for sentence in listing.left_out():
                self.say(sentence)
            for topic_partition, path in listing.current.items():
                there = found.get(topic_partition)
                if there is not None:
                    message = f"{topic_partition} is in {there.log_dir} and in {log_dir.path}"
                    if is_first:
                        raise UsageError(f"{message}: serve one of them at a time")
                    self.say(f"{message}; only the first is served")
                    continue
                known = self._partitions.get(topic_partition)
                files_in = (self._instead or {}).get(topic_partition, path.parent)
                if known is not None and known.log_dir == path.parent and not known.is_replaced():
                    found[topic_partition] = known
                elif files_in is not None:
                    found[topic_partition] = Partition(self._fs, path.parent, topic_partition, self._clock, files_in)
        gone = [each for key, each in self._partitions.items() if found.get(key) is not each]
        if is_first or gone or len(found) != len(self._partitions) or not self._has_all_ids:
            topics = self._topics_of(found)
            # Replaced as wholes: other threads read them.
            self.by_id = {topic.topic_id: topic for topic in topics.values()}
            self.topics, self._partitions = topics, found
        for each in gone:
            each.close()

    def _topics_of(self, found: Mapping[TopicPartition, Partition]) -> dict[str, Topic]:
        by_name: dict[str, dict[int, Partition]] = {}
        for topic_partition in sorted(found):
            by_name.setdefault(topic_partition.topic, {})[topic_partition.partition] = found[topic_partition]
        topics: dict[str, Topic] = {}
        taken: set[str] = set()
        self._has_all_ids = True
        for name, partitions in by_name.items():
            topic_id = self._id_of(name, partitions)
            # A directory that was copied under another name has the id of the first.
            topic_id = _made_up_id(name) if topic_id in taken else topic_id
            taken.add(topic_id)
            topics[name] = Topic(name, topic_id, partitions)
        return topics

    def _id_of(self, name: str, partitions: Mapping[int, Partition]) -> str:
        for each in partitions.values():
            try:
                found = read_topic_id(self._fs, each.directory / PARTITION_METADATA)
            except CleaningAborted:
                raise
            except CleanerError as error:
                self.say(str(error))
                # The made-up id is not kept for what only cannot be read now.
                self._has_all_ids = self._has_all_ids and not isinstance(error, MAY_PASS)
                continue
            if found is not None:
                return format_uuid(found)
        return _made_up_id(name)

    def say(self, message: str) -> None:
        """Warn the operator of something, once; for any thread."""
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        if message not in self._said:
            self._said.add(message)
            self._warn(message)

    def close(self) -> None:
        """Close all files."""
        for each in self._partitions.values():
            each.close()


def _made_up_id(name: str) -> str:
    return format_uuid(uuid.uuid5(_NAMESPACE, name))
