"""
One source of settings after the other, and which of them counts.

A layer is what one source says, with the words it goes by in messages and how far it reaches. Layers stand in falling
precedence; the first that has a setting, under the topic's name or a broker's name for it, gives its value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cleaner.config_def import Setting, Synonym, Value
from cleaner.config_table import TOPIC_SETTINGS
from cleaner.errors import ConfigError


class Reach(enum.Enum):
    """Whom a layer speaks of; a cleanup policy is trusted when the layer means this very topic."""

    TOPIC = "this topic"
    EVERY_TOPIC = "every topic of the command"
    BROKER = "topics without a setting of their own"


class Layer(NamedTuple):
    """
    What one source says.

    `names_topic_settings` tells whether topic settings stand there under their own names; in a `server.properties`
    they stand under the broker's names only.
    """

    origin: str
    reach: Reach
    values: Mapping[str, str]
    names_topic_settings: bool = True


class Found(NamedTuple):
    """A setting's value as text under its own name, and the layer that gave it."""

    text: str
    layer: Layer


def find_settings(layers: Sequence[Layer]) -> dict[str, Found]:
    """
    Return the topic settings that some layer gives, each from the first layer that does.

    Raises:
        ConfigError: a bad value, in whatever layer it wins.
    """
    found = {}
    for setting in TOPIC_SETTINGS.values():
        for layer in layers:
            value = _value_in(layer, setting)
            if value is not None:
                found[setting.name] = Found(format_value(value), layer)
                break
    return found


def check_values(layer: Layer) -> None:
    """Raise ConfigError for the first bad value of a topic setting in a layer, even if no topic would take it."""
    for setting in TOPIC_SETTINGS.values():
        _value_in(layer, setting)


def format_value(value: Value) -> str:
    """Write a value so that it is read back as the same."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _value_in(layer: Layer, setting: Setting) -> Value | None:
    names: Iterable[Synonym | None] = (*((None,) if layer.names_topic_settings else ()), *setting.synonyms)
    for under in names:
        text = layer.values.get(under.name if under else setting.name)
        if text is not None:
            try:
                return setting.parse(text, under)
            except ConfigError as error:
                raise ConfigError(error.key, error.value, f"{error.reason} ({layer.origin})") from None
    return None
