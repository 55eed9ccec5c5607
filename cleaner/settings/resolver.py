"""
Resolves a topic's settings from all their sources.

Highest precedence first:

1. `--set TOPIC:key=value`, then `--set key=value`;
2. `<topic>.properties` in `--topics-dir`;
3. `cleaner-topics.properties` in the log dir;
4. topic settings under their own names in the environment, then in `--config`;
5. the cluster's metadata: the topic's settings, if its id is that of `partition.metadata`; then the dynamic settings
   of the broker, then those of all brokers;
6. broker settings in `--config`, which is a `server.properties`. Broker settings in the environment are meant for this
   process and win over the metadata's settings of brokers;
7. Kafka's own settings for the topics of its coordinators;
8. Kafka's defaults.

**A cleanup policy is trusted only if its source names this topic**: 1 (with the topic), 2, 3, 5 or 7. In 4 and 6 it
applies to all topics. But if the metadata knows the topic and has no policy for it, the broker's policy is the topic's,
and trusted. Compacting a topic that is not meant to be compacted destroys it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from cleaner.base.mistakes import Mistakes
from cleaner.config.process_settings import KAFKA_VERSION_KEY
from cleaner.config.read import check_topic_keys
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import ConfigError
from cleaner.policy.kafka_version import ChosenVersion, choose_version
from cleaner.settings.cluster import Cluster
from cleaner.settings.file_state import FileState, file_state
from cleaner.settings.files import (
    CLEANER_TOPICS,
    check_topics_dir,
    read_cleaner_topics,
    read_topic_file,
    topic_file,
)
from cleaner.settings.given import DEFAULT, Given, GivenSettings
from cleaner.settings.internal_topics import DEFAULT_REPLICATION_KEY, INTERNAL_TOPICS, REPLICATION_KEYS
from cleaner.settings.layers import FoundSetting, Layer, LayerScope, find_settings
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import META_PROPERTIES, DirKind, parse_partition_dir


@dataclass(frozen=True)
class ResolvedTopic:
    """
    A topic's settings and where they come from.

    Attributes:
        config: the settings.
        origins: for each topic setting that is not Kafka's default, its source.
        policy_trusted: the cleanup policy is known to be meant for this topic.
        policy_is_unscoped_set: the policy is from a `--set` without a topic.
        warnings: about this topic's settings, for the operator.
        values: the settings that are not Kafka's default, as text.
        replicas: the largest number of replicas of the topic's partitions; None if unknown.
        replicas_origin: the source of `replicas`.
        is_in_cluster: the metadata of a cluster has this topic.
        kafka: the Kafka version whose rules apply; the same for all topics of a log dir.
    """

    config: TopicConfig
    origins: Mapping[str, str]
    policy_trusted: bool
    policy_is_unscoped_set: bool
    warnings: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    replicas: int | None = None
    replicas_origin: str = ""
    is_in_cluster: bool = False
    kafka: ChosenVersion = field(default_factory=lambda: choose_version("auto", "", None))

    def in_force(self, key: str) -> Given:
        """
        Return a setting's value as text, and its source; every command, page and answer shows this.

        Without a source it is the default, or an empty text if the setting has no default of its own.
        """
        default = TOPIC_SETTINGS[key].default or ""
        return Given(self.values.get(key, default), self.origins.get(key, DEFAULT))


class FilesOfLogDir(NamedTuple):
    """
    The states of the files other than the metadata log; equal as long as they do not change.

    `topics` are those in the log dir: they decide what a line of `cleaner-topics.properties` means. None without it.
    """

    cleaner_topics: FileState | None = None
    topics: frozenset[str] | None = None
    meta_properties: FileState | None = None


class SettingsResolver:
    """
    Resolves the settings of topics; its constructor reads all sources except the files of `--topics-dir`.

    `cleaner` has the settings of the process, `process_values` those of them that are given, `kafka` the Kafka version
    whose rules apply to the log dir, `warnings` are about the sources, for the operator, `read_states` has the states
    of files and metadata when they were read.
    `trusts_default_policy`: the operator trusts a policy that is only a default, by option or by setting.

    Args:
        fs: the file system.
        log_dir: the topics' log dir; None: only settings are needed.
        sources: the other sources of settings.
    Raises:
        ConfigError: bad values, or names very similar to known ones, in any source for all topics; all in one error.
        CorruptCheckpointError: damaged metadata.
    """

    def __init__(self, fs: FileSystem, log_dir: Path | None, sources: Sources) -> None:
        self._fs = fs
        self._log_dir = log_dir
        self._sets = sources.sets
        self._listed_as: FileState | None = None
        self._listed_names: list[str] = []
        self._listed_topics: frozenset[str] = frozenset()
        self._configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        mistakes = Mistakes()
        given = self._given = GivenSettings(sources, mistakes)
        self._topics_dir = given.topics_dir
        self.warnings = given.warnings
        if self._topics_dir is not None:
            with mistakes.collected():
                check_topics_dir(fs, self._topics_dir, given.topics_dir_key)
        self._topics_here = self._list_topics()
        with mistakes.collected():
            self._check_scoped_sets()
        # Before reading: a change during the read is then seen as a change.
        files = self.file_states()
        self._cleaner_topics: Mapping[str, Mapping[str, str]] = {}
        if log_dir is not None:
            with mistakes.collected():
                self._cleaner_topics = read_cleaner_topics(fs, log_dir, self._topics_here, self.warnings)
        dynamic: Mapping[str, Given] = {}
        with mistakes.collected():
            self._cluster = Cluster(fs, log_dir, sources.metadata_dir, given.broker_texts())
            self.warnings += self._cluster.warnings
            dynamic = self._cluster.dynamic_broker_settings()
            self.read_states = (files, self._cluster.read_states)
        with mistakes.collected():
            self.cleaner: CleanerConfig = given.cleaner_config(dynamic)
            self.process_values = given.process_values(dynamic)
            self.warnings += self.cleaner.warnings
        mistakes.raise_any()
        self.kafka = self._choose_version()
        self.trusts_default_policy = sources.trust_default_policy or self.cleaner.trust_default_policy

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """
        Return a topic's settings.

        Args:
            topic: its name.
            topic_id: the id in the partition's `partition.metadata`, None without one.
        Raises:
            ConfigError: a bad value or name in a source of this topic, or settings that contradict each other.
        """
        warnings: list[str] = []
        is_in_metadata = self._cluster.is_same_topic(topic, topic_id, warnings)
        layers = self._layers(topic, is_in_metadata, warnings)
        found = find_settings(layers)
        values = {name: value.text for name, value in found.items()}
        # Thousands of topics have the same few settings.
        config = self._configs.get(tuple(values.items()))
        if config is None:
            config = self._configs[tuple(values.items())] = TopicConfig.from_mapping(values)
        policy = found.get("cleanup.policy")
        is_unscoped_set = policy is not None and policy.layer is self._given.set_everywhere
        self._warn_of_conflicts(topic, found, warnings)
        replicas, replicas_origin = self._replicas(topic, topic_id if is_in_metadata else None)
        return ResolvedTopic(
            config=config,
            origins={name: value.layer.origin for name, value in found.items()},
            policy_trusted=_is_trusted(policy, is_in_metadata),
            policy_is_unscoped_set=is_unscoped_set,
            warnings=(*warnings, *config.warnings),
            values=values,
            replicas=replicas,
            replicas_origin=replicas_origin,
            is_in_cluster=is_in_metadata,
            kafka=self.kafka,
        )

    def _choose_version(self) -> ChosenVersion:
        origin = self.process_values.get(KAFKA_VERSION_KEY, Given("", DEFAULT)).origin
        chosen = choose_version(self.cleaner.kafka_version, origin, self._cluster.metadata_level)
        if chosen.warning:
            self.warnings.append(chosen.warning)
        return chosen

    def _replicas(self, topic: str, id_in_metadata: UUID | None) -> tuple[int | None, str]:
        """Return the number of replicas by the metadata, or else by the broker's default, and its source."""
        known = None if id_in_metadata is None else self._cluster.replicas(id_in_metadata)
        if known is not None:
            return known, "cluster metadata"
        keys = (REPLICATION_KEYS.get(topic, DEFAULT_REPLICATION_KEY), DEFAULT_REPLICATION_KEY)
        for key in keys:
            text = self._given.broker_texts().get(key, "").strip()
            if text.isascii() and text.isdigit():
                return int(text), key
        return None, ""

    def is_current(self) -> bool:
        """Tell whether no source has changed since the constructor read it; files of single topics are not checked."""
        return (self.file_states(), self.metadata_states()) == self.read_states

    def metadata_states(self) -> tuple[object, ...]:
        """Return the current state of the metadata log; a live cluster writes to its own all the time."""
        return self._cluster.states()

    def file_states(self) -> FilesOfLogDir:
        """Return the current states of the files other than the metadata log."""
        if self._log_dir is None:
            return FilesOfLogDir()
        cleaner_topics = file_state(self._fs, self._log_dir / CLEANER_TOPICS)
        topics = None
        if cleaner_topics is not None:
            listed_as = file_state(self._fs, self._log_dir)
            if self._listed_as != listed_as:
                # Every round changes the directory, but rarely the names in it.
                names = self._fs.list_dir(self._log_dir)
                if names != self._listed_names:
                    self._listed_topics = frozenset(self._list_topics())
                    self._listed_names = names
                self._listed_as = listed_as  # after an error it is listed again
            topics = self._listed_topics
        return FilesOfLogDir(cleaner_topics, topics, file_state(self._fs, self._log_dir / META_PROPERTIES))

    def topic_file_state(self, topic: str) -> FileState | None:
        """Return the current state of a topic's file in `--topics-dir`; None if it has none."""
        return None if self._topics_dir is None else file_state(self._fs, topic_file(self._topics_dir, topic))

    def topics_dir_state(self) -> FileState | None:
        """Return the current state of `--topics-dir`: while it is equal, no file appears in it or vanishes."""
        return None if self._topics_dir is None else file_state(self._fs, self._topics_dir)

    def _layers(self, topic: str, is_in_metadata: bool, warnings: list[str]) -> list[Layer]:
        """Return the layers for one topic, highest precedence first."""
        scoped = {option.key: option.value for option in self._sets if option.topic == topic}
        everywhere = self._given.set_everywhere
        layers = [Layer(f"--set {topic}:", LayerScope.TOPIC, scoped), everywhere]
        if self._topics_dir is not None:
            file_values = read_topic_file(self._fs, self._topics_dir, topic) or {}
            layers.append(Layer(str(topic_file(self._topics_dir, topic)), LayerScope.TOPIC, file_values))
        layers.append(Layer(CLEANER_TOPICS, LayerScope.TOPIC, self._cleaner_topics.get(topic, {})))
        for layer in layers:
            if layer is not everywhere:
                warnings += [f"{layer.origin}: {warning}" for warning in check_topic_keys(layer.values)]
        layers += self._given.topic_layers()
        if is_in_metadata:
            layers.append(self._cluster.topic_layer(topic))
        layers += self._given.broker_layers(topic, self._cluster.dynamic_layers)
        internal = INTERNAL_TOPICS.get(topic)
        if internal is not None:
            layers.append(Layer("Kafka's own settings for this topic", LayerScope.TOPIC, internal.values))
        return layers

    def _check_scoped_sets(self) -> None:
        for topic in dict.fromkeys(option.topic for option in self._sets if option.topic is not None):
            given = {option.key: option.value for option in self._sets if option.topic == topic}
            check_topic_keys(given)
            for key in (given.keys() & BROKER_SETTINGS.keys()) - TOPIC_SETTINGS.keys() - SETTING_OF_SYNONYM.keys():
                raise ConfigError(key, given[key], f"is a setting of the process: --set {key}=..., without {topic}:")
            if self._log_dir is not None and topic not in self._topics_here:
                self.warnings.append(f"--set {topic}: no partition of this topic is in {self._log_dir}")

    def _list_topics(self) -> set[str]:
        topics: set[str] = set()
        for name in self._fs.list_dir(self._log_dir) if self._log_dir is not None else ():
            try:
                directory = parse_partition_dir(name)
            except ValueError:
                continue  # a plain file, or a directory that LogDir refuses with its own message
            if directory.kind is DirKind.CURRENT:
                topics.add(directory.topic_partition.topic)
        return topics

    @staticmethod
    def _warn_of_conflicts(topic: str, found: Mapping[str, FoundSetting], warnings: list[str]) -> None:
        internal_bytes, plain_bytes = found.get("internal.segment.bytes"), found.get("segment.bytes")
        if internal_bytes and plain_bytes and internal_bytes.layer is not plain_bytes.layer:
            warnings.append(
                f"segment.bytes={plain_bytes.text} ({plain_bytes.layer.origin}) is ignored, because of "
                f"internal.segment.bytes={internal_bytes.text} ({internal_bytes.layer.origin})"
            )
        for name, text in INTERNAL_TOPICS[topic].values.items() if topic in INTERNAL_TOPICS else ():
            value = found[name]
            if value.layer.reach is LayerScope.BROKER and value.text != text:
                warnings.append(f"{name}={value.text} ({value.layer.origin}): Kafka's own for this topic is {text}")


def _is_trusted(policy: FoundSetting | None, is_in_metadata: bool) -> bool:
    """Tell whether the cleanup policy is known to be this topic's."""
    if policy is None or policy.layer.reach is LayerScope.BROKER:
        return is_in_metadata
    return policy.layer.reach is LayerScope.TOPIC
