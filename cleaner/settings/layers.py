"""
One source of settings after the other, and which of them counts.

A layer is what one source says, with the words it goes by in messages and how far it reaches. Layers stand in falling
precedence; the first that has a setting, under the topic's name or a broker's name for it, gives its value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cleaner.base.mistakes import Mistakes
from cleaner.config.definition import Setting, Synonym, Value, format_value
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.errors import ConfigError


class LayerScope(enum.Enum):
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
    reach: LayerScope
    values: Mapping[str, str]
    names_topic_settings: bool = True


class FoundSetting(NamedTuple):
    """A setting's value as text under its own name, and the layer that gave it."""

    text: str
    layer: Layer


def find_settings(layers: Sequence[Layer]) -> dict[str, FoundSetting]:
    """
    Return the topic settings that some layer gives, each from the first layer that does.

    Raises:
        ConfigError: bad values, in whatever layer they would win.
    """
    mistakes = Mistakes()
    found = find_sound_settings(layers, mistakes)
    mistakes.raise_any()
    return found


def find_sound_settings(layers: Sequence[Layer], mistakes: Mistakes) -> dict[str, FoundSetting]:
    """Do as `find_settings`, but leave out what is bad, and remember it."""
    found: dict[str, FoundSetting] = {}
    for layer in layers:
        for setting in _settings_in(layer):
            if setting.name in found:
                continue
            try:
                value = _value_in(layer, setting)
            except ConfigError as error:
                mistakes.add(error)
                continue
            if value is not None:
                found[setting.name] = FoundSetting(format_value(value), layer)
    return found


def check_values(layer: Layer) -> None:
    """
    Read every topic setting in a layer, even those no topic would take.

    Raises:
        ConfigError: bad values, all of them. Those of settings that the process has too are left to its reader.
    """
    mistakes = Mistakes()
    for setting in TOPIC_SETTINGS.values():
        for under in _names_in(layer, setting):
            name = under.name if under else setting.name
            if name in layer.values and name not in BROKER_SETTINGS:
                with mistakes.collected():
                    _parse(layer, setting, under, layer.values[name])
    mistakes.raise_any()


def _settings_in(layer: Layer) -> list[Setting]:
    """Return the topic settings that a layer may speak of, some perhaps twice."""
    settings = []
    for name in layer.values:
        if name in SETTING_OF_SYNONYM:
            settings.append(SETTING_OF_SYNONYM[name][0])
        if name in TOPIC_SETTINGS:
            settings.append(TOPIC_SETTINGS[name])
    return settings


def _value_in(layer: Layer, setting: Setting) -> Value | None:
    for under in _names_in(layer, setting):
        text = layer.values.get(under.name if under else setting.name)
        if text is not None:
            return _parse(layer, setting, under, text)
    return None


def _names_in(layer: Layer, setting: Setting) -> tuple[Synonym | None, ...]:
    """Return the names a setting may have in a layer; None stands for its own."""
    return (None, *setting.synonyms) if layer.names_topic_settings else setting.synonyms


def _parse(layer: Layer, setting: Setting, under: Synonym | None, text: str) -> Value:
    try:
        return setting.parse(text, under)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, f"{error.reason} ({layer.origin})") from None
