"""
Where a topic's settings come from.

In falling precedence:

1. `--set TOPIC:key=value`, then `--set key=value`;
2. `<topic>.properties` in `--topics-dir`;
3. `cleaner-topics.properties` in the log dir;
4. topic settings under their own names in `--config`;
5. the cluster's metadata: the topic's settings, if its id is that of `partition.metadata`; then the dynamic settings
   of the broker, then those of all brokers;
6. broker settings in `--config`, which is a `server.properties`;
7. Kafka's own settings for the topics of its coordinators;
8. Kafka's defaults.

**A policy is trusted only when somebody said it of this very topic**: in 1 (with the topic), 2, 3, 5 or 7. In 4 and 6
it is said of all topics. But where the metadata knows the topic and gives it no policy, the broker's policy is known
to be the topic's, and trusted. Compacting a topic that is not meant to be compacted destroys it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cleaner.config import CleanerConfig, TopicConfig
from cleaner.config_read import check_topic_keys, refuse_slip
from cleaner.config_table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.kafka_keys import FORMER_TOPIC_KEYS
from cleaner.settings.cluster import Cluster
from cleaner.settings.files import (
    CLEANER_TOPICS,
    check_topics_dir,
    read_cleaner_topics,
    read_topic_file,
    split_by_table,
)
from cleaner.settings.internal_topics import INTERNAL_TOPICS
from cleaner.settings.layers import Found, Layer, Reach, check_values, find_settings
from cleaner.settings.sources import SourcesLike
from cleaner.settings.windows import windows_of
from cleaner.storage.fs import FileSystem
from cleaner.storage.names import DirKind, parse_partition_dir


@dataclass(frozen=True)
class ResolvedTopic:
    """
    A topic's settings and where they come from.

    Attributes:
        config: the settings.
        origins: for each topic setting that is not Kafka's default, who says so.
        policy_trusted: somebody said the cleanup policy of this very topic.
        policy_is_unscoped_set: the policy is from a `--set` without a topic.
        warnings: what the operator should know about this topic's settings.
    """

    config: TopicConfig
    origins: Mapping[str, str]
    policy_trusted: bool
    policy_is_unscoped_set: bool
    warnings: tuple[str, ...]


class SettingsResolver:
    """
    Answers which settings a topic has; reads everything but the files of `--topics-dir` when made.

    `cleaner` are the settings of the process, `warnings` what the operator should know about the sources themselves.

    Args:
        fs: the file system.
        log_dir: the log dir whose topics are asked for.
        sources: where else settings come from.
    Raises:
        ConfigError: a bad value, or a name very like a known one, in any source of all topics.
        CorruptCheckpointError: damaged metadata.
    """

    def __init__(self, fs: FileSystem, log_dir: Path, sources: SourcesLike) -> None:
        self._fs = fs
        self._log_dir = log_dir
        self._topics_dir = sources.topics_dir
        self._sets = sources.sets
        self.warnings: list[str] = []
        if self._topics_dir is not None:
            check_topics_dir(fs, self._topics_dir)
        self._topics_here = self._list_topics()
        self._set_everywhere, self._broker_sets = self._part_unscoped_sets()
        self._check_scoped_sets()
        self._config_of_topics, self._config_of_broker = split_by_table(sources.config, BROKER_SETTINGS)
        self._cleaner_topics = read_cleaner_topics(fs, log_dir, self._topics_here, self.warnings)
        self._cluster = Cluster(fs, log_dir, sources.metadata_dir, {**sources.config, **self._broker_sets})
        self.warnings += self._cluster.warnings
        self.cleaner = CleanerConfig.from_mapping(
            {**sources.config, **self._cluster.dynamic_broker_settings(), **self._broker_sets}
        )
        windows_of(self.cleaner)
        self.warnings += self.cleaner.warnings
        for layer in (self._set_everywhere, self._file_of_topics(), self._file_of_broker()):
            check_values(layer)

    @staticmethod
    def of(fs: FileSystem, log_dir: Path, sources: SourcesLike) -> SettingsResolver:
        """Make a resolver."""
        return SettingsResolver(fs, log_dir, sources)

    def topic(self, topic: str, topic_id: UUID | None) -> ResolvedTopic:
        """
        Return a topic's settings.

        Args:
            topic: its name.
            topic_id: the id in the partition's `partition.metadata`, None without one.
        Raises:
            ConfigError: a bad value or name in a source of this topic, or settings that do not go together.
        """
        warnings: list[str] = []
        is_in_metadata = self._cluster.is_same_topic(topic, topic_id, warnings)
        layers = self._layers(topic, is_in_metadata, warnings)
        found = find_settings(layers)
        config = TopicConfig.from_mapping({name: value.text for name, value in found.items()})
        policy = found.get("cleanup.policy")
        is_unscoped_set = policy is not None and policy.layer is self._set_everywhere
        self._warn_of_conflicts(topic, found, warnings)
        return ResolvedTopic(
            config=config,
            origins={name: value.layer.origin for name, value in found.items()},
            policy_trusted=_is_trusted(policy, is_in_metadata),
            policy_is_unscoped_set=is_unscoped_set,
            warnings=(*warnings, *config.warnings),
        )

    def _layers(self, topic: str, is_in_metadata: bool, warnings: list[str]) -> list[Layer]:
        """Return what the sources say about one topic, in falling precedence."""
        scoped = {option.key: option.value for option in self._sets if option.topic == topic}
        layers = [Layer(f"--set {topic}:", Reach.TOPIC, scoped), self._set_everywhere]
        if self._topics_dir is not None:
            file_values = read_topic_file(self._fs, self._topics_dir, topic) or {}
            layers.append(Layer(str(self._topics_dir / f"{topic}.properties"), Reach.TOPIC, file_values))
        layers.append(Layer(CLEANER_TOPICS, Reach.TOPIC, self._cleaner_topics.get(topic, {})))
        for layer in layers:
            if layer is not self._set_everywhere:
                warnings += [f"{layer.origin}: {warning}" for warning in check_topic_keys(layer.values)]
        layers.append(self._file_of_topics())
        if is_in_metadata:
            layers.append(self._cluster.topic_layer(topic))
        layers.append(Layer("--set", Reach.BROKER, self._broker_sets, names_topic_settings=False))
        layers += self._cluster.dynamic_layers
        internal = INTERNAL_TOPICS.get(topic)
        if internal is not None and internal.segment_bytes_key in self._config_of_broker:
            # It means this topic alone, so it goes before a `log.segment.bytes` of the same file.
            own = {"segment.bytes": self._config_of_broker[internal.segment_bytes_key]}
            layers.append(Layer(f"--config ({internal.segment_bytes_key})", Reach.TOPIC, own))
        layers.append(self._file_of_broker())
        if internal is not None:
            layers.append(Layer("Kafka's own settings for this topic", Reach.TOPIC, internal.values))
        return layers

    def _file_of_topics(self) -> Layer:
        return Layer("--config", Reach.EVERY_TOPIC, self._config_of_topics)

    def _file_of_broker(self) -> Layer:
        return Layer("--config (broker settings)", Reach.BROKER, self._config_of_broker, names_topic_settings=False)

    def _part_unscoped_sets(self) -> tuple[Layer, dict[str, str]]:
        """Part `--set` without a topic into settings of all topics and settings of the process."""
        of_topics, of_broker = {}, {}
        known = [*BROKER_SETTINGS, *TOPIC_SETTINGS, *SETTING_OF_SYNONYM]
        for option in self._sets:
            if option.topic is not None:
                continue
            if option.key in BROKER_SETTINGS:
                of_broker[option.key] = option.value
            elif option.key in TOPIC_SETTINGS or option.key in SETTING_OF_SYNONYM:
                of_topics[option.key] = option.value
            elif option.key not in UNUSED_TOPIC_KEYS and option.key not in FORMER_TOPIC_KEYS:
                refuse_slip(option.key, known)
                self.warnings.append(f"--set {option.key}: unknown, passed over")
        self.warnings += [f"--set: {warning}" for warning in check_topic_keys(of_topics)]
        return Layer("--set", Reach.EVERY_TOPIC, of_topics), of_broker

    def _check_scoped_sets(self) -> None:
        for topic in dict.fromkeys(option.topic for option in self._sets if option.topic is not None):
            check_topic_keys([option.key for option in self._sets if option.topic == topic])
            if topic not in self._topics_here:
                self.warnings.append(f"--set {topic}: no partition of this topic is in {self._log_dir}")

    def _list_topics(self) -> set[str]:
        topics = set()
        for name in self._fs.list_dir(self._log_dir):
            try:
                directory = parse_partition_dir(name)
            except ValueError:
                continue  # a plain file, or a directory that LogDir refuses in its own words
            if directory.kind is DirKind.CURRENT:
                topics.add(directory.topic_partition.topic)
        return topics

    @staticmethod
    def _warn_of_conflicts(topic: str, found: Mapping[str, Found], warnings: list[str]) -> None:
        internal_bytes, plain_bytes = found.get("internal.segment.bytes"), found.get("segment.bytes")
        if internal_bytes and plain_bytes and internal_bytes.layer is not plain_bytes.layer:
            warnings.append(
                f"segment.bytes={plain_bytes.text} ({plain_bytes.layer.origin}) does not count beside "
                f"internal.segment.bytes={internal_bytes.text} ({internal_bytes.layer.origin})"
            )
        for name, text in INTERNAL_TOPICS[topic].values.items() if topic in INTERNAL_TOPICS else ():
            value = found[name]
            if value.layer.reach is Reach.BROKER and value.text != text:
                warnings.append(f"{name}={value.text} ({value.layer.origin}): Kafka's own for this topic is {text}")


def _is_trusted(policy: Found | None, is_in_metadata: bool) -> bool:
    """Tell whether the cleanup policy is known to be this topic's."""
    if policy is None or policy.layer.reach is Reach.BROKER:
        return is_in_metadata
    return policy.layer.reach is Reach.TOPIC
