"""
The settings in command line, environment and `--config`, split into those of topics and those of the process.

A setting of the process comes from the first of these that has it: `--set`, the environment, the cluster's dynamic
settings (if a log dir with metadata is available), the file, the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cleaner.base.mistakes import Mistakes
from cleaner.config.kafka_keys import FORMER_TOPIC_KEYS
from cleaner.config.read import check_topic_keys, refuse_slip
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.config.values import CleanerConfig
from cleaner.errors import ConfigError
from cleaner.policy.windows import WINDOWS_KEY, ZONE_KEY
from cleaner.settings.environment import variable_of
from cleaner.settings.files import split_by_table
from cleaner.settings.internal_topics import INTERNAL_TOPICS
from cleaner.settings.layers import Layer, LayerScope, check_values, find_sound_settings
from cleaner.settings.sources import Sources
from cleaner.settings.windows import read_windows

DEFAULT = "default"
_TOPICS_DIR_KEY = "cleaner.topics.dir"
_SET, _ENVIRONMENT, _FILE = "--set", "environment", "--config"


class Given(NamedTuple):
    """A value as text, and its source."""

    text: str
    origin: str


class GivenSettings:
    """
    See the module's docstring.

    Attributes:
        topics_dir, topics_dir_key: `--topics-dir`, or else `cleaner.topics.dir`; and which of them.
        set_everywhere: `--set` of topic settings, without a topic.
        warnings: for the operator.

    Args:
        sources: command line, environment and file.
        mistakes: collects errors in names and in values of topic settings.
    """

    def __init__(self, sources: Sources, mistakes: Mistakes) -> None:
        self.warnings: list[str] = []
        self._sources = sources
        self.set_everywhere, self._set = self._part_unscoped_sets(mistakes)
        environment = split_by_table(sources.environment)
        file = split_by_table(sources.config)
        self._environment_topics = Layer(_ENVIRONMENT, LayerScope.EVERY_TOPIC, environment[0])
        self._file_topics = Layer(_FILE, LayerScope.EVERY_TOPIC, file[0])
        self._environment = self._broker_layer(_ENVIRONMENT, environment[1])
        self._file = self._broker_layer(_FILE, file[1])
        for layer in (self.set_everywhere, self._environment_topics, self._file_topics, self._environment, self._file):
            with mistakes.collected():
                check_values(layer)
        for key in sources.environment if sources.environment else ():
            if key in UNUSED_TOPIC_KEYS:
                self.warnings.append(f"{variable_of(key)} is not used by a cleaner: ignored")
        self.topics_dir, self.topics_dir_key = sources.topics_dir, "--topics-dir"
        configured = self._text(_TOPICS_DIR_KEY).strip()
        if self.topics_dir is None and configured:
            self.topics_dir, self.topics_dir_key = Path(configured), _TOPICS_DIR_KEY

    def process_values(self, dynamic: Mapping[str, Given]) -> dict[str, Given]:
        """Return the process's settings that are given, including those the cluster sets."""
        given = {key: Given(text, _FILE) for key, text in self._file.values.items()}
        given |= dynamic
        given |= {
            key: Given(text, f"{_ENVIRONMENT} ({variable_of(key)})") for key, text in self._environment.values.items()
        }
        given |= {key: Given(text, _SET) for key, text in self._set.values.items()}
        return {key: value for key, value in given.items() if key in BROKER_SETTINGS}

    def cleaner_config(self, dynamic: Mapping[str, Given]) -> CleanerConfig:
        """
        Return the process's settings as typed values.

        Args:
            dynamic: settings that the cluster sets, with their source.
        Raises:
            ConfigError: bad values or names, each with its source.
        """
        given = self.process_values(dynamic)
        everything = {**self._sources.config, **{key: value.text for key, value in given.items()}}
        found = Mistakes()
        config = CleanerConfig()
        with found.collected():
            config = CleanerConfig.from_mapping(everything)
        with found.collected():
            texts = [everything.get(key, BROKER_SETTINGS[key].default or "") for key in (WINDOWS_KEY, ZONE_KEY)]
            read_windows(*texts)
        mistakes = Mistakes()
        for mistake in found.all():
            origin = given[mistake.key].origin if mistake.key in given else _FILE
            reason = f"{mistake.reason} ({origin})" if mistake.key in everything else mistake.reason
            mistakes.add(ConfigError(mistake.key, mistake.value, reason))
        mistakes.raise_any()
        return config

    def broker_texts(self) -> dict[str, str]:
        """Return the broker settings: `--set` wins over the environment, and that over the file."""
        return {**self._sources.config, **self._sources.environment, **self._set.values}

    def topic_layers(self) -> list[Layer]:
        """Return the layers for every topic under the topic settings' names, between a topic's files and metadata."""
        return [self._environment_topics, self._file_topics]

    def broker_layers(self, topic: str | None, dynamic: list[Layer]) -> list[Layer]:
        """
        Return the broker settings that apply to a topic without its own settings, highest precedence first.

        Args:
            topic: its name; None for any topic that is not Kafka's own.
            dynamic: the cluster's layers.
        """
        internal = None if topic is None else INTERNAL_TOPICS.get(topic)
        layers = [self._set]
        for layer, following in ((self._environment, dynamic), (self._file, [])):
            if internal is not None and internal.segment_bytes_key in layer.values:
                # It applies to this topic only, so it wins over a `log.segment.bytes` of the same source.
                own = {"segment.bytes": layer.values[internal.segment_bytes_key]}
                name = layer.origin.partition(" ")[0]
                layers.append(Layer(f"{name} ({internal.segment_bytes_key})", LayerScope.TOPIC, own))
            layers += [layer, *following]
        return layers

    def topic_defaults(self, mistakes: Mistakes) -> dict[str, Given]:
        """Return the topic settings for topics that no source names; bad values are left out."""
        layers = [self.set_everywhere, *self.topic_layers(), *self.broker_layers(None, [])]
        found = find_sound_settings(layers, mistakes)
        return {name: Given(value.text, value.layer.origin) for name, value in found.items()}

    def _text(self, key: str) -> str:
        return next(
            (layer.values[key] for layer in (self._set, self._environment, self._file) if key in layer.values), ""
        )

    @staticmethod
    def _broker_layer(origin: str, values: Mapping[str, str]) -> Layer:
        return Layer(f"{origin} (broker settings)", LayerScope.BROKER, values, names_topic_settings=False)

    def _part_unscoped_sets(self, mistakes: Mistakes) -> tuple[Layer, Layer]:
        """Split `--set` without a topic into settings of all topics and settings of the process."""
        of_topics, of_broker = {}, {}
        known = [*BROKER_SETTINGS, *TOPIC_SETTINGS, *SETTING_OF_SYNONYM]
        for option in self._sources.sets:
            if option.topic is not None:
                continue
            if option.key in BROKER_SETTINGS:
                of_broker[option.key] = option.value
            elif option.key in TOPIC_SETTINGS or option.key in SETTING_OF_SYNONYM:
                of_topics[option.key] = option.value
            elif option.key not in UNUSED_TOPIC_KEYS and option.key not in FORMER_TOPIC_KEYS:
                with mistakes.collected():
                    refuse_slip(option.key, known)
                    self.warnings.append(f"--set {option.key}: unknown, ignored")
        self.warnings += [f"--set: {warning}" for warning in check_topic_keys(of_topics)]
        everywhere = Layer(_SET, LayerScope.EVERY_TOPIC, of_topics)
        return everywhere, Layer(_SET, LayerScope.BROKER, of_broker, names_topic_settings=False)
