"""
Topics of log dirs: list, create, grow, alter, delete.

A topic is its partitions' directories: there is no other list of topics. Its settings are lines of
`cleaner-topics.properties` in each of the log dirs, its id is in every partition's `partition.metadata`.

Invariant: a partition's directory has its `partition.metadata` from the first moment on; a broker would set it aside
without (R-107). It is created under a name for deleted directories, and renamed when it is complete; an unfinished one
left by a crash is removed like any deleted topic.

Deleting renames a partition's directory; its files are removed `file.delete.delay.ms` later (`removals.py`). It goes
from the last partition to the first, so that a crash leaves a shorter topic without a hole; its settings go last.

Source: rules R-101 to R-107, R-124; `Topic.java`, `LogManager.java` (asyncDelete).
"""

from __future__ import annotations

import contextlib
import re
import stat
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.config.table import TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.config.values import TopicConfig
from cleaner.errors import ConfigError, InvalidTopicError, TopicExistsError, UnknownTopicError
from cleaner.log.dir_state import new_uuid
from cleaner.log.topic_settings_file import write_topic_settings
from cleaner.settings.files import read_cleaner_topics
from cleaner.storage.files.partition_metadata import read_topic_id, write_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.partition_lock import checkpoint_lock
from cleaner.storage.log_dir import NEVER_FOLLOWED, LogDir, OffsetKind
from cleaner.storage.segment.names import METADATA_TOPIC, PARTITION_METADATA, DirKind, partition_dir_name

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_MAX_NAME_LENGTH = 249
_MAX_PARTITIONS = 2**31 - 1
_POLICY = "cleanup.policy"
_KNOWN_KEYS = frozenset(TOPIC_SETTINGS) | UNUSED_TOPIC_KEYS

Locked = Callable[[TopicPartition, LogDir], AbstractContextManager[None]]
"""Gives a partition's lock, with its log closed, for as long as its directory is renamed."""


@dataclass(frozen=True)
class Topic:
    """
    A topic as it is on disk.

    Attributes:
        name: of the topic.
        topic_id: None where `partition.metadata` is missing.
        homes: the log dir of each partition, by number.
        settings: its own, from `cleaner-topics.properties`.
    """

    name: str
    topic_id: uuid.UUID | None
    homes: Mapping[int, Path]
    settings: Mapping[str, str]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Its partitions, ascending."""
        return tuple(TopicPartition(self.name, number) for number in sorted(self.homes))


def check_topic_name(name: str, others: Collection[str] = ()) -> None:
    """
    Refuse a name that Kafka would refuse for a new topic.

    Args:
        name: of the topic.
        others: the existing topics; two names that differ only in dots and underscores collide.
    Raises:
        InvalidTopicError: says why.
    """
    if not name:
        raise InvalidTopicError(name, "a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopicError(name, "not a name for a topic")
    if len(name) > _MAX_NAME_LENGTH:
        raise InvalidTopicError(name, f"{len(name)} characters, a topic's name has at most {_MAX_NAME_LENGTH}")
    if not _LEGAL.match(name):
        raise InvalidTopicError(name, "a topic's name has letters and digits of ASCII, '.', '_' and '-'")
    if name == METADATA_TOPIC:
        raise InvalidTopicError(name, "Kafka's own, which no log dir serves")
    plain = name.replace(".", "_")
    for other in sorted(others):
        if other != name and other.replace(".", "_") == plain:
            raise InvalidTopicError(name, f"too like {other}: '.' and '_' are the same in names of metrics")


class Topics:
    """
    The topics of some log dirs. Reads need no lock; only the writer of all these log dirs may call the others.

    Args:
        fs: the file system.
        log_dirs: at least one.
        clock: for waits.
    """

    def __init__(self, fs: FileSystem, log_dirs: Sequence[LogDir], clock: Clock) -> None:
        self._fs = fs
        self._log_dirs = list(log_dirs)
        self._clock = clock

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return sorted({partition.topic for log_dir in self._log_dirs for partition in log_dir.partitions()})

    def find(self, name: str) -> Topic:
        """
        Return a topic.

        Raises:
            UnknownTopicError: there is none of this name.
            ConfigError: `cleaner-topics.properties` cannot be read.
            CorruptCheckpointError: `partition.metadata` is damaged.
        """
        homes = self._homes(name)
        if not homes:
            raise self._unknown(name)
        first = min(homes)
        topic_id = read_topic_id(self._fs, homes[first].path / str(TopicPartition(name, first)) / PARTITION_METADATA)
        return Topic(name, topic_id, {number: each.path for number, each in homes.items()}, self.settings(name))

    def left_out(self, name: str | None = None) -> list[str]:
        """Return a sentence for each partition, or each of a topic, that is not served because it is a link."""
        return [sentence for log_dir in self._log_dirs for sentence in log_dir.listing().left_out(name)]

    def settings(self, name: str) -> dict[str, str]:
        """Return a topic's own settings, from the first log dir whose `cleaner-topics.properties` has any."""
        topics = set(self.names())
        found = (read_cleaner_topics(self._fs, each.path, topics, []).get(name, {}) for each in self._log_dirs)
        return next((settings for settings in found if settings), {})

    def create(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        *,
        default_policy: str,
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """
        Create a topic: settings first, then its partitions one by one.

        Its cleanup policy is written even if it is the default: other processes that work on the log dir must see that
        it was intended (`settings/resolver.py`), and do not know the defaults of this process.

        Args:
            name: of the topic.
            partitions: how many.
            settings: its own.
            default_policy: `cleanup.policy` if the settings have none.
            topic_id: None chooses one.
        Raises:
            InvalidTopicError: a name or number Kafka would refuse, or a partition of it is there as a link.
            TopicExistsError: it exists.
            ConfigError: a setting no topic has, or a bad value.
            TopicSettingsError: see `write_topic_settings`.
            LogDirOfflineError, NoSpaceError: the disk; some of its partitions may exist.
        """
        others = self.check_new(name)
        _check_count(name, partitions)
        values = {_POLICY: default_policy, **settings}
        check_settings(values)
        try:
            self._write_settings(name, values, others)
            self._make(name, range(partitions), topic_id or new_uuid())
        except BaseException:
            if not self._homes(name):
                self._write_settings(name, {}, others)
            raise
        return self.find(name)

    def check_new(self, name: str) -> list[str]:
        """
        Refuse a name that a new topic cannot have; returns the names of the existing topics.

        Raises:
            InvalidTopicError, TopicExistsError: as `create`.
        """
        others = self.names()
        if name in others:
            raise TopicExistsError(name, f"it is there already, in {next(iter(self.find(name).homes.values()))}")
        check_topic_name(name, others)
        self._require_no_link(name)
        return others

    def grow(self, name: str, partitions: int) -> Topic:
        """
        Give a topic more partitions. Keys may then go to other partitions than their older records.

        Raises:
            UnknownTopicError: it does not exist.
            InvalidTopicError: it has as many or more: the number can only grow; or one of them is a link.
        """
        topic = self.find(name)
        _check_count(name, partitions)
        self._require_no_link(name)
        if partitions <= len(topic.homes):
            raise InvalidTopicError(name, f"it has {len(topic.homes)} partitions, which can only become more")
        self._make(name, [number for number in range(partitions) if number not in topic.homes], topic.topic_id)
        return self.find(name)

    def alter(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        """
        Change a topic's settings.

        Args:
            name: of the topic.
            changes: by key; None removes a setting, so that the default counts.
        Raises:
            UnknownTopicError, ConfigError, TopicSettingsError: see `create`; nothing has changed.
        """
        topic = self.find(name)
        wanted = {**topic.settings, **changes}
        values = {key: value for key, value in wanted.items() if value is not None}
        check_settings({key: value or "" for key, value in changes.items()}, keys_only=True)
        check_settings(values)
        self._write_settings(name, values, self.names())
        return self.find(name)

    def delete(self, name: str, locked: Locked, waits: Callable[[Path], None]) -> None:
        """
        Delete a topic.

        Args:
            name: of the topic.
            locked: see `Locked`.
            waits: called with each directory that waits for its removal from then on, once before it has that name and
                once behind that, also before an error.
        Raises:
            UnknownTopicError: it does not exist.
            InvalidTopicError: a partition of it is a link.
            LogDirOfflineError: the disk; some of its partitions may be gone.
        """
        if not self._homes(name):
            raise self._unknown(name)
        self._require_no_link(name)
        for number, log_dir in sorted(self._homes(name).items(), reverse=True):
            partition = TopicPartition(name, number)
            target = log_dir.path / partition_dir_name(partition, DirKind.DELETE, uuid.uuid4().hex)
            with locked(partition, log_dir):
                # Once before: an interrupt may come in the call behind the renaming, and nobody would know of it.
                waits(target)
                try:
                    self._fs.rename(log_dir.path / str(partition), target)
                finally:
                    waits(target)  # where the renaming has failed, there is nothing to remove
                self._fs.fsync_dir(log_dir.path)
        self._write_settings(name, {}, self.names())

    def drop_offsets(self, log_dir: LogDir, partitions: Collection[TopicPartition]) -> None:
        """
        Drop partitions' lines from all checkpoints.

        Raises:
            CorruptCheckpointError, LogDirOfflineError, NoSpaceError: see `LogDir.put_all`.
        """
        for kind in OffsetKind:
            is_shared = kind is OffsetKind.CLEANER
            # The lock itself, not an ExitStack with it: an interrupt in the stack's exit would leave the lock taken.
            with checkpoint_lock(self._fs, log_dir.path, self._clock) if is_shared else contextlib.nullcontext():
                log_dir.put_all(kind, dict.fromkeys(partitions))

    def _unknown(self, name: str) -> UnknownTopicError:
        """Return the error for a topic that has no partition here."""
        link = self._link_of(name)
        if link is not None:
            return UnknownTopicError(name, f"{link}: {NEVER_FOLLOWED}")
        places = ", ".join(str(each.path) for each in self._log_dirs)
        return UnknownTopicError(name, f"no such topic in {places}{did_you_mean(name, self.names())}")

    def _require_no_link(self, name: str) -> None:
        """Refuse to make or delete partitions beside one that is a link: its topic would be there in part."""
        link = self._link_of(name)
        if link is not None:
            raise InvalidTopicError(
                name, f"{link}: {NEVER_FOLLOWED}: put the directory itself there, or remove the link"
            )

    def _require_free(self, name: str, numbers: Sequence[int]) -> None:
        """Refuse partitions whose names something else has, a file, before the first of them is made."""
        for number in numbers:
            for path in (each.path / str(TopicPartition(name, number)) for each in self._log_dirs):
                if self._fs.exists(path):
                    raise InvalidTopicError(name, f"{path}: in the way of a partition: move it out of the log dir")

    def _link_of(self, name: str) -> Path | None:
        return next(filter(None, (each.listing().link_of(name) for each in self._log_dirs)), None)

    def _homes(self, name: str) -> dict[int, LogDir]:
        return {
            partition.partition: log_dir
            for log_dir in self._log_dirs
            for partition in log_dir.partitions()
            if partition.topic == name
        }

    def _write_settings(self, name: str, values: Mapping[str, str], topics: Collection[str]) -> None:
        written = {key: _as_kafka_reads_it(key, value) for key, value in values.items()}
        for log_dir in self._log_dirs:
            with checkpoint_lock(self._fs, log_dir.path, self._clock):
                write_topic_settings(self._fs, log_dir.path, name, written, topics)

    def _make(self, name: str, numbers: Sequence[int], topic_id: uuid.UUID | None) -> None:
        self._require_free(name, numbers)
        counts = {log_dir: len(log_dir.partitions()) for log_dir in self._log_dirs}
        # A crash in a deletion, or an operator who removed a directory, leaves lines: they are not of the new logs.
        for log_dir in counts:
            self.drop_offsets(log_dir, [TopicPartition(name, number) for number in numbers])
        for number in numbers:
            # As Kafka: in the log dir with the fewest partitions.
            log_dir = min(counts, key=counts.__getitem__)
            self._make_partition(log_dir, TopicPartition(name, number), topic_id)
            counts[log_dir] += 1

    def _make_partition(self, log_dir: LogDir, partition: TopicPartition, topic_id: uuid.UUID | None) -> None:
        temporary = log_dir.path / partition_dir_name(partition, DirKind.DELETE, uuid.uuid4().hex)
        self._fs.make_dir(temporary, stat.S_IMODE(self._fs.stat(log_dir.path).st_mode))
        if topic_id is not None:
            write_topic_id(self._fs, temporary / PARTITION_METADATA, topic_id)
        self._fs.rename(temporary, log_dir.path / str(partition))
        self._fs.fsync_dir(log_dir.path)


def check_settings(values: Mapping[str, str], *, keys_only: bool = False) -> None:
    """
    Refuse settings that no topic has, as Kafka does when one is created, and bad values.

    Raises:
        ConfigError: names every wrong setting.
    """
    for key, value in values.items():
        if key not in _KNOWN_KEYS:
            TopicConfig.from_mapping({key: value})  # raises if the key is close to a known one
            raise ConfigError(key, value, "no topic has this setting")
    if not keys_only:
        TopicConfig.from_mapping(values)


def _as_kafka_reads_it(key: str, value: str) -> str:
    """Return a checked value, sizes in plain bytes: the file may be given to a broker."""
    setting = TOPIC_SETTINGS.get(key)
    return value if setting is None or not setting.in_bytes else setting.canonical(value)


def _check_count(name: str, partitions: int) -> None:
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise InvalidTopicError(name, f"{partitions} partitions; it takes at least one")
